package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/failpoint"
)

// lookUp asks the registry, and once more for the delivery: another run may have ended it before this one had the lease.
func (r *run) lookUp(ctx context.Context) (replayed bool, err error) {
	known, err := r.config.Store.Look(ctx, r.req.WorkItem, r.req.DeliveryID)
	if err != nil {
		return false, err
	}
	r.delivery = known.Delivery
	if r.delivery.Outcome.Final() {
		return true, nil
	}
	// One that was typed is under way: an order to end its session ends no search for evidence of it.
	if r.ending = known.Ending; r.ending != nil && r.delivery.Outcome != dispatch.Unconfirmed {
		r.facts.Ending = true
		r.step("look up: the session is to end")
	}
	found := known.Session
	r.left = known.Left
	if found != nil && found.Closed {
		r.closed, found = found, nil
		r.step("look up: its session was closed")
	}
	if found == nil {
		r.facts.Registry, r.facts.TargetTaken = dispatch.NoSession, known.TargetOf != ""
		r.step("look up: no session is recorded")
		if r.facts.TargetTaken {
			r.detail = r.req.ref.Target() + " is the session of " + known.TargetOf
			r.step("look up: %s", r.detail)
		}
		return false, nil
	}
	r.session, r.facts.Registry = found, dispatch.Recorded
	if found.Host != "" {
		r.host, _ = r.config.Hosts.On(found.Host)
	}
	r.facts.Resumable = r.resumable(found.ConversationID)
	r.facts.LeftBehind = r.mayBeLeftBehind()
	r.step("look up: recorded on %s, incarnation %s", orNone(found.Host), orNone(found.Incarnation.Stamp))
	return false, nil
}

// mayBeLeftBehind reports whether the delivery may have arrived on another host than the one that has the item now.
func (r *run) mayBeLeftBehind() bool {
	d := r.delivery
	if d.Host == "" || d.Host == r.session.Host || !slices.Contains(r.left, d.Host) {
		return false
	}
	// A host that could not be reached was not asked to type anything.
	return d.Outcome == dispatch.Unconfirmed || d.Outcome == dispatch.Waiting &&
		(d.Reason == dispatch.ReasonTmuxNoAnswer || d.Reason == dispatch.ReasonSpawnNoAnswer)
}

// resumable says whether a conversation can be asked for.
func (r *run) resumable(id string) dispatch.Resumable {
	switch {
	case !r.config.Resume:
		return dispatch.ResumeOff
	case id == "" && r.session != nil && r.session.Host == "":
		return dispatch.ResumeElsewhere
	case id == "":
		return dispatch.ResumeNoID
	case !validConversationID(id):
		return dispatch.ResumeMalformed
	}
	if r.host != nil {
		if resumes, known := r.host.Resumes(r.harness()); known && !resumes {
			return dispatch.ResumeUnsupported
		}
	}
	return dispatch.ResumeYes
}

// probe asks the host of the item, or finds one where none is recorded.
func (r *run) probe(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var sight Sight
	if r.session != nil && r.session.Host != "" {
		sight = probeOn(ctx, r.host, r.session.Host, r.req.WorkItem, r.req.DeliveryID)
	} else {
		r.host, sight = r.config.Hosts.Seek(ctx, Want{WorkItem: r.req.WorkItem, DeliveryID: r.req.DeliveryID, Harness: r.harness(), Left: r.left})
	}
	failpoint.Hit("dispatcher.probe.answered")
	r.facts.Draining = r.host != nil && r.host.Draining()
	r.sight, r.stamp, r.detail = sight, sight.Incarnation.Stamp, sight.Detail
	r.facts.Probe, r.facts.Phase, r.facts.JournalUnreadable = sight.Probe, sight.Phase, sight.JournalUnreadable
	r.step("probe: %s (%s)", probeName(sight.Probe), sight.Detail)
	if r.session == nil {
		r.know()
		return
	}
	r.facts.SameIncarnation = sight.Incarnation.Stamp != "" && sight.Incarnation.Stamp == r.session.Incarnation.Stamp &&
		r.session.Target == r.req.ref.Target()
	if sight.Probe == dispatch.ProbeUnknown && r.stamp == "" {
		r.stamp = r.session.Incarnation.Stamp
	}
	r.learn()
}

