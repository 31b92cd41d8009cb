package session

// Step is what a spawn may do next, given the state of its name.
type Step uint8

// The steps. The zero value waits.
const (
	// Wait ends the spawn as a transient failure: nothing is known.
	Wait Step = iota
	// Proceed creates the session.
	Proceed
	// Clear kills the dead incarnation that was seen, verifies it, and looks again.
	Clear
	// RefuseLive ends the spawn: a session lives there (a foreign or detached one too).
	RefuseLive
	// RefuseUnclearable ends the spawn: what is dead there cannot be cleared.
	RefuseUnclearable
)

var stepNames = [...]string{
	Wait: "wait", Proceed: "proceed", Clear: "clear", RefuseLive: "refuse: live", RefuseUnclearable: "refuse: unclearable",
}

// String returns the step's name.
func (s Step) String() string {
	if int(s) < len(stepNames) {
		return stepNames[s]
	}
	return "wait"
}

// Preflight says what a probe permits for a spawn. present means that tmux has answered "duplicate session" already, so that
// something holds the name even when the probe gets no answer. Only Dead without guests ever permits a kill.
func Preflight(state State, flags Flags, present bool) Step {
	switch state {
	case Absent:
		return Proceed
	case Live:
		return RefuseLive
	case Dead:
		if flags.Has(Guests) {
			return RefuseUnclearable
		}
		return Clear
	case Unknown:
		if present {
			return RefuseLive
		}
	}
	return Wait
}

// AfterClear says what a probe permits once the dead incarnation was ordered to be killed, whatever the kill itself reported.
func AfterClear(state State, flags Flags) Step {
	switch state {
	case Absent:
		return Proceed
	case Live:
		return RefuseLive
	case Dead:
		return RefuseUnclearable
	case Unknown:
	}
	return Wait
}
