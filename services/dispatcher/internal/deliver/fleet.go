package deliver

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

// HostRecord is what is recorded of a host.
type HostRecord struct {
	Name string
	// Address is where its tmuxd answers; empty for a host that the configuration names.
	Address string
	// Instance is the tmuxd that the name belongs to; empty while none was met.
	Instance string
	// Draining is true when nothing more is to be started there.
	Draining bool
	// Reason and Who are what the operator said who drained it last, or ended that.
	Reason, Who string
	// CreatedAt and UpdatedAt are on the database's clock.
	CreatedAt, UpdatedAt time.Time
}

// HostStatus says how a host stands.
type HostStatus struct {
	Name, Address string
	// Added is true for a host that an operator added.
	Added bool
	// Reached says whether it answers, since when that is so, and why it does not.
	Reached bool
	Since   time.Time
	Detail  string
	// KeptAway is until when calls are kept away from it; zero when they are not.
	KeptAway time.Time
	Record   HostRecord
	// Live is how many agents live there, Capacity how many may (zero for any number).
	Live, Capacity int
	Labels         map[string]string
	Harnesses      []string
	Build          Build
	TmuxVersion    string
	Warnings       []string
}

// Superseded is a session that was left behind on a host.
type Superseded struct {
	WorkItem, Host, Stamp, Target, Harness, ConversationID, Directory string
	// Since is on the database's clock.
	Since time.Time
}

// SupersededQuery chooses sessions that were left behind, by host and work item.
type SupersededQuery struct {
	// Host chooses those of one host; empty for all.
	Host string
	// AfterHost and AfterItem are those of the last one already seen; empty for the first.
	AfterHost, AfterItem string
	// Limit is the most that is returned.
	Limit int
}

// HostOrder is an operator's word on a host.
type HostOrder struct {
	Name, Who, Reason string
}

// Evacuation is what came of an evacuation.
type Evacuation struct {
	// Moved are the work items that were moved away; Busy those of which a delivery was under way.
	Moved, Busy []string
	// More is true when there are others, which the next call moves.
	More bool
}

