package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// readAtOnce is how many rows are read at once where all are wanted.
const readAtOnce = 100

// Ended is what came of an order to end an agent.
type Ended struct {
	// Already is true when nothing of it lived before.
	Already bool
	// Waits is true when nobody answered for the session: the order stands, and is carried out once the host is there.
	Waits bool
	// Detail is one line for a person.
	Detail string
}

// end is one run over an order to end an agent, under the item's lease.
type end struct {
	config *Config
	ref    workitem.Ref
	lease  lease.Lease
	order  Ending
	// stored is true where an order waited already, and told where it was this one.
	stored, told bool
	session      *Session
	// left are the hosts from which the item was moved away.
	left  []string
	host  Host
	sight Sight
}

// take takes the lease of an item for an operator's act and reads what is recorded of it. The caller calls giveBack in the end.
func (d *Deliverer) take(ctx context.Context, workItem string) (held lease.Lease, known Known, giveBack func(), err error) {
	held, ok, err := d.config.Store.TakeLease(ctx, workItem, fmt.Sprintf("%s/%d", d.config.Process, d.runs.Add(1)))
	if err != nil {
		return held, known, nil, err
	}
	if !ok {
		return held, known, nil, fault.New(fault.Unavailable, fault.ReasonLeaseHeld, "a delivery of this work item is under way").
			WithRemedy("try again in a moment; muxpost pause keeps further ones away").WithRetryAfter(time.Second)
	}
	giveBack = func() { _ = d.config.Store.Release(ctx, workItem, held) } // it ends by itself too
	if known, err = d.config.Store.Recorded(ctx, workItem); err != nil {
		giveBack()
		return held, known, nil, err
	}
	return held, known, giveBack, nil
}

// endAgent carries out an order at once, or leaves it to stand until its host is there.
func (d *Deliverer) endAgent(ctx context.Context, s Stop, closes bool) (Ended, error) {
	ref, err := s.check()
	if err != nil {
		return Ended{}, err
	}
	// An end that was ordered is seen through, whoever goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
	defer cancel()
	held, known, giveBack, err := d.take(ctx, ref.String())
	if err != nil {
		return Ended{}, err
	}
	defer giveBack()
	e := d.newEnd(ref, held, known, Ending{
		WorkItem: ref.String(), Closes: closes, Who: line(s.Who), Reason: line(s.Reason), Grace: cmp.Or(s.Grace, usualGrace),
	})
	if s.SupersededOn != "" {
		return e.superseded(ctx, s.SupersededOn)
	}
	e.look(ctx)
	// It is meant for whom lives there now; where nobody can tell, for whom the record names.
	switch {
	case e.lives():
		e.order.Stamp, e.order.Host = e.sight.Incarnation.Stamp, e.sight.Host
	case e.recorded():
		e.order.Stamp, e.order.Host = e.session.Incarnation.Stamp, e.session.Host
	}
	if before := known.Ending; before != nil {
		e.told = before.Closes == closes && before.Stamp == e.order.Stamp
	}
	switch dispatch.EndOf(e.sight.Probe, true) {
	case dispatch.EndTerminate:
		return e.terminate(ctx)
	case dispatch.EndDone:
		return Ended{Already: true, Detail: e.sight.Detail}, e.done(ctx, true, e.sight.Detail)
	case dispatch.EndRefuse, dispatch.EndLapse:
		return Ended{}, fault.New(fault.Conflict, "", "what lives there is not the agent: "+e.sight.Detail)
	case dispatch.EndWait:
	}
	if e.order.Stamp == "" {
		return Ended{}, fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer,
			"it is not known what lives there, and no session is recorded that the order could name: "+e.sight.Detail)
	}
	return e.wait(ctx, e.sight.Detail)
}

func (d *Deliverer) newEnd(ref workitem.Ref, held lease.Lease, known Known, order Ending) *end {
	return &end{config: &d.config, ref: ref, lease: held, order: order, stored: known.Ending != nil, session: known.Session, left: known.Left}
}

// recorded reports whether the record names a session on a host.
func (e *end) recorded() bool { return e.session != nil && !e.session.Closed && e.session.Host != "" }

// look asks the host that the order names, or the record; where neither does, whichever has the session.
func (e *end) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	name := e.order.Host
	if name == "" && e.recorded() {
		name = e.session.Host
	}
	if name == "" {
		e.host, e.sight = e.config.Hosts.Seek(ctx, Want{WorkItem: e.ref.String(), Harness: e.config.Harness, Left: e.left})
		return
	}
	e.host, _ = e.config.Hosts.On(name)
	e.sight = probeOn(ctx, e.host, name, e.ref.String(), "")
}

