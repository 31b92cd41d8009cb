package dispatch

import "muxpost.dev/muxpost/core/session"

// Registry says what the registry of sessions holds for the work item.
type Registry uint8

// What the registry can hold.
const (
	RegistryNotAsked Registry = iota
	// NoSession means that no session was ever recorded for the item.
	NoSession
	// Recorded means that a session is recorded.
	Recorded
)

// Probe says what the host answered about the session.
type Probe uint8

// What a probe can find.
const (
	ProbeNotAsked Probe = iota
	// ProbeNowhere means that the item has no host yet, and that none may take it.
	ProbeNowhere
	// ProbeUnreachable means that the host did not answer at all.
	ProbeUnreachable
	// ProbeUnknown means that the host answered that tmux did not.
	ProbeUnknown
	// ProbeLive is our own living session (under another name too: it is addressed by its pane).
	ProbeLive
	// ProbeForeign is a session that is not ours.
	ProbeForeign
	// ProbeDetached is a living agent whose session is gone.
	ProbeDetached
	// ProbeDead is our own dead session.
	ProbeDead
	// ProbeGuests is our own dead session with somebody else living in it.
	ProbeGuests
	// ProbeAbsent is no session.
	ProbeAbsent
)

// ProbeOf returns the probe that a state and its flags stand for.
func ProbeOf(state session.State, flags session.Flags) Probe {
	switch {
	case state == session.Live && flags.Has(session.Foreign):
		return ProbeForeign
	case state == session.Live && flags.Has(session.Detached):
		return ProbeDetached
	case state == session.Live:
		return ProbeLive
	case state == session.Dead && flags.Has(session.Guests):
		return ProbeGuests
	case state == session.Dead:
		return ProbeDead
	case state == session.Absent:
		return ProbeAbsent
	}
	return ProbeUnknown
}

// Free reports whether a session's name can be had as far as the probe tells: nothing is there, or what is ours. What nobody answered
// for is not free.
func (p Probe) Free() bool { return p == ProbeLive || p == ProbeDead || p == ProbeAbsent }

// Resumable says whether the recorded conversation can be asked for.
type Resumable uint8

// Whether a resume can be asked for.
const (
	// ResumeYes means that an id is recorded and the harness can resume it.
	ResumeYes Resumable = iota
	// ResumeNoID means that no conversation id is recorded.
	ResumeNoID
	// ResumeOff means that the configuration wants fresh conversations.
	ResumeOff
	// ResumeUnsupported means that the harness has no interactive resume.
	ResumeUnsupported
	// ResumeElsewhere means that the conversation is on a host from which the item was moved away.
	ResumeElsewhere
	// ResumeMalformed means that the recorded id could be read as a flag or a path; it never reaches a command line.
	ResumeMalformed
)

// Spawn says what came of a spawn.
type Spawn uint8

// What can come of a spawn.
const (
	SpawnNotTried Spawn = iota
	// SpawnStarted means that the agent runs; its prompt is to be confirmed or pasted.
	SpawnStarted
	// SpawnTaken means that the agent runs and its own record names the prompt.
	SpawnTaken
	// SpawnOccupied means that a living session of ours holds the name.
	SpawnOccupied
	// SpawnUnclearable means that something else holds the name: a foreign session, guests, remains that cannot be cleared.
	SpawnUnclearable
	// SpawnDied means that the harness ended within its survival window.
	SpawnDied
	// SpawnRefused means that the host will not start it at all (no such harness, no such directory).
	SpawnRefused
	// SpawnCannotResume means that the host will not start it with this conversation: its harness cannot, or the id is malformed.
	SpawnCannotResume
	// SpawnSilent means that nobody answered, or nothing could be done now.
	SpawnSilent
	// SpawnFailed means that the host answered with a failure.
	SpawnFailed
	// SpawnNoCapacity means that as many agents live on the host as it may have, and nothing was touched.
	SpawnNoCapacity
	// SpawnInUse means that the harness ended within its survival window, because the conversation is open in another process.
	SpawnInUse
	// SpawnLimited means that it did, because a limit of use is reached.
	SpawnLimited
	// SpawnNotLoggedIn means that it did, because nobody is logged in, or its key is refused.
	SpawnNotLoggedIn
)

// Starts says whether a session that is dead or absent may be started, as Breaker.Judge says.
type Starts uint8

