package dispatch

import (
	"time"

	"muxpost.dev/muxpost/core/session"
)

// Action is what the dispatcher does next.
type Action uint8

// The actions.
const (
	// Finish stores the outcome; nothing follows.
	Finish Action = iota
	// LookUp asks the registry.
	LookUp
	// ProbeHost asks the host about the session and the delivery's phase.
	ProbeHost
	// Adopt records a session of ours that was found without a record: a living one with our stamp, or one whose conversation the
	// host knows though it is dead or absent.
	Adopt
	// Heal brings the record up to date with the living incarnation that was found.
	Heal
	// Register records the session that was started.
	Register
	// CountDeaths records that the session was seen dead, and asks how often that happened and whether the item is parked.
	CountDeaths
	// Park records that the item's session is not started again by itself.
	Park
	// Unpark takes that back, and the deaths until now count no more.
	Unpark
	// SpawnResume starts a session with the recorded conversation.
	SpawnResume
	// SpawnFresh starts a session with a new conversation.
	SpawnFresh
	// PasteText has the event pasted; the host settles it if it was typed before.
	PasteText
)

var actionNames = [...]string{
	Finish: "finish", LookUp: "look up", ProbeHost: "probe", Adopt: "adopt", Heal: "heal", Register: "register",
	CountDeaths: "count the deaths", Park: "park", Unpark: "unpark", SpawnResume: "spawn, resumed", SpawnFresh: "spawn, fresh", PasteText: "paste",
}

// String returns the action's name.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "finish"
}

// Outcome is the state of a delivery.
type Outcome uint8

// The outcomes. The zero value is the harmless one: asking again goes on.
const (
	// InProgress means that it is being worked on, or that the agent is still starting.
	InProgress Outcome = iota
	// Delivered means that it is in the conversation. Final.
	Delivered
	// Held means that something at a living session will pass.
	Held
	// Waiting means that something did not answer; nothing is known to be wrong, and no try is spent.
	Waiting
	// Failed means that it was answered with a failure; a try is spent.
	Failed
	// Dropped means ended with a reason that a person can act on. Final until it is re-opened on the record.
	Dropped
	// Unconfirmed means that whether it arrived is not known.
	Unconfirmed
)

var outcomeNames = [...]string{
	InProgress: "in_progress", Delivered: "delivered", Held: "held", Waiting: "waiting", Failed: "failed", Dropped: "dropped",
	Unconfirmed: "unconfirmed",
}

// Outcomes lists every outcome, for tests that must cover them all.
func Outcomes() []Outcome {
	return []Outcome{InProgress, Delivered, Held, Waiting, Failed, Dropped, Unconfirmed}
}

// String returns the outcome's name, as it is stored.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return outcomeNames[InProgress]
}

// ParseOutcome reads an outcome's name; an unknown one is InProgress and false.
func ParseOutcome(s string) (Outcome, bool) {
	for o, name := range outcomeNames {
		if name == s {
			return Outcome(o), true
		}
	}
	return InProgress, false
}

// Final reports whether the outcome is replayed to whoever asks again, instead of being decided again.
func (o Outcome) Final() bool { return o == Delivered || o == Dropped }

// How says by which way a delivery got into its conversation.
type How string

// The ways.
const (
	HowPasted  How = "pasted"
	HowSpawned How = "spawned"
	HowResumed How = "resumed"
	HowFresh   How = "respawned_fresh"
	HowAverted How = "averted"
	HowAlready How = "already"
)

// LookAgain says when a delivery with this outcome is worth asking for again. Zero means never for a final outcome, and leaves it to the
// asker's own backoff where something did not answer. A look costs some milliseconds of the host.
func LookAgain(o Outcome, r Reason) time.Duration {
	switch o {
	case InProgress:
		return time.Second
	case Held:
		if r == ReasonNotReady || r == ReasonBusy {
			return 2 * time.Second
		}
		return 10 * time.Second
	case Waiting:
		switch r {
		case ReasonLeaseHeld, ReasonDeadline:
			return 2 * time.Second
		case ReasonPaused, ReasonShadow, ReasonNoHost, ReasonHostDraining, ReasonSessionParked, ReasonSessionEnding, ReasonConversationInUse:
			return 60 * time.Second
		case ReasonUsageLimit:
			return 10 * time.Minute
		}
		return 0
	case Failed, Unconfirmed:
		return 10 * time.Second
	case Delivered, Dropped:
	}
	return 0
}

// Decision is the next action and why.
type Decision struct {
	Action Action
	// Reason is the stable name of the cause, from the list in reason.go.
	Reason Reason
	// WithPrompt says, for a spawn, that the event becomes the first prompt.
	WithPrompt bool
	// Outcome is set with Finish.
	Outcome Outcome
	// How is set with Finish and Delivered.
	How How
	// Events are emitted before the action is performed.
	Events []EventType
	// Withheld is set with ReasonShadow: what would have been done, in order, as far as it can be told without doing it.
	Withheld []Decision
}

