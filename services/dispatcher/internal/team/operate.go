package team

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	maxWho    = 100
	maxReason = 500
	maxOrder  = 200
)

// Order is somebody's word on a run.
type Order struct {
	RunID, Who, Reason string
}

// Start begins a run. Where the team has one that is not over, that is fault.AlreadyExists, and nothing of it is changed; with takeOver it is given
// up, and abandoned is its id.
func (c *Coordinator) Start(ctx context.Context, spec rules.Spec, who string, takeOver bool) (made Run, abandoned string, err error) {
	return c.start(ctx, Run{Spec: spec, Who: who}, takeOver)
}

// Policy is what is run for a work item.
type Policy struct {
	Spec rules.Spec
	// Retries is how often a run that failed is begun again by itself, Backoff how long after the first failure.
	Retries int
	Backoff time.Duration
}

// StartItem begins the run of the team of a name that is configured for a work item, or of the first for no name, under the name of the item's
// session: so there is one at a time, whoever asks. Where nothing is configured it is fault.NotFound. For an order that is named, a run is begun once,
// and whoever asks again is answered with it.
func (c *Coordinator) StartItem(ctx context.Context, order, workItem, name, who string) (Run, error) {
	item, err := workitem.Parse(workItem)
	if err != nil {
		return Run{}, err
	}
	if err := checkWords("order_id", order, maxOrder); err != nil {
		return Run{}, err
	}
	if order != "" {
		// What is configured may be another by now.
		if made, ok, err := c.config.Store.OrderedRun(ctx, order); err != nil || ok {
			return made, err
		}
	}
	var policy Policy
	found := c.config.Policy != nil
	if found {
		policy, found = c.config.Policy(item, name)
	}
	if !found {
		called := ""
		if name != "" {
			called = fmt.Sprintf(" called %.64q", name)
		}
		return Run{}, fault.Newf(fault.NotFound, fault.ReasonRunNotFound, "no team%s is configured for %s", called, item).WithRemedy("add one to dispatcher.teams")
	}
	policy.Spec.Team = item.Target()
	made, _, err := c.start(ctx, Run{Spec: policy.Spec, Who: who, Order: order, WorkItem: item.String(), Retries: policy.Retries, Backoff: policy.Backoff}, false)
	return made, err
}

func (c *Coordinator) start(ctx context.Context, r Run, takeOver bool) (made Run, abandoned string, err error) {
	who := r.Who
	if c.config.Shadow {
		return made, "", fault.New(fault.Conflict, "", "the dispatcher runs in shadow mode, in which nothing is started").WithRemedy("set dispatcher.shadow to false")
	}
	if r.Spec, err = r.Spec.Check(); err != nil {
		return made, "", err
	}
	if err := checkWords("who", who, maxWho); err != nil {
		return made, "", err
	}
	r.ID, r.Traceparent, r.TraceID = uuid.NewString(), obs.Inject(ctx), obs.TraceID(ctx)
	made, live, err := c.config.Store.CreateRun(ctx, r)
	if errors.Is(err, fault.AlreadyExists) && live != nil && takeOver {
		if _, _, err := c.Abandon(ctx, Order{RunID: live.ID, Who: who, Reason: "another run took its place"}); err != nil {
			return made, "", err
		}
		abandoned = live.ID
		made, live, err = c.config.Store.CreateRun(ctx, r)
	}
	switch {
	case errors.Is(err, fault.AlreadyExists) && live != nil:
		return made, abandoned, exists(*live)
	case err != nil:
		return made, abandoned, err
	}
	c.config.Logger.InfoContext(ctx, "a run was begun", obs.KeyRunID, made.ID, obs.KeyCount, made.Total, obs.KeyWho, who)
	c.Poke()
	return made, abandoned, nil
}

// exists says which run is in the way, and what to do about it.
func exists(live Run) error {
	holder := "nobody coordinates it now"
	if live.Held {
		holder = "coordinated by " + live.Holder
	}
	beat := "it was never coordinated"
	if !live.Beat.IsZero() {
		beat = "its last sign of life was at " + live.Beat.UTC().Format(time.RFC3339)
	}
	return fault.Newf(fault.AlreadyExists, fault.ReasonRunExists, "the team %s has a run that is not over: %s is in %s since %s, begun at %s by %s, %s, and %s",
		live.Spec.Team, live.ID, live.Phase, live.PhaseSince.UTC().Format(time.RFC3339), live.CreatedAt.UTC().Format(time.RFC3339), orNobody(live.Who), holder, beat).
		WithRemedy(fmt.Sprintf("follow it with muxpost team watch %s; give it up with muxpost team abandon %s, or with --take-over when another is begun", live.Spec.Team, live.ID))
}

// Cancel orders the end of a run; false when it is over or was ordered to end.
func (c *Coordinator) Cancel(ctx context.Context, o Order) (Run, bool, error) {
	return c.ordered(ctx, o, c.config.Store.OrderEnd)
}

// Abandon ends a run at once, whoever coordinates it; false when it is over.
func (c *Coordinator) Abandon(ctx context.Context, o Order) (Run, bool, error) {
	return c.ordered(ctx, o, c.config.Store.AbandonRun)
}

func (c *Coordinator) ordered(ctx context.Context, o Order, order func(ctx context.Context, id, who, detail string) (Run, bool, error)) (Run, bool, error) {
	if err := errors.Join(checkWords("who", o.Who, maxWho), checkWords("reason", o.Reason, maxReason)); err != nil {
		return Run{}, false, err
	}
	r, ok, err := order(ctx, o.RunID, o.Who, o.Reason)
	if err != nil {
		return r, false, err
	}
	if ok {
		c.config.Logger.InfoContext(ctx, "somebody ended a run", obs.KeyRunID, r.ID, obs.KeyReason, string(r.Reason), obs.KeyWho, o.Who)
		c.Poke()
	}
	return r, ok, nil
}

// checkWords refuses what is no line for others to read.
func checkWords(name, text string, most int) error {
	if len(text) > most || strings.ContainsFunc(text, unicode.IsControl) || !strings.EqualFold(text, strings.ToValidUTF8(text, "")) {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s must be one line of at most %d bytes", name, most)
	}
	return nil
}