// probeOn asks the host that a session is recorded on; it may be nil. One that answers under another name is not it: nothing is concluded from
// its knowing nothing of the session.
func probeOn(ctx context.Context, host Host, name, workItem, deliveryID string) Sight {
	if host == nil {
		return Sight{Host: name, Probe: dispatch.ProbeUnreachable, Detail: "the session is recorded on host " + name +
			", which this dispatcher does not know"}
	}
	sight := host.Probe(ctx, workItem, deliveryID)
	if sight.Probe != dispatch.ProbeUnreachable && sight.Host != name {
		return Sight{Host: name, Probe: dispatch.ProbeUnreachable, Detail: "the session is recorded on host " + name +
			", and the configured host is " + sight.Host}
	}
	return sight
}

// know tells of a session without a record whose conversation the host knows. A live one is recorded for its stamp.
func (r *run) know() {
	gone := r.sight.Probe == dispatch.ProbeDead || r.sight.Probe == dispatch.ProbeAbsent
	if !gone || r.sight.ConversationID == "" || r.closed != nil && slices.Contains(r.closed.Lineage, r.sight.ConversationID) {
		return
	}
	r.facts.HostKnows, r.facts.Resumable = true, r.resumable(r.sight.ConversationID)
	r.step("the host knows conversation %s of it", r.sight.ConversationID)
}

// learn takes over what the host knows of our own session and the record does not: many harnesses tell the id of a conversation
// only some time after its start, and without it nothing could be resumed.
func (r *run) learn() {
	// One that is gone is still known by what the host remembers of it, if that is the incarnation of the record.
	gone := r.sight.Probe == dispatch.ProbeAbsent && r.facts.SameIncarnation
	if r.sight.Probe != dispatch.ProbeLive && r.sight.Probe != dispatch.ProbeDead && !gone {
		return
	}
	if id := r.sight.ConversationID; id != "" && r.session.converse(id) {
		r.learned = true
		r.step("learned: conversation %s", id)
	}
	// Of one that is gone the record decides the harness, where it has one: what comes next is started as the record says.
	if h := r.sight.Harness; h != "" && h != r.session.Harness && (!gone || r.session.Harness == "") {
		r.session.Harness, r.learned = h, true
	}
	r.facts.Resumable = r.resumable(r.session.ConversationID)
}

// start has a session started, after the events that belong to the decision are stored.
func (r *run) start(ctx context.Context, d dispatch.Decision, timeout time.Duration) error {
	if len(d.Events) > 0 {
		if err := r.save(ctx, Change{Events: r.events(d, "", "")}); err != nil {
			return err
		}
	}
	failpoint.Hit("dispatcher.spawn.announced")
	r.started = r.harness()
	order := SpawnOrder{WorkItem: r.req.WorkItem, Harness: r.started, Reason: d.Reason, Token: r.lease.Token}
	if r.session != nil && r.session.Host != "" {
		order.Directory = r.session.Directory // what lies there is on that host alone
	}
	resume := d.Action == dispatch.SpawnResume
	if resume {
		order.Resume = r.session.ConversationID
	}
	if d.WithPrompt {
		order.DeliveryID, order.Text = r.req.DeliveryID, r.req.clean
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report, err := r.host.Spawn(ctx, order)
	failpoint.Hit("dispatcher.spawn.answered")
	if errors.Is(err, fault.Fenced) {
		return r.fenced(d.Action, err)
	}
	r.spawn, r.stamp, r.remedy = report, report.Incarnation.Stamp, report.Remedy
	r.detail = withLines(report.Detail, report.LastLines, r.req.clean)
	if resume {
		r.facts.Resume = report.Spawn
	} else {
		r.facts.Fresh = report.Spawn
	}
	r.config.Metrics.Spawns.Add(ctx, 1, d.Action.String(), spawnName(report.Spawn))
	r.step("%s: %s (%s)", d.Action, spawnName(report.Spawn), r.detail)
	switch {
	case r.stamp == "":
	case report.Spawn == dispatch.SpawnDied:
		// What is started next clears it away, and nobody sees it dead any more.
		_, err = r.config.Store.Died(ctx, r.lease, r.req.WorkItem, r.stamp, r.config.Breaker.Within)
	case report.Spawn.HasCause():
		// Each of these waits by a rule of its own, and says nothing of whether the agent can live.
		err = r.save(ctx, Change{Ordered: r.stamp})
	}
	return err
}

// paste has the event typed.
func (r *run) paste(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report, err := r.host.Paste(ctx, PasteOrder{
		WorkItem: r.req.WorkItem, DeliveryID: r.req.DeliveryID, Text: r.req.clean, Stamp: r.stamp, Token: r.lease.Token,
	})
	failpoint.Hit("dispatcher.paste.answered")
	if errors.Is(err, fault.Fenced) {
		return r.fenced(dispatch.PasteText, err)
	}
	r.facts.Paste, r.detail = report.Paste, report.Detail
	r.config.Metrics.Pastes.Add(ctx, 1, pasteName(report.Paste))
	r.step("paste: %s (%s)", pasteName(report.Paste), report.Detail)
	return nil
}

func (r *run) fenced(a dispatch.Action, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		err = f.WithRemedy("") // what is to be done is done by asking again
	}
	r.outdated, r.detail = true, err.Error()
	r.step("%s: refused, the host takes no lease this old (%s)", a, r.detail)
	return errHostFenced
}