// Decide returns the next step of a delivery. It is total: every value of Facts has a decision, and following decisions always
// ends, with at most one resume, one fresh spawn and one paste.
func Decide(f Facts) Decision {
	if f.Shadow {
		return rehearse(f)
	}
	return decide(f)
}

// decide is Decide without shadow mode.
func decide(f Facts) Decision {
	switch {
	case f.Paused:
		return finish(Waiting, ReasonPaused)
	case f.Registry == RegistryNotAsked:
		return Decision{Action: LookUp, Reason: ReasonStart}
	case f.Ending:
		return finish(Waiting, ReasonSessionEnding)
	case f.Registry == NoSession && f.TargetTaken:
		return spawnFailed(finish(Dropped, ReasonTargetCollision), true)
	case f.LeftBehind:
		// A fresh conversation knows nothing of it, and the old one cannot be asked: a person chooses.
		return finish(Unconfirmed, ReasonNoEvidence)
	case f.Probe == ProbeNotAsked:
		return Decision{Action: ProbeHost, Reason: ReasonStart}
	case f.Fresh != SpawnNotTried:
		return afterSpawn(f, f.Fresh, false)
	case f.Resume != SpawnNotTried:
		return afterSpawn(f, f.Resume, true)
	}
	switch {
	case f.Probe == ProbeUnreachable:
		return finish(Waiting, ReasonHostUnreachable)
	case f.Probe == ProbeNowhere:
		return finish(Waiting, ReasonNoHost)
	case f.Probe == ProbeLive:
		return live(f)
	case f.Phase == session.Taken:
		// The agent's own record says that it arrived: nothing is left to do, whatever became of the session.
		return delivered(HowAlready)
	}
	switch f.Probe {
	case ProbeForeign, ProbeGuests:
		return occupied(f)
	case ProbeDetached:
		return finish(Waiting, ReasonSessionDetached)
	case ProbeDead, ProbeAbsent:
		return bringBack(f)
	}
	// Unknown: the guard decides inside the server whether a paste may land. Without a record there is nobody to talk to yet.
	if f.Registry == Recorded {
		return paste(f, HowPasted)
	}
	return finish(Waiting, ReasonTmuxNoAnswer)
}

// live decides for a living session of ours: make the record fit, then paste.
func live(f Facts) Decision {
	switch {
	case f.Registry == NoSession && !f.Stored:
		return Decision{Action: Adopt, Reason: ReasonStampProvesOurs, Events: []EventType{SessionRegistered}}
	case f.Registry == Recorded && !f.SameIncarnation && !f.Stored:
		return Decision{Action: Heal, Reason: ReasonAnotherIncarnation, Events: []EventType{SessionRegistered}}
	}
	return paste(f, HowPasted)
}

// bringBack decides for a session that is proven dead or absent: start it, with its conversation where there is one.
func bringBack(f Facts) Decision {
	switch {
	case f.Draining:
		return finish(Waiting, ReasonHostDraining)
	case f.Registry == NoSession && f.HostKnows:
		return Decision{Action: Adopt, Reason: ReasonConversationKnown, Events: []EventType{SessionRegistered}}
	case f.Registry == NoSession && f.SpawnForbidden:
		return finish(Dropped, ReasonSpawnForbidden)
	case f.Starts == StartsNotAsked:
		return Decision{Action: CountDeaths, Reason: ReasonSessionEnded}
	case f.Starts == StartsSpent:
		return Decision{Action: Park, Reason: ReasonSessionParked, Events: []EventType{SessionParked}}
	case f.Starts == StartsDue:
		return Decision{Action: Unpark, Reason: ReasonSessionUnparked, Events: []EventType{SessionUnparked}}
	case f.Starts != StartsAllowed:
		return finish(Waiting, ReasonSessionParked)
	case f.Registry == NoSession:
		return Decision{Action: SpawnFresh, Reason: ReasonFirst, WithPrompt: f.promptAllowed()}
	}
	switch f.Resumable {
	case ResumeNoID:
		return Decision{Action: SpawnFresh, Reason: ReasonNoConversation, WithPrompt: f.promptAllowed()}
	case ResumeOff:
		return Decision{Action: SpawnFresh, Reason: ReasonByConfiguration, WithPrompt: f.promptAllowed()}
	case ResumeElsewhere:
		return Decision{Action: SpawnFresh, Reason: ReasonEvacuated, WithPrompt: f.promptAllowed()}
	case ResumeUnsupported:
		return freshInstead(f, ReasonCannotResume)
	case ResumeMalformed:
		return freshInstead(f, ReasonBadConversationID)
	}
	return Decision{Action: SpawnResume, Reason: ReasonSessionEnded, WithPrompt: f.promptAllowed()}
}

// freshInstead starts a fresh conversation in place of a resume that was wanted and could not be had.
func freshInstead(f Facts, why Reason) Decision {
	return Decision{Action: SpawnFresh, Reason: why, WithPrompt: f.promptAllowed(), Events: []EventType{SessionResumeFailed}}
}

