package deliver

import (
	"context"
	"fmt"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
)

// count records that the session was seen dead, and asks whether it may be started again. What is dead names its incarnation; of what is
// absent the record does.
func (r *run) count(ctx context.Context) error {
	stamp := r.sight.Incarnation.Stamp
	if stamp == "" && r.session != nil {
		stamp = r.session.Incarnation.Stamp
	}
	found, err := r.config.Store.Died(ctx, r.lease, r.req.WorkItem, stamp, r.config.Breaker.Within)
	if err != nil {
		return err
	}
	r.deaths, r.facts.Starts = found, r.config.Breaker.Judge(found.record(), r.running())
	r.step("count: %d deaths within %v", found.Count, r.config.Breaker.Within)
	return nil
}

// running is the version that takes part in this delivery.
func (r *run) running() dispatch.Version { return r.config.Version(r.hostName()) }

// record is what the rule for parking needs to know.
func (d Deaths) record() dispatch.Record {
	out := dispatch.Record{Deaths: d.Count, Since: d.Age}
	if d.Park != nil {
		out.Parked, out.Versions = !d.Park.Lifted, d.Park.Versions
	}
	return out
}

// lifts says why the item is not parked any more.
func (r *run) lifts() dispatch.Lift { return r.config.Breaker.Lifts(r.deaths.record(), r.running()) }

// park has the item's agents not started again by themselves.
func (r *run) park(ctx context.Context, d dispatch.Decision) error {
	p := Park{WorkItem: r.req.WorkItem, Deaths: r.deaths.Count, Within: r.config.Breaker.Within, Detail: line(r.detail), Versions: r.versions()}
	if err := r.save(ctx, Change{Park: &p, Events: r.events(d, "", "")}); err != nil {
		return err
	}
	r.deaths.Park, r.facts.Starts = &p, dispatch.StartsParked
	r.step("park: %s", r.parkedBecause())
	return nil
}

// unpark takes that back: the agents are started as if none had died.
func (r *run) unpark(ctx context.Context, d dispatch.Decision) error {
	p := *r.deaths.Park
	p.Lifted, p.Versions = true, r.versions()
	if err := r.save(ctx, Change{Park: &p, Events: r.events(d, "", "")}); err != nil {
		return err
	}
	r.facts.Starts = dispatch.StartsAllowed
	r.step("unpark: it is tried again (%s)", r.lifts())
	return nil
}

// versions are those that the item was ever parked under, with the one that runs.
func (r *run) versions() []string {
	var before []string
	if r.deaths.Park != nil {
		before = r.deaths.Park.Versions
	}
	return ledger.AddVersion(before, ledger.Version{Name: r.running().Name})
}

func (r *run) parkedBecause() string {
	p := r.deaths.Park
	if p == nil {
		return "the item is parked"
	}
	return fmt.Sprintf("the agent died %d times within %v, so it is not started again by itself", p.Deaths, p.Within)
}

// Unpark has the agents of a parked work item started again by its events, as if none had died, and returns the park; false when it is not
// parked.
func (d *Deliverer) Unpark(ctx context.Context, workItem, who string) (Park, bool, error) {
	if err := checkWords("who", who, maxWho); err != nil {
		return Park{}, false, err
	}
	told, err := operatorEvent(ctx, dispatch.SessionUnparked, workItem, who)
	if err != nil {
		return Park{}, false, err
	}
	told.Fields[fieldReason], told.Fields[fieldKind] = string(dispatch.LiftCommand), "" // no event caused it
	p, stood, err := d.config.Store.Unpark(ctx, told.WorkItem, told)
	if stood {
		d.operated(ctx, told)
	}
	return p, stood, err
}
