package deliver

import (
	"cmp"
	"context"
	"slices"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

// Adopt records the session of a work item that its host has and the record lacks, by a person's order: a living one with our stamp, or one
// whose conversation the host knows though it is dead or absent; so a close can be taken back. It returns the record, and whether it was
// so before. What is not ours, or waits to be ended, is fault.Conflict; where there is none, fault.NotFound; where nobody answers, or a
// delivery is under way, fault.Unavailable.
func (d *Deliverer) Adopt(ctx context.Context, workItem, who string) (record Session, already bool, err error) {
	ref, err := workitem.Parse(workItem)
	if err != nil {
		return Session{}, false, err
	}
	if err := checkWords("who", who, maxWho); err != nil {
		return Session{}, false, err
	}
	held, known, giveBack, err := d.take(ctx, ref.String())
	if err != nil {
		return Session{}, false, err
	}
	defer giveBack()
	if known.Ending != nil {
		return Session{}, false, fault.New(fault.Conflict, "", "an order to "+known.Ending.Verb()+" it waits for its host").
			WithRemedy("muxpost stop --cancel " + shellQuote(ref.String()) + " takes it back")
	}
	a := d.newEnd(ref, held, known, Ending{WorkItem: ref.String(), Who: line(who)})
	a.look(ctx)
	switch a.adopts() {
	case dispatch.AdoptAlready:
		return *a.session, true, nil
	case dispatch.AdoptForeign:
		return Session{}, false, fault.New(fault.Conflict, "", "what lives there is not ours: "+a.sight.Detail)
	case dispatch.AdoptDetached:
		return Session{}, false, fault.New(fault.Conflict, "", "its agent's process lives without its session: "+a.sight.Detail).
			WithRemedy("end that process on the host, or wait until it ends; the next event brings the conversation back")
	case dispatch.AdoptNone:
		return Session{}, false, fault.New(fault.NotFound, fault.ReasonSessionNotFound, "no host has a session of it: "+a.sight.Detail)
	case dispatch.AdoptWait:
		return Session{}, false, fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "it is not known what lives there: "+a.sight.Detail)
	case dispatch.AdoptRecord:
	}
	record = a.adopted()
	told := a.event(ctx, dispatch.SessionRegistered)
	told.Fields[fieldIncarnation], told.Fields[fieldReason] = record.Incarnation.Stamp, string(a.why())
	return record, false, a.save(ctx, Change{Session: &record, Events: []Event{told}})
}

// adopts says what is done about the order.
func (e *end) adopts() dispatch.AdoptStep {
	same := e.recorded() && e.sight.Incarnation.Stamp == e.session.Incarnation.Stamp && e.session.Target == e.ref.Target()
	return dispatch.AdoptOf(e.recorded(), e.sight.Probe, same, e.sight.ConversationID != "")
}

// why is what proves it ours.
func (e *end) why() dispatch.Reason {
	switch {
	case e.recorded():
		return dispatch.ReasonAnotherIncarnation
	case e.sight.Probe == dispatch.ProbeLive:
		return dispatch.ReasonStampProvesOurs
	}
	return dispatch.ReasonConversationKnown
}

// adopted is the record of what was found. What an earlier record knows of it is kept.
func (e *end) adopted() Session {
	s := Session{WorkItem: e.ref.String()}
	if e.session != nil {
		s = *e.session
	}
	s.Target, s.Host, s.Incarnation, s.Closed = e.ref.Target(), e.sight.Host, e.sight.Incarnation, false
	s.Harness = cmp.Or(e.sight.Harness, s.Harness)
	s.SocketPath, s.Directory = cmp.Or(e.sight.SocketPath, s.SocketPath), cmp.Or(e.sight.Directory, s.Directory)
	if id := e.sight.ConversationID; id != "" {
		s.converse(id)
		s.Lineage = slices.DeleteFunc(slices.Clone(s.Lineage), func(earlier string) bool { return earlier == id })
	}
	return s
}

// Found is a session that a host has.
type Found struct {
	WorkItem, Host, Target string
	Probe                  dispatch.Probe
	Stamp                  string
	Harness                string
	ConversationID         string
	SocketPath             string
	// Detail is one line for a person: what the state stands on.
	Detail string
}

// Gap says in which way a session and the record do not fit.
type Gap uint8

// The gaps.
const (
	// Unrecorded: it lives, and nothing is recorded of it.
	Unrecorded Gap = iota + 1
	// Elsewhere: it lives, and the item's session is recorded on another host.
	Elsewhere
	// Gone: it is recorded, and its host has nothing of it. The next event brings its conversation back.
	Gone
)

// Orphan is a session without a record, or a record without a session.
type Orphan struct {
	Found
	Gap Gap
	// RecordedOn is the host of the record; empty when there is none.
	RecordedOn string
}

// Orphans returns what does not fit, by work item and host, and the hosts that did not answer, of which nothing is concluded.
func (d *Deliverer) Orphans(ctx context.Context) (out []Orphan, silent []string, err error) {
	found, answered, silent := d.config.Hosts.Listed(ctx)
	recorded := map[string]Session{}
	for after := ""; ; {
		page, err := d.config.Store.Sessions(ctx, SessionQuery{After: after, Limit: readAtOnce})
		if err != nil {
			return nil, nil, err
		}
		for _, s := range page {
			recorded[s.WorkItem], after = s, s.WorkItem
		}
		if len(page) < readAtOnce {
			break
		}
	}
	there := map[[2]string]bool{}
	for _, f := range found {
		there[[2]string{f.WorkItem, f.Host}] = true
		s, ok := recorded[f.WorkItem]
		if f.Probe != dispatch.ProbeLive && f.Probe != dispatch.ProbeDetached || ok && s.Host == f.Host {
			continue
		}
		o := Orphan{Found: f, Gap: Unrecorded}
		if ok {
			known, err := d.config.Store.Recorded(ctx, f.WorkItem)
			if err != nil {
				return nil, nil, err
			}
			if slices.Contains(known.Left, f.Host) {
				continue // it was left behind by an order, and is listed as that
			}
			if s.Host != "" {
				o.Gap, o.RecordedOn = Elsewhere, s.Host
			}
		}
		out = append(out, o)
	}
	for _, s := range recorded {
		if s.Host != "" && slices.Contains(answered, s.Host) && !there[[2]string{s.WorkItem, s.Host}] {
			out = append(out, Orphan{Gap: Gone, RecordedOn: s.Host, Found: Found{WorkItem: s.WorkItem, Host: s.Host, Target: s.Target,
				Probe: dispatch.ProbeAbsent, Stamp: s.Incarnation.Stamp, Harness: s.Harness, ConversationID: s.ConversationID,
				SocketPath: s.SocketPath, Detail: "the host has nothing of it"}})
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.WorkItem, b.WorkItem), cmp.Compare(a.Host, b.Host)) })
	return out, silent, nil
}
