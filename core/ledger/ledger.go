// Package ledger holds the rules of the ledger of events: how an event is known (Key, DeliveryID), what states it passes through,
// what an answer from the dispatcher does to it (Apply), when an event that gave up gets another budget (Rearm), what its deletion
// upstream or a person's word does (Cancel, CancelByHand), which become one text (Coalesce), which is an order to muxpost itself
// (ParseCommand), and what is told on the ticket (Posts, Repost). Only answers spend a try: an outage spends none.
//
// It performs nothing and reads no clock; it knows nothing of Postgres, GitHub or sessions.
package ledger

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"
)

// The providers of events, as they stand in natural keys.
const (
	// ProviderGitHub is a server that speaks GitHub's REST API.
	ProviderGitHub = "github"
	// SourceManual is both provider and source of events by hand; no source of the configuration may have the name.
	SourceManual = "manual"
)

// Key is the natural key of an event: the same whichever way the event came in.
type Key struct {
	// Provider is the kind of source, ProviderGitHub or SourceManual.
	Provider string
	// Host is the provider's host.
	Host string
	// Kind is what kind of object it is about: "opened", "comment", "review", "review_comment", "state", "check", "labelled", "message".
	Kind string
	// ObjectID is the provider's own id of the object.
	ObjectID string
	// Revision tells versions of one object apart; see Revision.
	Revision string
}

// String returns the key in a form that can be a unique column: no two keys share one.
func (k Key) String() string {
	parts := []string{k.Provider, k.Host, k.Kind, k.ObjectID, k.Revision}
	for i, p := range parts {
		parts[i] = strings.NewReplacer("\\", "\\\\", "|", "\\|").Replace(p)
	}
	return strings.Join(parts, "|")
}

// Revision returns the revision of an object from its normalised content: upstream times have a resolution of one second, so two
// edits within one second can be told apart only by what they say.
func Revision(content ...string) string { return digest(16, content...) }

// DeliveryID returns the id under which an event is delivered to a work item: derived, so that a database restored from last night
// asks about the same id and hears that it was delivered.
func DeliveryID(k Key, workItem string) string { return "d" + digest(24, k.String(), workItem) }

// digest returns n base32 digits of a hash in which no two lists of parts are written alike.
func digest(n int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:n]
}

// State is the state of an event in the ledger.
type State uint8

// The states.
const (
	// Pending waits for its turn or its next look.
	Pending State = iota
	// Leased is being delivered by some poller, until its lease ends.
	Leased
	// Held waits at a living session for something that will pass.
	Held
	// Delivered is in the conversation.
	Delivered
	// Settled ended without a delivery by policy, or without proof of one.
	Settled
	// Dropped was ended by the dispatcher for a reason that a person can act on.
	Dropped
	// GaveUp has spent its tries.
	GaveUp
	// Cancelled was deleted or superseded upstream, or cancelled by a person.
	Cancelled
)

var stateNames = [...]string{
	Pending: "pending", Leased: "leased", Held: "held", Delivered: "delivered", Settled: "settled", Dropped: "dropped",
	GaveUp: "gave_up", Cancelled: "cancelled",
}

// States lists every state, for tests that must cover them all.
func States() []State {
	return []State{Pending, Leased, Held, Delivered, Settled, Dropped, GaveUp, Cancelled}
}

// String returns the state's name, as it is stored.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[Pending]
}

// ParseState reads a state's name; an unknown one is Pending and false.
func ParseState(s string) (State, bool) {
	for state, name := range stateNames {
		if name == s {
			return State(state), true
		}
	}
	return Pending, false
}

// Waits reports whether the event is still on its way, so that later events of its work item stay behind it.
func (s State) Waits() bool { return s == Pending || s == Leased || s == Held }

// Answer is what became of asking the dispatcher.
type Answer uint8

// What can become of asking.
const (
	// Silent means that nobody answered, or that somebody further on did not.
	Silent Answer = iota
	// Arrived means that it is in the conversation.
	Arrived
	// Working means that it is being worked on.
	Working
	// Holding means that something at a living session will pass.
	Holding
	// Failing means that it was answered with a failure.
	Failing
	// Dropping means that it was ended with a reason.
	Dropping
	// Unproven means that it was typed and nothing shows whether it arrived.
	Unproven
)

// Answers lists every answer, for tests that must cover them all.
func Answers() []Answer {
	return []Answer{Silent, Arrived, Working, Holding, Failing, Dropping, Unproven}
}

const (
	// DefaultBudget is how many tries an event may spend.
	DefaultBudget = 3
	// EvidenceTime is how long evidence of an unproven delivery is asked for.
	EvidenceTime = 10 * time.Minute
	// HeldLong is how long an event may be held before somebody is told.
	HeldLong = 15 * time.Minute
	// LeaseTime is how long one poller may hold an event without renewing; a dead one is replaced when it ends.
	LeaseTime = 30 * time.Second
	// SweepTime is how long an event stays dropped because its session's name was occupied, before it is looked whether the name is free.
	SweepTime = 5 * time.Minute

	firstPause = 5 * time.Second
	// maxPause is the longest pause after a silence: somebody has to find out that it is over.
	maxPause = time.Minute
)

// failurePauses are the pauses after answered failures, the last one for all that follow. What failed just so is likely to fail again: with each
// failure it is waited longer, so that a cause of hours does not spend a large budget within minutes.
func failurePauses() []time.Duration {
	return []time.Duration{firstPause, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour}
}