// Whether a session may be started.
const (
	StartsNotAsked Starts = iota
	// StartsAllowed means that nothing speaks against it.
	StartsAllowed
	// StartsSpent means that its agents died too often within too short a time: the item is to be parked.
	StartsSpent
	// StartsParked means that the item is parked.
	StartsParked
	// StartsDue means that the item is parked, and that its time is over or a version is running that had no part in it.
	StartsDue
)

// HasCause reports whether a harness ended for a cause that it named and that has a rule of its own.
func (s Spawn) HasCause() bool { return s == SpawnInUse || s == SpawnLimited || s == SpawnNotLoggedIn }

// Paste says what came of a paste.
type Paste uint8

// What can come of a paste.
const (
	PasteNotTried Paste = iota
	PasteSubmitted
	PasteAlready
	// PasteHeld means that something at the living session will pass.
	PasteHeld
	// PasteNotReady means held because the composer is not there yet.
	PasteNotReady
	// PasteBusy means held because a turn runs.
	PasteBusy
	// PasteRefusedGone means answered dead or absent.
	PasteRefusedGone
	// PasteRefusedForeign means that the session is not ours.
	PasteRefusedForeign
	// PasteRefusedOther means refused for another reason: another incarnation, no bracketed paste.
	PasteRefusedOther
	// PasteUnconfirmed means that whether it arrived is not known.
	PasteUnconfirmed
	// PasteSilent means that nobody answered.
	PasteSilent
	// PasteFailed means that the host answered with a failure.
	PasteFailed
)

// Facts is what is known of one delivery. The zero value knows nothing.
type Facts struct {
	// Paused is true when an operator holds back the deliveries of this work item, or of all. It is known before all else.
	Paused bool
	// Shadow is true when nothing shall be done but to look and to say what would be done.
	Shadow   bool
	Registry Registry
	// Ending is true when a person ordered the end of the item's session, and that was not carried out yet. It is known with the registry.
	Ending bool
	// TargetTaken is true when the session of another work item is recorded under the name that this one would have. It counts
	// only with NoSession.
	TargetTaken bool
	Probe       Probe
	// SameIncarnation is true when the probe found the recorded incarnation. It counts only with ProbeLive and Recorded.
	SameIncarnation bool
	// Phase is the delivery's phase at the host, as the probe found it.
	Phase session.Phase
	// JournalUnreadable is true when the host could not read its journal, so that Phase None proves nothing.
	JournalUnreadable bool
	// HostKnows is true when the host knows the conversation of our own session that is dead or absent. It counts only with
	// NoSession: the session was started and its record was not written.
	HostKnows bool
	// Resumable says whether the recorded conversation, or the one that the host knows, can be asked for. It counts only with
	// Recorded and HostKnows.
	Resumable Resumable
	// LeftBehind is true when the delivery may have arrived in a conversation from which the item was moved away.
	LeftBehind bool
	// Draining is true when an operator wants nothing to start on the host.
	Draining bool
	// SpawnForbidden is true when policy allows no first spawn for this event.
	SpawnForbidden bool
	// Stored is true when the registry was brought up to date with the session that was found or started.
	Stored bool
	// Starts counts only with a session that is dead or absent.
	Starts Starts
	Resume Spawn
	Fresh  Spawn
	Paste  Paste
}

// WithRecord returns the facts once Adopt, Heal or Register has written its record. A session that is adopted dead is a recorded
// one from then on, and what is started in its place is recorded anew.
func (f Facts) WithRecord() Facts {
	if f.Registry == NoSession && f.HostKnows && f.Fresh == SpawnNotTried && f.gone() {
		f.Registry = Recorded
		return f
	}
	f.Stored = true
	return f
}

// gone reports whether the session is proven dead or absent.
func (f Facts) gone() bool { return f.Probe == ProbeDead || f.Probe == ProbeAbsent }

// promptAllowed reports whether the event may become a first prompt: only when it cannot have arrived before. A resume that died or failed
// may have taken it along; then the fresh session starts without it, and the paste that follows is settled by evidence.
func (f Facts) promptAllowed() bool {
	return !f.JournalUnreadable && !f.Phase.MayHaveArrived() && (f.Resume == SpawnNotTried || f.Resume == SpawnCannotResume)
}
