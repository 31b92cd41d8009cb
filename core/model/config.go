package model

import (
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
)

// Config says which rules are checked against which faults.
type Config struct {
	Core  Core
	Rules Rules
	// Limits says how often each fault may strike, and Faults how many may strike in all.
	Limits map[Fault]int
	Faults int
	// NoTranscript is a harness that leaves no record of its conversations that could be read: the screen is all the evidence.
	NoTranscript bool
	// MaxStates ends a search that grew out of hand; zero is no limit.
	MaxStates int
}

// Core holds the rules that are under test, so that a test can break one.
type Core struct {
	Decide     func(dispatch.Facts) dispatch.Decision
	Judge      func(session.Sight) (session.State, session.Flags, string)
	Preflight  func(s session.State, f session.Flags, present bool) session.Step
	AfterClear func(session.State, session.Flags) session.Step
	Apply      func(p ledger.Progress, a ledger.Answer, reason string, after time.Duration, now time.Time, jitter float64) ledger.Progress
}

// RealCore returns the rules as they are.
func RealCore() Core {
	return Core{
		Decide: dispatch.Decide, Judge: session.Judge, Preflight: session.Preflight, AfterClear: session.AfterClear, Apply: ledger.Apply,
	}
}

// Rules are the parts of the protocol that a host keeps and that are no functions of core. Each can be left out.
type Rules struct {
	// Generation: an act that got no answer is fenced by a new generation before anything else happens.
	Generation bool
	// Journal: a session's end does not end the memory of what was submitted to it.
	Journal bool
	// GuardPhase, GuardToken and GuardDialog: the command lists check the ring, the fencing token (and so does the host when it accepts
	// an order), and for a CR the dialogs.
	GuardPhase  bool
	GuardToken  bool
	GuardDialog bool
	// GuardDead: the list that clears a session checks that its panes are dead.
	GuardDead bool
	// GuardDraft: the lists that type see whether the composer still holds what was seen there, nothing or the text, and nothing else.
	GuardDraft bool
	// LookFirst: nothing is pasted into a composer that is not empty, nor submitted when other text stands there.
	LookFirst bool
	// RevokeOld: with every spawn that the host accepts, the spec of the incarnation it remembers is taken back, so that a start that is
	// still on its way from an earlier life of tmuxd comes to nothing.
	RevokeOld bool
	// RememberToken: the highest token is remembered for the session's name, not only in the session.
	RememberToken bool
	// LookAfterOwning: what was seen before the generation was taken over is looked at again afterwards: a list of an earlier life may
	// have run in between, and what it wrote must not be overwritten.
	LookAfterOwning bool
	// RecordFirst: the wrapper's first record, before it starts the harness, already means that the prompt may have been read.
	RecordFirst bool
	// WaitBusy: a text that left the composer without a CR of ours is not pasted again while a turn runs: a person may have sent it,
	// and the agent records it only after the turn.
	WaitBusy bool
	// EvidenceOfPasted: of a text that the journal has as pasted the transcript is asked as well: a person may have sent it.
	EvidenceOfPasted bool
	// AwaitServer: nothing is created while the process of the remembered server lives and shows no session.
	AwaitServer bool
	// ClearAgain: remains are unclearable only where the very incarnation that was to be cleared still stands after an answer. Others,
	// and those whose clearing came to nothing, are tried again.
	ClearAgain bool
	// HoldStanding: a delivery whose text still stands in the composer after its CR is held, not unconfirmed: else its event ends, and
	// what is left of it holds back the next one for ever.
	HoldStanding bool
	// AskBoth: where the session holds another incarnation than the remembered one, the processes of both are asked for.
	AskBoth bool
}

// AllRules returns rules that leave nothing out.
func AllRules() Rules {
	return Rules{
		Generation: true, Journal: true, GuardPhase: true, GuardToken: true, GuardDialog: true, GuardDead: true, GuardDraft: true,
		LookFirst: true, RevokeOld: true, RememberToken: true, LookAfterOwning: true, RecordFirst: true, WaitBusy: true,
		EvidenceOfPasted: true, AwaitServer: true, ClearAgain: true, HoldStanding: true, AskBoth: true,
	}
}

// Fault is a kind of thing that goes wrong.
type Fault uint8

// The faults. What people do is among them: it comes at the worst moment.
const (
	none Fault = iota
	// HostCrash: tmuxd is killed and comes back with empty memory. Clients of tmux that it had started may live on.
	HostCrash
	// RunCrash: a dispatcher is killed in the middle of a run.
	RunCrash
	// NoAnswer: the dispatcher gives up on a request, which goes on its way, or whose answer is lost.
	NoAnswer
	// Twice: a request arrives a second time.
	Twice
	// PollerGone: the poller is killed, or gives up on the dispatcher, which goes on.
	PollerGone
	// LeaseLost: a run takes so long that its lease ends.
	LeaseLost
	// Unreachable: a probe gets no answer.
	Unreachable
	// ActLate: a command list gets no answer and stays on its way, to run later.
	ActLate
	// ActUnheard: a command list runs and its answer is lost.
	ActUnheard
	// Silence: the tmux server answers nothing for a time, and acts that are sent meanwhile stay on their way. Its socket may be gone
	// as well.
	Silence
	// ServerDeath: the tmux server is killed; the agent is hung up and ends somewhat later.
	ServerDeath
	// AgentDeath: the agent is killed, or ends.
	AgentDeath
	// Dialog: the agent asks its person something, and swallows what is pasted meanwhile.
	Dialog
	// Swallow: the agent ignores a CR.
	Swallow
	// Person: a person types into the composer, or sends what stands there.
	Person
	// Deaths: the item's agents have died so often that it is parked before the next start. How often, and how soon, is not modelled.
	Deaths
	// Restore: the database is set back to an earlier state.
	Restore

	kinds

	// The faults from here on are of the model of the floor alone.

	// Reconnect: a connection between a dispatcher and the host breaks.
	Reconnect = kinds + iota - Restore - 1
	// FloorUnheard: the answer to a floor is lost, or the floor stays on its way, and the dispatcher counts the connection as broken.
	FloorUnheard
	// FilesLost: the host is started again and has lost its file of the highest token, and maybe that of the floor.
	FilesLost

	floorKinds
)

// EveryFault lets each fault strike about as often as it can matter, but for a restored database, which makes the search several times
// as large.
func EveryFault() map[Fault]int {
	limits := map[Fault]int{}
	for f := none + 1; f < Restore; f++ {
		limits[f] = 1
	}
	limits[HostCrash], limits[AgentDeath] = 2, 2
	return limits
}