const (
	// evacuatedAtOnce bounds one call, so that it ends in time.
	evacuatedAtOnce = 200
	maxAddress      = 300
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// AddHost has every dispatcher call the tmuxd at an address, under the name that it must give. A host that is known gets the new address.
func (d *Deliverer) AddHost(ctx context.Context, o HostOrder, address string) (HostRecord, error) {
	if len(address) == 0 || len(address) > maxAddress {
		return HostRecord{}, fault.New(fault.Invalid, fault.ReasonBadArgument, "the address of a host is host:port or unix:/path")
	}
	return d.order(ctx, o, dispatch.HostAdded, true, func(r *HostRecord) { r.Address = address })
}

// Drain has nothing more start on a host; what lives there goes on. Undrain ends that.
func (d *Deliverer) Drain(ctx context.Context, o HostOrder) (HostRecord, error) {
	return d.order(ctx, o, dispatch.HostDraining, false, func(r *HostRecord) { r.Draining, r.Reason, r.Who = true, line(o.Reason), line(o.Who) })
}

// Undrain ends a drain.
func (d *Deliverer) Undrain(ctx context.Context, o HostOrder) (HostRecord, error) {
	return d.order(ctx, o, dispatch.HostUndrained, false, func(r *HostRecord) { r.Draining, r.Reason, r.Who = false, line(o.Reason), line(o.Who) })
}

// AcceptHost has the next tmuxd that answers under the name be the one that it belongs to: after a host was set up anew.
func (d *Deliverer) AcceptHost(ctx context.Context, o HostOrder) (HostRecord, error) {
	return d.order(ctx, o, dispatch.HostAccepted, false, func(r *HostRecord) { r.Instance = "" })
}

// ForgetHost removes what is recorded of a host. One that work items are recorded on is fault.Conflict.
func (d *Deliverer) ForgetHost(ctx context.Context, o HostOrder) error {
	told, err := hostEvent(ctx, o, dispatch.HostForgotten)
	if err != nil {
		return err
	}
	if err := d.config.Store.DropHost(ctx, o.Name, told); err != nil {
		return err
	}
	d.operated(ctx, told)
	return nil
}

// order changes the record of a host. One that is not known is fault.NotFound, unless it may be new.
func (d *Deliverer) order(ctx context.Context, o HostOrder, t dispatch.EventType, mayBeNew bool, change func(*HostRecord)) (HostRecord, error) {
	told, err := hostEvent(ctx, o, t)
	if err != nil {
		return HostRecord{}, err
	}
	all, err := d.config.Store.Hosts(ctx)
	if err != nil {
		return HostRecord{}, err
	}
	record, known := HostRecord{Name: o.Name}, mayBeNew
	for _, r := range all {
		if r.Name == o.Name {
			record, known = r, true
		}
	}
	if _, configured := d.config.Hosts.On(o.Name); !known && !configured {
		return HostRecord{}, fault.Newf(fault.NotFound, "", "there is no host %q", line(o.Name)).WithRemedy("`muxpost hosts` lists them")
	}
	change(&record)
	record, err = d.config.Store.PutHost(ctx, record, told)
	if err == nil {
		d.operated(ctx, told)
	}
	return record, err
}

// Evacuate moves the work items of a host away: each begins a fresh conversation on another host with its next event. What lives on the host is
// superseded: it is not delivered to any more and not ended either. What runs there for teams is handed out again elsewhere. It goes on where an earlier call stopped.
func (d *Deliverer) Evacuate(ctx context.Context, o HostOrder) (out Evacuation, err error) {
	told, err := hostEvent(ctx, o, dispatch.SessionSuperseded)
	if err != nil {
		return out, err
	}
	// Nothing that is moved away may come back to it, nor anything new go there meanwhile.
	if _, err := d.Drain(ctx, o); err != nil {
		return out, err
	}
	if d.config.Attempts != nil {
		if err := d.config.Attempts.GiveUpAttempts(ctx, o.Name); err != nil {
			return out, err
		}
	}
	found, err := d.config.Store.Sessions(ctx, SessionQuery{Host: o.Name, Limit: evacuatedAtOnce + 1})
	if err != nil {
		return out, err
	}
	if len(found) > evacuatedAtOnce {
		found, out.More = found[:evacuatedAtOnce], true
	}
	for _, s := range found {
		moved, err := d.leave(ctx, s, told)
		if err != nil {
			return out, err
		}
		if moved {
			out.Moved = append(out.Moved, s.WorkItem)
		} else {
			out.Busy = append(out.Busy, s.WorkItem)
		}
	}
	return out, nil
}

// leave moves one work item away from the host of its session, under its lease; false while a delivery of it is under way.
func (d *Deliverer) leave(ctx context.Context, s Session, told Event) (bool, error) {
	held, ok, err := d.config.Store.TakeLease(ctx, s.WorkItem, fmt.Sprintf("%s/%d", d.config.Process, d.runs.Add(1)))
	if err != nil || !ok {
		return false, err
	}
	defer func() { _ = d.config.Store.Release(ctx, s.WorkItem, held) }() // it ends by itself too
	known, err := d.config.Store.Recorded(ctx, s.WorkItem)
	if err != nil || known.Session == nil || known.Session.Host != s.Host {
		return true, err // it has moved meanwhile
	}
	told.WorkItem, told.Type = s.WorkItem, dispatch.SessionSuperseded
	told.Fields = map[string]string{fieldWorkItem: s.WorkItem, fieldTarget: s.Target, fieldHost: s.Host, fieldHarness: s.Harness, fieldDeliveryID: "",
		fieldConversationID: known.Session.ConversationID, fieldIncarnation: known.Session.Incarnation.Stamp, fieldWho: told.Fields[fieldWho]}
	err = d.config.save(ctx, held, s.WorkItem, Change{Left: true, Events: []Event{told}})
	if err != nil {
		return true, err
	}
	d.operated(ctx, told)
	if known.Ending == nil {
		return true, nil
	}
	// What an order that waited for the host was meant for is left there. A close still ends the item's record.
	ref, err := workitem.Parse(s.WorkItem)
	if err != nil {
		return true, err
	}
	order := *known.Ending
	if known, err = d.config.Store.Recorded(ctx, s.WorkItem); err != nil {
		return true, err
	}
	return true, d.newEnd(ref, held, known, order).leftBehind(ctx)
}

// hostEvent is what people can follow of an operator's word on a host.
func hostEvent(ctx context.Context, o HostOrder, t dispatch.EventType) (Event, error) {
	if !hostName.MatchString(o.Name) {
		return Event{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the name of a host has 1 to 63 letters, digits, points, - and _, and %q has not",
			line(o.Name))
	}
	if err := checkWords("reason", o.Reason, maxPauseReason); err != nil {
		return Event{}, err
	}
	if err := checkWords("who", o.Who, maxWho); err != nil {
		return Event{}, err
	}
	told, err := operatorEvent(ctx, t, "", o.Who)
	told.Fields[fieldHost], told.Fields[fieldReason] = o.Name, line(o.Reason)
	return told, err
}