// The ledger's own reasons; others come from policy and from the dispatcher.
const (
	// ReasonUnconfirmed: settled, because nothing ever showed whether it arrived.
	ReasonUnconfirmed = "unconfirmed"
	// ReasonBaselined: settled, because it was there before its item was first seen.
	ReasonBaselined = "baselined"
	// ReasonUnauthorised: settled, because its author may not steer.
	ReasonUnauthorised = "unauthorised"
	// ReasonDeleted: cancelled, because it was deleted upstream.
	ReasonDeleted = "deleted_upstream"
	// ReasonByHand: cancelled, by a person's word.
	ReasonByHand = "cancelled_by_hand"
	// ReasonRearmed: pending again after it gave up, because another version is running.
	ReasonRearmed = "rearmed"
	// ReasonCoalesced: settled, because what it says is a part of the text of an earlier event of its item.
	ReasonCoalesced = "coalesced"
	// ReasonCommand: settled, because it was an order to muxpost itself.
	ReasonCommand = "command"
	// ReasonSessionOccupied is the dispatcher's, for an event that was dropped because of who lives under its session's name.
	ReasonSessionOccupied = "session-occupied"
	// ReasonPaused is the dispatcher's, for an event that waits because an operator holds back its item, or all.
	ReasonPaused = "paused"
)

// Unhurried are the dispatcher's reasons of waits that no change at a session shortens: the agent was started, ended at once and would again, which
// is itself a change there.
func Unhurried() []string { return []string{"conversation_in_use", "usage_limit"} }

// Progress is how far an event has come.
type Progress struct {
	State State
	// Tries is how many tries were spent.
	Tries int
	// Budget is how many may be spent; zero means DefaultBudget.
	Budget int
	// Silences is how often in a row nobody answered.
	Silences int
	// UnprovenSince is when it was first unproven; zero when it is not.
	UnprovenSince time.Time
	// HeldSince is since when it has been held, through silence too; zero when it is not.
	HeldSince time.Time
	// NextLook is when it is looked at next. In a state that does not wait it is zero, but for one of an occupied name: then it is when it
	// is looked whether the name is free.
	NextLook time.Time
	// Reason is the stable name of why it is in this state; empty for pending and delivered.
	Reason string
}

// Apply returns the progress of an event after an answer. Answers are of four classes: what ends it (arrived, dropping), what spends a try and
// waits ever longer (failing), what waits and costs nothing however long it lasts (silent, working, holding), and what waits ten minutes for
// evidence (unproven). reason is the answer's own, after is when the answer said to ask again
// (zero when it did not), and jitter, from 0 to 1, spreads the looks of many events.
func Apply(p Progress, a Answer, reason string, after time.Duration, now time.Time, jitter float64) Progress {
	if p.Budget == 0 {
		p.Budget = DefaultBudget
	}
	p.Reason = reason
	if a != Silent {
		p.Silences = 0
	}
	if a != Unproven {
		p.UnprovenSince = time.Time{}
	}
	if a != Holding && a != Silent {
		p.HeldSince = time.Time{}
	}
	switch a {
	case Arrived:
		return p.end(Delivered, "")
	case Dropping:
		if p = p.end(Dropped, reason); p.Occupied() {
			p.NextLook = now.Add(SweepTime)
		}
		return p
	case Failing:
		p.Tries++
		if p.Tries >= p.Budget {
			return p.end(GaveUp, reason)
		}
		return p.wait(Pending, max(after, failurePause(p.Tries)), now, jitter)
	case Holding:
		if p.HeldSince.IsZero() {
			p.HeldSince = now
		}
		return p.wait(Held, orDefault(after, maxPause), now, jitter)
	case Unproven:
		if p.UnprovenSince.IsZero() {
			p.UnprovenSince = now
		}
		if now.Sub(p.UnprovenSince) >= EvidenceTime {
			return p.end(Settled, ReasonUnconfirmed)
		}
		return p.wait(Pending, orDefault(after, 10*time.Second), now, jitter)
	case Working:
		return p.wait(Pending, orDefault(after, time.Second), now, 0)
	case Silent:
	}
	p.Silences++
	return p.wait(Pending, orDefault(after, pause(p.Silences)), now, jitter)
}

// Occupied reports whether the event was dropped because of who lives under its session's name.
func (p Progress) Occupied() bool { return p.State == Dropped && p.Reason == ReasonSessionOccupied }

func (p Progress) end(s State, reason string) Progress {
	p.State, p.Reason, p.NextLook, p.UnprovenSince, p.HeldSince = s, reason, time.Time{}, time.Time{}, time.Time{}
	return p
}

// wait sets the next look, up to a quarter later than asked, so that what failed together does not come back together.
func (p Progress) wait(s State, d time.Duration, now time.Time, jitter float64) Progress {
	p.State = s
	p.NextLook = now.Add(d + time.Duration(float64(d)/4*min(max(jitter, 0), 1)))
	return p
}

// failurePause is the pause after the nth failure.
func failurePause(n int) time.Duration {
	all := failurePauses()
	return all[min(max(n, 1), len(all))-1]
}

// pause doubles from firstPause up to maxPause.
func pause(n int) time.Duration {
	d := firstPause
	for range n - 1 {
		if d *= 2; d >= maxPause {
			return maxPause
		}
	}
	return d
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