// adopt records a session of ours that was found without a record.
func (r *run) adopt(ctx context.Context, d dispatch.Decision) error {
	s := r.fresh()
	if r.facts.Fresh == dispatch.SpawnOccupied {
		// The spawn's own answer says who lives there, and no more.
		s.Incarnation, s.SocketPath = r.spawn.Incarnation, r.sight.SocketPath
	} else {
		s.Incarnation, s.Harness, s.SocketPath, s.Directory = r.sight.Incarnation, r.sight.Harness, r.sight.SocketPath, r.sight.Directory
		s.ConversationID = r.sight.ConversationID
	}
	return r.record(ctx, d, &s)
}

// heal brings the record up to date with the living incarnation that was found.
func (r *run) heal(ctx context.Context, d dispatch.Decision) error {
	s := *r.session
	s.Target, s.Host, s.Incarnation = r.req.ref.Target(), r.sight.Host, r.sight.Incarnation
	if r.sight.SocketPath != "" {
		s.SocketPath = r.sight.SocketPath
	}
	if r.sight.Directory != "" {
		s.Directory = r.sight.Directory
	}
	return r.record(ctx, d, &s)
}

// register records the session that was started.
func (r *run) register(ctx context.Context, d dispatch.Decision) error {
	s := r.fresh()
	if r.session != nil {
		s = *r.session
	}
	s.Host, s.Target, s.Harness = r.sight.Host, r.req.ref.Target(), r.harness()
	s.Incarnation, s.SocketPath, s.Directory = r.spawn.Incarnation, r.spawn.SocketPath, r.spawn.Directory
	resumed := r.facts.Fresh == dispatch.SpawnNotTried
	// A resumed session that names no conversation has the one it was asked for.
	if !resumed || r.spawn.ConversationID != "" {
		s.converse(r.spawn.ConversationID)
	}
	return r.record(ctx, d, &s)
}

// fresh is the record of an item that had none.
func (r *run) fresh() Session {
	s := Session{WorkItem: r.req.WorkItem, NodeID: r.req.NodeID, Target: r.req.ref.Target(), Host: r.sight.Host}
	if r.closed != nil {
		s.Lineage = r.closed.Lineage
	}
	return s
}

// record stores a session with the events of the decision.
func (r *run) record(ctx context.Context, d dispatch.Decision, s *Session) error {
	if s.NodeID == "" {
		s.NodeID = r.req.NodeID
	}
	before := r.session
	r.session = s
	if err := r.save(ctx, Change{Session: s, Events: r.events(d, "", "")}); err != nil {
		r.session = before
		return err
	}
	failpoint.Hit("dispatcher.session.recorded")
	r.learned, r.facts = false, r.facts.WithRecord()
	r.step("%s: incarnation %s, conversation %s (%s)", d.Action, orNone(s.Incarnation.Stamp), orNone(s.ConversationID), d.Reason)
	return nil
}

func (r *run) save(ctx context.Context, c Change) error {
	return r.config.save(ctx, r.lease, r.req.WorkItem, c)
}

// harness is what a session is started with: the recorded one, else the one that was asked for, else the configured one.
func (r *run) harness() string {
	switch {
	case r.session != nil && r.session.Harness != "":
		return r.session.Harness
	case r.session == nil && r.facts.HostKnows && r.sight.Harness != "":
		return r.sight.Harness
	}
	if r.req.Harness != "" {
		return r.req.Harness
	}
	return r.config.Harness
}

// shownHarness is the session's as far as it is known, which for an adopted one it may not be.
func (r *run) shownHarness() string {
	switch {
	case r.session != nil && r.session.Harness != "":
		return r.session.Harness
	case r.sight.Harness != "":
		return r.sight.Harness
	case r.started != "":
		return r.started
	}
	return r.req.Harness
}

func (r *run) hostName() string {
	if r.session != nil && r.session.Host != "" {
		return r.session.Host
	}
	return r.sight.Host
}

// conversation is the one that the delivery went to, as far as it is known.
func (r *run) conversation() string {
	if r.session != nil {
		return r.session.ConversationID
	}
	return r.sight.ConversationID
}