// afterSpawn decides on what came of a resume, or of a fresh spawn.
func afterSpawn(f Facts, s Spawn, resume bool) Decision {
	first := f.Registry == NoSession
	how, event := HowFresh, SessionRespawned
	switch {
	case resume:
		how = HowResumed
	case first:
		how, event = HowSpawned, SessionSpawned
	}
	switch s {
	case SpawnStarted, SpawnTaken:
		if !f.Stored {
			return Decision{Action: Register, Reason: ReasonStarted, Events: []EventType{event}}
		}
		if s == SpawnTaken {
			return delivered(how)
		}
		return paste(f, how)
	case SpawnOccupied:
		if first && !f.Stored {
			return Decision{Action: Adopt, Reason: ReasonStampProvesOurs, Events: []EventType{SessionRegistered}}
		}
		if first {
			return paste(f, HowPasted)
		}
		return paste(f, HowAverted)
	case SpawnUnclearable:
		return occupied(f)
	case SpawnSilent:
		return finish(Waiting, ReasonSpawnNoAnswer)
	case SpawnNoCapacity:
		return finish(Waiting, ReasonNoCapacity)
	case SpawnLimited:
		// A fresh conversation would meet it as well, and the old one would be lost for nothing.
		return finish(Waiting, ReasonUsageLimit)
	case SpawnNotLoggedIn:
		return spawnFailed(finish(Dropped, ReasonNotLoggedIn), first)
	case SpawnRefused:
		// A fresh conversation would be refused as well.
		return spawnFailed(finish(Failed, ReasonSpawnRefused), first)
	}
	// It was answered, and there is no session of ours.
	if resume && s == SpawnInUse {
		return finish(Waiting, ReasonConversationInUse) // whoever has it may close it, and nothing of it is lost
	}
	if resume {
		return freshInstead(f, ReasonResumeFailed)
	}
	why := ReasonSpawnError
	if s == SpawnDied || s == SpawnInUse {
		why = ReasonHarnessExited
	}
	return spawnFailed(finish(Failed, why), first)
}

// spawnFailed adds the event that a first spawn failed.
func spawnFailed(d Decision, first bool) Decision {
	if first {
		d.Events = append([]EventType{SessionSpawnFailed}, d.Events...)
	}
	return d
}

// paste decides on the paste: try it, or say what came of it. how is the way it counts as if it lands.
func paste(f Facts, how How) Decision {
	starting := how == HowSpawned || how == HowResumed || how == HowFresh
	switch f.Paste {
	case PasteNotTried:
		return Decision{Action: PasteText, Reason: pasteReason(how)}
	case PasteSubmitted:
		return delivered(how)
	case PasteAlready:
		if starting {
			// The first prompt's own evidence: it arrived by the spawn of this run.
			return delivered(how)
		}
		return delivered(HowAlready)
	case PasteHeld:
		return finish(Held, ReasonSessionHolds)
	case PasteBusy:
		return finish(Held, ReasonBusy)
	case PasteNotReady:
		if starting {
			return finish(InProgress, ReasonStarting)
		}
		return finish(Held, ReasonNotReady)
	case PasteRefusedGone:
		return finish(Failed, ReasonSessionEnded)
	case PasteRefusedForeign:
		return occupied(f)
	case PasteUnconfirmed:
		if starting {
			return finish(InProgress, ReasonStarting)
		}
		return finish(Unconfirmed, ReasonNoEvidence)
	case PasteSilent:
		return finish(Waiting, ReasonTmuxNoAnswer)
	case PasteRefusedOther:
		return finish(Failed, ReasonPasteRefused)
	}
	return finish(Failed, ReasonPasteError)
}

func pasteReason(how How) Reason {
	switch how {
	case HowAverted:
		return ReasonOccupantLives
	case HowPasted:
		return ReasonSessionLives
	}
	return ReasonStarted
}

// delivered is the good end.
func delivered(how How) Decision {
	d := finish(Delivered, ReasonNone)
	d.How = how
	if how == HowAverted {
		d.Events = append([]EventType{SessionRespawnAverted}, d.Events...)
	}
	return d
}

// occupied ends a delivery whose session's name belongs to somebody else. Nothing is killed; a person is told how to free it.
func occupied(f Facts) Decision {
	d := finish(Dropped, ReasonSessionOccupied)
	if f.Registry == NoSession {
		d.Events = append([]EventType{SessionSpawnFailed}, d.Events...)
	}
	return d
}

// finish ends the run with an outcome and its event.
func finish(o Outcome, r Reason) Decision {
	d := Decision{Action: Finish, Outcome: o, Reason: r}
	switch o {
	case Delivered:
		d.Events = []EventType{DispatchSucceeded}
	case Failed:
		d.Events = []EventType{DispatchFailed}
	case Dropped:
		d.Events = []EventType{DispatchDropped}
	case InProgress, Held, Waiting, Unconfirmed:
		// Nothing happened that the record of the delivery does not say; a row a minute would only hide what did.
	}
	return d
}
