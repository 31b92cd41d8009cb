// Package attention says what needs a person, in one list: events that ended without being delivered or proven, events that wait
// too long, agents that lost their sessions, sources that cannot be read, and what operators left switched off.
//
// It judges what the services answered and asks nobody. What the reasons mean is the package why's.
package attention

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/cmd/muxpost/internal/why"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// How long something may last before a person is asked.
const (
	MaxHeld    = 15 * time.Minute
	MaxWaiting = time.Hour
	MaxPaused  = 24 * time.Hour
	MaxAway    = 5 * time.Minute
)

// Kind says what is the matter.
type Kind string

// The kinds, in the order of the list.
const (
	// Dropped: the dispatcher ended the event for a reason that a person can act on.
	Dropped Kind = "dropped"
	// GaveUp: the event's tries are spent.
	GaveUp Kind = "gave_up"
	// Unconfirmed: it was typed, and nothing shows whether it arrived.
	Unconfirmed Kind = "unconfirmed"
	// Held: a living session could not take it for longer than MaxHeld.
	Held Kind = "held"
	// Waiting: it came in longer than MaxWaiting ago and is still on its way.
	Waiting Kind = "waiting"
	// Parked: an item's agents died too often to be started again by themselves.
	Parked Kind = "parked"
	// Ending: an agent's end was ordered, and waits for its host.
	Ending Kind = "ending"
	// Approval: an agent waits for a person's answer to a dialog.
	Approval Kind = "approval"
	// Human: an agent cannot go on without a person, and that is no approval.
	Human Kind = "needs_human"
	// Detached: an agent's process lives on without its session.
	Detached Kind = "detached"
	// Idle: an agent has waited for a message for longer than the configuration lets pass without a word.
	Idle Kind = "idle"
	// Orphan: an agent lives whose session nobody records.
	Orphan Kind = "orphan"
	// Host: a host has not been reached for longer than MaxAway.
	Host Kind = "host"
	// Superseded: a session was left behind on a host that was given up, and the host is back.
	Superseded Kind = "superseded"
	// Run: the latest run of a team failed, or one has waited for longer than MaxWaiting for what is not its own work.
	Run Kind = "run"
	// Source: a source cannot be read.
	Source Kind = "source"
	// Paused: a pause has stood for longer than MaxPaused.
	Paused Kind = "paused"
	// Shadow: events have waited for longer than MaxWaiting because the dispatcher only looks.
	Shadow Kind = "shadow"
)

// Kinds lists every kind, in the order of the list.
func Kinds() []Kind {
	return []Kind{Dropped, GaveUp, Unconfirmed, Held, Waiting, Parked, Ending, Approval, Human, Detached, Idle, Orphan, Host, Superseded, Run, Source, Paused, Shadow}
}