func (e *end) lives() bool {
	return e.sight.Probe == dispatch.ProbeLive || e.sight.Probe == dispatch.ProbeDetached
}

// terminate ends the incarnation that the order names.
func (e *end) terminate(ctx context.Context) (Ended, error) {
	report, err := e.kill(ctx)
	switch {
	case fault.KindOf(err) == fault.Unavailable:
		return e.wait(ctx, err.Error()) // whether it has ended is asked again
	case err != nil:
		return Ended{}, err
	}
	return Ended{Already: report.Already, Detail: report.Detail}, e.done(ctx, report.Already, report.Detail)
}

// kill has the incarnation that the order names ended. What did not end is fault.Conflict.
func (e *end) kill(ctx context.Context) (TerminateReport, error) {
	report, err := e.host.Terminate(ctx, TerminateOrder{WorkItem: e.ref.String(), Stamp: e.order.Stamp, Token: e.lease.Token,
		Grace: e.order.Grace, Reason: line(by(e.order.Who) + " " + e.order.Reason)})
	if err == nil && !report.Ended {
		err = fault.New(fault.Conflict, "", "the agent was not ended: "+report.Detail)
	}
	return report, err
}

// wait has the order stand until somebody answers.
func (e *end) wait(ctx context.Context, why string) (Ended, error) {
	e.order.Detail = line(why)
	change := Change{Ending: &e.order}
	if !e.told {
		change.Events = []Event{e.event(ctx, dispatch.SessionEndOrdered)}
	}
	return Ended{Waits: true, Detail: e.order.Detail}, e.save(ctx, change)
}

// done records that the agent has ended, which for a close ends the record too. What it was is told, unless there was nothing to do.
func (e *end) done(ctx context.Context, already bool, how string) error {
	e.order.Detail = line(how)
	change := Change{EndingOver: true}
	if !already || e.stored {
		change.Ordered = e.order.Stamp // an answer that was lost may have been to the first try
	}
	switch closed := e.closed(); {
	case e.order.Closes && closed != nil:
		change.Session, change.Events = closed, []Event{e.event(ctx, dispatch.SessionClosed)}
	case e.order.Closes && e.stored:
		change.Events = []Event{e.event(ctx, dispatch.SessionEndLapsed)}
	case e.order.Closes:
	case !already:
		change.Events = []Event{e.event(ctx, dispatch.SessionStopped)}
	case e.stored:
		change.Events = []Event{e.event(ctx, dispatch.SessionEndLapsed)}
	}
	return e.save(ctx, change)
}

// closed is the record as it is kept of a session that was closed; nil when there is nothing to keep, or it is kept so already.
func (e *end) closed() *Session {
	var s Session
	switch {
	case e.session != nil && e.session.Closed && !e.lives():
		return nil
	case e.session != nil:
		s = *e.session
	case e.lives() || e.sight.ConversationID != "":
		s = Session{WorkItem: e.ref.String(), Target: e.ref.Target(), Host: e.sight.Host, Incarnation: e.sight.Incarnation}
	default:
		return nil
	}
	s.Harness = cmp.Or(s.Harness, e.sight.Harness)
	if e.sight.ConversationID != "" {
		s.converse(e.sight.ConversationID)
	}
	s.converse("")
	s.Closed = true
	return &s
}

// leftBehind ends an order whose item was moved away from the host that it waited for.
func (e *end) leftBehind(ctx context.Context) error {
	if !e.order.Closes || e.session == nil {
		return e.lapse(ctx, "the work item was moved away from the host; what is left there is ended with muxpost stop --superseded-on")
	}
	closed := *e.session
	closed.Closed = true
	return e.save(ctx, Change{Session: &closed, EndingOver: true, Events: []Event{e.event(ctx, dispatch.SessionClosed)}})
}

// lapse ends an order that came to nothing.
func (e *end) lapse(ctx context.Context, why string) error {
	e.order.Detail = line(why)
	return e.save(ctx, Change{EndingOver: true, Events: []Event{e.event(ctx, dispatch.SessionEndLapsed)}})
}

func (e *end) save(ctx context.Context, c Change) error {
	if err := e.config.save(ctx, e.lease, e.ref.String(), c); err != nil {
		return err
	}
	for _, told := range c.Events {
		e.config.operated(ctx, told)
	}
	return nil
}

