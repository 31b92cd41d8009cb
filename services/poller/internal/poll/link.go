package poll

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// Link is an operator's order to which item a pull request belongs.
type Link struct {
	// Pull names the pull request as a work item is named, and WorkItem the item; empty to take it off its item.
	Pull, WorkItem string
	// Who says so, and Reason why, for people.
	Who, Reason string
}

// Linked is how a pull request came to its item, or left it.
type Linked struct {
	Pull, WorkItem string
	Rule           Rule
	Detail, Who    string
	At             time.Time
	// Current is true of the latest one of its pull request.
	Current bool
}

// Link says to which work item a pull request belongs from now on, and returns whether that is new. The pull request is asked for at its
// source. One that is not there, or an item that nobody has seen, is fault.NotFound; one at no source of ours is fault.Invalid.
func (p *Poller) Link(ctx context.Context, order Link) (linked Linked, changed bool, err error) {
	if err := plainWord("who", order.Who, maxWho); err != nil {
		return Linked{}, false, err
	}
	if err := plainWord("the reason", order.Reason, maxWhy); err != nil {
		return Linked{}, false, err
	}
	pull, err := workitem.Parse(order.Pull)
	if err != nil {
		return Linked{}, false, err
	}
	detail := "by hand"
	if order.Reason != "" {
		detail += ": " + order.Reason
	}
	ctx, end := obs.Start(ctx, p.config.Tracer, "poll.Link", slog.String(obs.KeyWorkItem, order.WorkItem))
	defer func() { end(err) }()
	w, repository, ok := p.watching(pull)
	if !ok {
		return Linked{}, false, fault.Newf(fault.Invalid, fault.ReasonSourceNotFound, "no source watches the repository of %s", pull).
			WithRemedy("add the repository to a source under poller.sources")
	}
	owner, err := p.owner(ctx, order.WorkItem)
	if err != nil {
		return Linked{}, false, err
	}
	item, err := w.Source.Item(ctx, repository, pull.Number(), true)
	if err != nil {
		return Linked{}, false, err
	}
	if item.Pull == nil {
		return Linked{}, false, fault.Newf(fault.Invalid, fault.ReasonBadWorkItem, "%s is not a pull request", pull)
	}
	return p.config.Ledger.Link(ctx, Record{
		Source: w.Name, Place: PlaceOf(item.Ref), WorkItem: owner.WorkItem, Item: item, Pull: &PullRecord{Rule: RuleByHand, Detail: detail},
	}, order.Who)
}

// owner returns the work item that is meant, as it was first seen; none for none.
func (p *Poller) owner(ctx context.Context, name string) (Owner, error) {
	if name == "" {
		return Owner{}, nil
	}
	ref, err := workitem.Parse(name)
	if err != nil {
		return Owner{}, err
	}
	items, err := p.config.Ledger.Items(ctx, []string{ref.String()})
	if err != nil {
		return Owner{}, err
	}
	owner, ok := items[ref.String()]
	if !ok {
		return Owner{}, fault.Newf(fault.NotFound, fault.ReasonBadWorkItem, "%s is no work item that was seen", ref).
			WithRemedy("put it under muxpost's care first (label it), and wait for the next look")
	}
	return owner, nil
}

// watching returns the source that reads the repository of a ref, and the repository as the configuration has it.
func (p *Poller) watching(ref workitem.Ref) (w Watched, repository string, ok bool) {
	for _, w := range p.config.Sources {
		i := slices.IndexFunc(w.Repositories, func(r string) bool {
			return strings.EqualFold(r, ref.Owner()+"/"+ref.Repo()) && strings.EqualFold(w.Host, ref.Host())
		})
		if i >= 0 {
			return w, w.Repositories[i], true
		}
	}
	return Watched{}, "", false
}