// Entry is one thing that needs a person.
type Entry struct {
	// ID names it from one look to the next: the delivery's, where it is about one.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// State is another one once what is the matter has changed, and the same as long as it only lasts.
	State string `json:"state"`
	// Subject is the work item; of a source its name, and "all" where it concerns all work items.
	Subject    string `json:"subject"`
	DeliveryID string `json:"delivery_id,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Pull is the pull request of the event, where that is not the work item itself.
	Pull string `json:"pull,omitempty"`
	// Since is when it began; nil when that is not known.
	Since *time.Time `json:"since,omitempty"`
	// Why is a sentence, and Remedy what to do, both without a full stop.
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
	// Look is the command that shows more.
	Look string `json:"look"`
	// Acknowledged is set when a person has said to have seen it in this state.
	Acknowledged *Acknowledged `json:"acknowledged,omitempty"`

	unsteady bool // Since is that of the latest look, and not of the state
}

// Acknowledged is a person's word to have seen an entry.
type Acknowledged struct {
	Who    string     `json:"who"`
	Reason string     `json:"reason,omitempty"`
	At     *time.Time `json:"at,omitempty"`
}

// Known is what the services answered.
type Known struct {
	// Ended and Waiting are rows of the ledger: those dropped, given up or settled, and those still on their way.
	Ended, Waiting []*pollerv1.LedgerEntry
	// Deliveries are the dispatcher's, as many as are known.
	Deliveries []*dispatcherv1.Delivery
	Sessions   []*dispatcherv1.Session
	Sources    []*pollerv1.Source
	Pauses     []*dispatcherv1.Pause
	Parks      []*dispatcherv1.Park
	Orphans    []*dispatcherv1.Orphan
	Hosts      []*dispatcherv1.Host
	Superseded []*dispatcherv1.Superseded
	// Runs are those of teams, newest first.
	Runs []*teamv1.Run
	// Acknowledgements are what people have seen, and in which state.
	Acknowledgements []*pollerv1.Acknowledgement
	// IdleAfter is how long an agent may wait for a message before it is listed; zero lists none.
	IdleAfter time.Duration
	// EndedAfter leaves out what ended before; zero leaves out nothing.
	EndedAfter time.Time
}

// Find returns what needs a person, by kind, and within a kind the longest first.
func Find(k Known, now time.Time) []Entry {
	f := finder{Known: k, now: now, deliveries: map[string]*dispatcherv1.Delivery{}}
	for _, d := range k.Deliveries {
		f.deliveries[d.GetDeliveryId()] = d
	}
	f.ended()
	f.loops()
	f.waiting()
	f.parks()
	f.sessions()
	f.orphans()
	f.hosts()
	f.runs()
	f.sources()
	f.pauses()
	order := Kinds()
	slices.SortStableFunc(f.out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), earlier(a.Since, b.Since),
			cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.DeliveryID, b.DeliveryID))
	})
	return f.out
}

// earlier puts what is not known last.
func earlier(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

type finder struct {
	Known
	now        time.Time
	deliveries map[string]*dispatcherv1.Delivery
	out        []Entry
}

// add lists an entry. Its time is part of its state: what went away and came back is another matter.
func (f *finder) add(e Entry) {
	if e.ID = e.DeliveryID; e.ID == "" {
		sum := sha256.Sum256([]byte(string(e.Kind) + "\n" + e.Subject + "\n" + e.Reason))
		e.ID = string(e.Kind) + "-" + hex.EncodeToString(sum[:4])
	}
	e.State = strings.TrimSpace(string(e.Kind) + " " + e.Reason)
	if e.Since != nil && !e.unsteady {
		e.State += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	for _, a := range f.Acknowledgements {
		if a.GetEntryId() == e.ID && a.GetState() == e.State {
			e.Acknowledged = &Acknowledged{Who: a.GetWho(), Reason: a.GetReason(), At: timeOf(a.GetCreateTime())}
		}
	}
	f.out = append(f.out, e)
}

// waiting judges the event of each work item that holds the others back; those behind it are only counted.
func (f *finder) waiting() {
	heads, behind := map[string]*pollerv1.LedgerEntry{}, map[string]int{}
	for _, row := range f.Waiting {
		head, ok := heads[row.GetWorkItem()]
		if ok {
			behind[row.GetWorkItem()]++
		}
		if !ok || before(row, head) {
			heads[row.GetWorkItem()] = row
		}
	}
	shadowed := 0
	var shadowedSince time.Time
	for item, row := range heads {
		e := f.event(row)
		since, came := row.GetUpdateTime().AsTime(), row.GetCreateTime().AsTime()
		e.unsteady = true
		d := f.deliveries[row.GetDeliveryId()]
		held := row.GetState() == pollerv1.LedgerState_LEDGER_STATE_HELD
		if d != nil {
			// The ledger's time is that of the last look, the dispatcher's that of the last change.
			held, since = d.GetOutcome() == dispatcherv1.Outcome_OUTCOME_HELD, d.GetUpdateTime().AsTime()
			e.unsteady = false
		}
		if t := row.GetHeldSince(); held && t != nil {
			since, e.unsteady = t.AsTime(), false // through silence and changes of the reason
		}
		long := f.now.Sub(came) > MaxWaiting
		switch {
		case row.GetReason() == "paused", row.GetReason() == "session_parked", row.GetReason() == "session_ending":
			continue // the pause, the park or the order itself is told of
		case row.GetReason() == "shadow":
			if shadowed++; long && (shadowedSince.IsZero() || came.Before(shadowedSince)) {
				shadowedSince = came
			}
			continue
		case d.GetOutcome() == dispatcherv1.Outcome_OUTCOME_UNCONFIRMED || row.GetReason() == "no_evidence":
			e.Kind, e.Since, e.Look = Unconfirmed, &since, attach(item)
		case held && f.now.Sub(since) > MaxHeld:
			e.Kind, e.Since, e.Look = Held, &since, attach(item)
		case !held && long:
			e.Kind, e.Since, e.unsteady = Waiting, &came, false
		default:
			continue
		}
		if n := behind[item]; n > 0 {
			e.Why += "; " + view.Count(n, "more event of it waits", "more events of it wait") + " behind it"
		}
		f.add(e)
	}
	if !shadowedSince.IsZero() {
		f.add(Entry{Kind: Shadow, Subject: "all", Reason: "shadow", Since: &shadowedSince, Look: "muxpost status",
			Why:    "the dispatcher runs in shadow mode and only looks: " + view.Count(shadowed, "work item waits", "work items wait"),
			Remedy: "set dispatcher.shadow to false and restart the dispatcher"})
	}
}

// before reports whether a row holds b back: one that was asked about goes before one that was not yet, and then the elder.
func before(a, b *pollerv1.LedgerEntry) bool {
	if asked := a.GetReason() != ""; asked != (b.GetReason() != "") {
		return asked
	}
	return a.GetCreateTime().AsTime().Before(b.GetCreateTime().AsTime())
}

// event is what is known of a row whatever is the matter with it.
func (f *finder) event(row *pollerv1.LedgerEntry) Entry {
	e := Entry{Subject: row.GetWorkItem(), DeliveryID: row.GetDeliveryId(), Reason: row.GetReason(), Why: row.GetDetail(),
		Look: "muxpost explain " + row.GetDeliveryId()}
	explained, _ := why.Of(row.GetReason())
	if d := f.deliveries[row.GetDeliveryId()]; d != nil && d.GetReason() == row.GetReason() {
		e.Why, e.Remedy = d.GetDetail(), d.GetRemedy()
	}
	e.Why = cmp.Or(e.Why, explained.Meaning, "it waits for its turn")
	if row.GetPull() != "" && row.GetPull() != row.GetWorkItem() {
		e.Pull = row.GetPull()
		e.Why += " (a " + strings.ReplaceAll(row.GetKind(), "_", " ") + " on pull request " + e.Pull + ")"
	}
	e.Remedy = strings.ReplaceAll(cmp.Or(e.Remedy, explained.Remedy, "see what it says"), why.DeliveryID, e.DeliveryID)
	return e
}

func (f *finder) sessions() {
	for _, s := range f.Sessions {
		if e := s.GetEnding(); e != nil {
			f.ending(s, e)
		}
		if view.NeedsPerson(s.GetActivity()) {
			f.add(f.asked(s))
		}
		f.idle(s)
		if !slices.Contains(s.GetFlags(), dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED) {
			continue
		}
		f.add(Entry{Kind: Detached, Subject: s.GetWorkItem(), Reason: "session_detached",
			Look: "muxpost sessions " + view.Quote(s.GetWorkItem()),
			Why: "its agent's process lives on without its session on host " + s.GetHost() +
				", so nothing can be put into it and nothing is started",
			Remedy: "end that process on the host, or wait until it ends; the session comes back with the next event"})
	}
}

// parks tells of what is parked at once, and whether anything waits for it or not.
func (f *finder) parks() {
	for _, p := range f.Parks {
		waiting := 0
		for _, row := range f.Waiting {
			if row.GetWorkItem() == p.GetWorkItem() {
				waiting++
			}
		}
		e := Entry{Kind: Parked, Subject: p.GetWorkItem(), Reason: "session_parked", Since: timeOf(p.GetCreateTime()), Look: attach(p.GetWorkItem()),
			Why: "its agent died " + view.Count(int(p.GetDeaths()), "time", "times") + " within " + view.Short(p.GetWithin().AsDuration()) +
				" and is not started again by itself",
			Remedy: "see why it ends, then muxpost unpark " + view.Quote(p.GetWorkItem())}
		if p.GetDetail() != "" {
			e.Why += "; seen last: " + p.GetDetail()
		}
		if waiting > 0 {
			e.Why += "; " + view.Count(waiting, "event waits", "events wait") + " for it"
		}
		f.add(e)
	}
}

// ending tells of an order at once: whoever gave it may believe that the agent has ended.
func (f *finder) ending(s *dispatcherv1.Session, o *dispatcherv1.Ending) {
	verb := view.Ending(o)
	e := Entry{Kind: Ending, Subject: s.GetWorkItem(), Reason: "session_ending", Since: timeOf(o.GetCreateTime()),
		Look: "muxpost sessions " + view.Quote(s.GetWorkItem()), Why: "the order to " + verb + " it",
		Remedy: "see that host " + o.GetHost() + " answers; muxpost " + verb + " --cancel " + view.Quote(s.GetWorkItem()) + " takes it back"}
	if o.GetWho() != "" {
		e.Why += " by " + o.GetWho()
	}
	e.Why += " waits for its host, and nothing is begun for it"
	if o.GetDetail() != "" {
		e.Why += ": " + o.GetDetail()
	}
	f.add(e)
}

// orphans tells of agents that live without a record; a record without a session is no matter for a person.
func (f *finder) orphans() {
	for _, o := range f.Orphans {
		e := Entry{Kind: Orphan, Subject: o.GetWorkItem(), Reason: view.Orphan(o), Look: "muxpost sessions --orphans"}
		switch o.GetKind() {
		case dispatcherv1.OrphanKind_ORPHAN_KIND_UNRECORDED:
			e.Why = "its agent lives on host " + o.GetHost() + " and nothing is recorded of its session"
			e.Remedy = "muxpost adopt " + view.Quote(o.GetWorkItem()) + " records it, muxpost stop ends it; the next event of the item adopts it too"
		case dispatcherv1.OrphanKind_ORPHAN_KIND_ELSEWHERE:
			e.Why = "an agent of it lives on host " + o.GetHost() + ", and its session is recorded on host " + o.GetRecordedOn()
			e.Remedy = "nothing goes into it; look at it there, and end it if nobody needs it: tmux -N -S " + view.Quote(o.GetSocketPath()) +
				" attach -t " + view.Quote("="+o.GetTarget()+":")
		default:
			continue
		}
		f.add(e)
	}
}

// hosts tells of hosts that are away, and of what was left behind on hosts that are there.
func (f *finder) hosts() {
	reached := map[string]bool{}
	for _, h := range f.Hosts {
		since := timeOf(h.GetSince())
		if reached[h.GetName()] = h.GetReached(); h.GetReached() || since == nil || f.now.Sub(*since) <= MaxAway {
			continue
		}
		f.add(Entry{Kind: Host, Subject: cmp.Or(h.GetName(), h.GetAddress()), Reason: "host_unreachable", Since: since, Look: "muxpost hosts",
			Why: "the host is not reached, and its work items wait: " + h.GetDetail(),
			Remedy: "see that tmuxd runs there; where it does not come back, muxpost hosts evacuate " + view.Quote(h.GetName()) +
				" begins anew elsewhere"})
	}
	for _, s := range f.Superseded {
		if !reached[s.GetHost()] {
			continue // nobody can do anything about it
		}
		f.add(Entry{Kind: Superseded, Subject: s.GetWorkItem(), Reason: "superseded", Since: timeOf(s.GetCreateTime()), Look: "muxpost hosts superseded",
			Why: "a session of it was left behind on host " + s.GetHost() + ", which is back; nothing is delivered to it, and what is not pushed there is not known here",
			Remedy: "look at " + view.Quote(s.GetDirectory()) + " there; then muxpost stop " + view.Quote(s.GetWorkItem()) + " --superseded-on " +
				view.Quote(s.GetHost()) + " ends it"})
	}
}

// idle tells of an agent that nobody has needed for long.
func (f *finder) idle(s *dispatcherv1.Session) {
	since := timeOf(s.GetActivitySince())
	if f.IdleAfter == 0 || s.GetActivity() != dispatcherv1.SessionActivity_SESSION_ACTIVITY_IDLE || since == nil || f.now.Sub(*since) <= f.IdleAfter {
		return
	}
	f.add(Entry{Kind: Idle, Subject: s.GetWorkItem(), Reason: "idle", Since: since, Look: "muxpost attach " + view.Quote(s.GetWorkItem()),
		Why: "its agent has waited for a message since then",
		Remedy: "muxpost stop " + view.Quote(s.GetWorkItem()) + " ends it until the next event, muxpost close for good; dispatcher.idle.end has it done " +
			"where nobody needs it"})
}

// asked is what an agent needs a person for.
func (f *finder) asked(s *dispatcherv1.Session) Entry {
	e := Entry{Kind: Human, Subject: s.GetWorkItem(), Reason: view.Activity(s.GetActivity()), Since: timeOf(s.GetActivitySince()),
		Look: "muxpost attach " + view.Quote(s.GetWorkItem()), Remedy: "answer it in the agent's own terminal; muxpost never does"}
	switch s.GetActivity() {
	case dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL:
		e.Kind, e.Why = Approval, "its agent waits for a person to allow something"
	case dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_INPUT:
		e.Why = "its agent asks a person something"
	default:
		e.Why, e.Remedy = "its agent cannot go on without a person", "do what it asks for in the agent's own terminal; muxpost never does"
	}
	if s.GetActivityDetail() != "" {
		e.Why += ": " + s.GetActivityDetail()
	}
	if asOf := s.GetActivityAsOf(); asOf != nil {
		e.Why += "; that was so until " + asOf.AsTime().UTC().Format(time.RFC3339) + ", and is not known since"
	}
	return e
}

// runs judges the latest run of each team: whoever began another one has seen how the earlier one ended. What an operator ended, and what is begun
// again by itself, needs nobody.
func (f *finder) runs() {
	later := map[string]bool{}
	for _, r := range f.Runs {
		if later[r.GetTeam()] {
			continue
		}
		later[r.GetTeam()] = true
		e := Entry{Kind: Run, Subject: r.GetTeam(), Look: "muxpost team status " + view.Quote(r.GetRunId())}
		switch over := r.GetEndTime(); {
		case over != nil:
			if r.GetPhase() != teamv1.Phase_PHASE_FAILED || r.GetEndedBy() != "" || r.GetRetryAt() != nil || over.AsTime().Before(f.EndedAfter) {
				continue
			}
			e.Reason, e.Since = r.GetReason(), timeOf(over)
			e.Why, e.Remedy = "its run failed: "+r.GetDetail(), "correct what its tasks say, and run it again"
		case r.GetProblem() != "":
			e.Reason, e.Since = "corrupt_run", timeOf(r.GetPhaseSince())
			e.Why, e.Remedy = r.GetProblem(), "restore the database, or end it: muxpost team abandon "+view.Quote(r.GetRunId())
		case r.GetWaits() != "" && f.now.Sub(r.GetPhaseSince().AsTime()) > MaxWaiting:
			e.Reason, e.Since = "waits", timeOf(r.GetPhaseSince())
			e.Why, e.Remedy = "its run waits: "+r.GetWaits(), "see to what it waits for, or end it: muxpost team cancel "+view.Quote(r.GetRunId())
		default:
			continue
		}
		f.add(e)
	}
}

func (f *finder) sources() {
	for _, s := range f.Sources {
		if s.GetNoticeError() != "" {
			f.add(Entry{Kind: Source, Subject: s.GetName(), Reason: "notices", Since: timeOf(s.GetNoticeErrorTime()), Look: "muxpost status",
				Why:    "nothing can be written to its tickets: " + s.GetNoticeError(),
				Remedy: "give its token the permission to write, or switch notices off"})
		}
		if s.GetLastError() == "" || s.GetNotBefore().IsValid() && s.GetNotBefore().AsTime().After(f.now) {
			continue // a limit that is being waited out passes by itself
		}
		since := s.GetLastSuccessTime()
		text := "it could not be read since"
		if since == nil {
			since, text = s.GetLastErrorTime(), "it has never been read"
		}
		f.add(Entry{Kind: Source, Subject: s.GetName(), Since: timeOf(since), unsteady: s.GetLastSuccessTime() == nil, Why: text + ": " + s.GetLastError(),
			Remedy: "correct what the error names; muxpost poll " + view.Quote(s.GetName()) + " looks again at once", Look: "muxpost status"})
	}
}

func (f *finder) pauses() {
	for _, p := range f.Pauses {
		since := p.GetCreateTime().AsTime()
		if f.now.Sub(since) <= MaxPaused {
			continue
		}
		e := Entry{Kind: Paused, Subject: cmp.Or(p.GetWorkItem(), "all"), Reason: "paused", Since: &since, Look: "muxpost status",
			Why: "its deliveries are paused", Remedy: "muxpost unpause " + Scope(p)}
		if p.GetWorkItem() == "" {
			e.Why = "the deliveries of all work items are paused"
		}
		if p.GetWho() != "" {
			e.Why += " by " + p.GetWho()
		}
		if p.GetReason() != "" {
			e.Why += ": " + p.GetReason()
		}
		f.add(e)
	}
}

// Scope is the argument that names a pause on the command line.
func Scope(p *dispatcherv1.Pause) string {
	if p.GetWorkItem() == "" {
		return "--all"
	}
	return view.Quote(p.GetWorkItem())
}

func attach(item string) string { return "muxpost attach " + view.Quote(item) }

func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}