func (e *end) event(ctx context.Context, t dispatch.EventType) Event {
	harness, conversation := e.sight.Harness, e.sight.ConversationID
	if e.session != nil {
		harness, conversation = cmp.Or(harness, e.session.Harness), cmp.Or(conversation, e.session.ConversationID)
	}
	f := map[string]string{fieldWorkItem: e.ref.String(), fieldTarget: e.ref.Target(), fieldHost: cmp.Or(e.sight.Host, e.order.Host), fieldDeliveryID: "",
		fieldHarness: harness, fieldWho: e.order.Who, fieldIncarnation: e.order.Stamp}
	switch t {
	case dispatch.SessionStopped:
		f[fieldReason] = e.order.Reason
	case dispatch.SessionClosed:
		f[fieldReason], f[fieldConversationID] = e.order.Reason, conversation
	case dispatch.SessionRegistered:
		f[fieldReason], f[fieldKind] = e.order.Reason, ""
	case dispatch.SessionEndOrdered:
		f[fieldOrder], f[fieldReason], f[fieldDetail] = e.order.Verb(), e.order.Reason, e.order.Detail
	default:
		f[fieldOrder], f[fieldDetail] = e.order.Verb(), e.order.Detail
	}
	return Event{Type: t, WorkItem: e.ref.String(), TraceID: obs.TraceID(ctx), Fields: f}
}

// CancelEnding takes back the order to end a work item's agent that waits for its host, and returns it; false when none does.
func (d *Deliverer) CancelEnding(ctx context.Context, workItem, who string) (Ending, bool, error) {
	ref, err := workitem.Parse(workItem)
	if err != nil {
		return Ending{}, false, err
	}
	if err := checkWords("who", who, maxWho); err != nil {
		return Ending{}, false, err
	}
	held, known, giveBack, err := d.take(ctx, ref.String())
	if err != nil {
		return Ending{}, false, err
	}
	defer giveBack()
	if known.Ending == nil {
		return Ending{}, false, nil
	}
	e := d.newEnd(ref, held, known, *known.Ending)
	e.order.Who = line(who)
	if err := e.save(ctx, Change{EndingOver: true, Events: []Event{e.event(ctx, dispatch.SessionEndCancelled)}}); err != nil {
		return Ending{}, false, err
	}
	return *known.Ending, true, nil
}

// CarryOut carries out the orders that wait, of a work item or of all when it is empty, as far as hosts answer. It calls over with each
// item whose order does not stand any more. What fails stands, and is tried again with the next call; the error is the store's.
func (d *Deliverer) CarryOut(ctx context.Context, workItem string, over func(workItem string)) error {
	for after := ""; ; {
		found, err := d.config.Store.Endings(ctx, EndingQuery{WorkItem: workItem, After: after, Limit: readAtOnce})
		if err != nil {
			return err
		}
		for _, ending := range found {
			after = ending.WorkItem
			switch gone, err := d.carryOut(ctx, ending.WorkItem); {
			case err != nil:
				d.config.Logger.LogAttrs(ctx, slog.LevelWarn, "an order to end an agent was not carried out, and stands",
					slog.String(obs.KeyWorkItem, ending.WorkItem), slog.String(obs.KeyError, err.Error()))
			case gone:
				over(ending.WorkItem)
			}
		}
		if len(found) < readAtOnce {
			return nil
		}
	}
}

// carryOut carries out the order that waits for one item, and reports whether none stands any more.
func (d *Deliverer) carryOut(ctx context.Context, workItem string) (over bool, err error) {
	ref, err := workitem.Parse(workItem)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit)
	defer cancel()
	held, known, giveBack, err := d.take(ctx, ref.String())
	if err != nil {
		return false, err
	}
	defer giveBack()
	if known.Ending == nil {
		return true, nil // another process was faster, or a person took it back
	}
	e := d.newEnd(ref, held, known, *known.Ending)
	e.told = true
	e.look(ctx)
	switch dispatch.EndOf(e.sight.Probe, e.sight.Incarnation.Stamp == e.order.Stamp) {
	case dispatch.EndTerminate:
		ended, err := e.terminate(ctx)
		if errors.Is(err, fault.Conflict) {
			ended, err = e.wait(ctx, err.Error())
		}
		return err == nil && !ended.Waits, err
	case dispatch.EndDone:
		return true, e.done(ctx, true, e.sight.Detail)
	case dispatch.EndLapse:
		return true, e.lapse(ctx, "another incarnation lives there than the one that was to end, and was not touched")
	case dispatch.EndRefuse:
		return true, e.lapse(ctx, "what lives there is not the agent, and was not touched: "+e.sight.Detail)
	case dispatch.EndWait:
	}
	if e.order.Detail == line(e.sight.Detail) {
		return false, nil
	}
	_, err = e.wait(ctx, e.sight.Detail)
	return false, err
}
