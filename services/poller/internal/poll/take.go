package poll

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// Take takes what a source told by itself into the ledger: what was written as it was told, and everything else as the source shows it
// now. It may be called twice, late, and in another order than things happened. An error that is Throttled or Unavailable means that it
// is to be tried again; whatever comes of it, a look finds the same. A source that is not configured is fault.NotFound.
func (p *Poller) Take(ctx context.Context, source string, c Change) (err error) {
	i := slices.IndexFunc(p.config.Sources, func(w Watched) bool { return w.Name == source })
	if i < 0 {
		return fault.Newf(fault.NotFound, fault.ReasonSourceNotFound, "there is no source called %q", line(source))
	}
	ctx, end := obs.Start(ctx, p.config.Tracer, "poll.Change", slog.String(obs.KeySource, source), slog.String(obs.KeyEvent, line(c.Event)),
		slog.String(obs.KeyAction, line(c.Action)))
	defer func() { end(err) }()
	began := p.config.Now()
	l := p.newLook(ctx, p.config.Sources[i], began)
	if err = l.err(); err == nil {
		err = l.take(ctx, c)
	}
	result := l.result
	result.Took = p.config.Now().Sub(began)
	if result.NewEvents > 0 || result.SettledEvents > 0 {
		p.config.Logger.InfoContext(ctx, "new events by webhook", obs.KeySource, source, obs.KeyCount, result.NewEvents, "settled", result.SettledEvents)
	}
	return err
}

func (l *look) take(ctx context.Context, c Change) error {
	place, err := l.place(c.Repository)
	switch {
	case err != nil:
		return err
	case c.Check != nil:
		return l.heardCheck(ctx, c, place)
	case c.Item == nil:
		return nil
	case c.Pull:
		return l.heardPull(ctx, c, place)
	}
	return l.heardIssue(ctx, c, place)
}

// heardIssue takes what was told of an issue that is not a pull request.
func (l *look) heardIssue(ctx context.Context, c Change, place string) error {
	all, err := l.ledger.Known(ctx, place, []string{c.Item.NodeID})
	if err != nil {
		return err
	}
	k := newIndex(all).take(*c.Item)
	if k == nil || !k.Baselined {
		if k == nil && c.Item.Care == "" || !c.Item.Open || c.Deleted && c.Post == nil {
			return nil
		}
		item, err := l.watched.Source.Item(ctx, c.Repository, c.Number, false)
		if errors.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil || !item.Open || item.Care == "" {
			return err // an operator wrote to it, and that is all
		}
		return l.firstSight(ctx, item, k, item.UpdatedAt)
	}
	t := thread{workItem: k.WorkItem, item: *c.Item}
	r := Record{WorkItem: k.WorkItem, Item: *c.Item, Partial: true, Closed: !c.Item.Open}
	if c.Post != nil {
		return l.heardPost(ctx, t, r, c)
	}
	if c.Deleted || k.Closed && c.Item.Open && c.Item.UpdatedAt.Equal(k.ClosedUpstream) {
		// A look says so, and closes it. And what was told of the second in which it was closed may be from before that.
		return nil
	}
	state, told, err := l.maker.ended(t, *c.Item, !k.Closed, k.ClosedUpstream, k.ShownAt)
	if err != nil {
		return err
	}
	if told {
		r.Events = append(r.Events, state)
	}
	if r.Events, err = l.withTeam(ctx, t, r.Events); err != nil {
		return err
	}
	return l.record(ctx, r)
}

// heardPull takes what was told of a pull request. One that we do not know, or whose thread was never read, is read.
func (l *look) heardPull(ctx context.Context, c Change, place string) error {
	all, err := l.ledger.KnownPulls(ctx, place, []string{c.Item.NodeID})
	if err != nil {
		return err
	}
	var k KnownPull
	there := false
	if i := slices.IndexFunc(all, func(k KnownPull) bool { return k.NodeID == c.Item.NodeID }); i >= 0 {
		k, there = all[i], true
	}
	if k.WorkItem == "" || k.SeenAt.IsZero() || c.Post == nil {
		item, err := l.watched.Source.Item(ctx, c.Repository, c.Number, true)
		if errors.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil || !there && !item.Open {
			return err
		}
		return l.pull(ctx, item, k, there, item.UpdatedAt)
	}
	item := *c.Item
	if item.Pull != nil && item.Pull.HeadSHA == "" {
		// A comment's payload shows a pull request as an issue: nothing of its head.
		item.Pull = nil
	}
	t := thread{workItem: k.WorkItem, item: item, pull: item.Ref.String(), node: item.NodeID}
	return l.heardPost(ctx, t, Record{WorkItem: k.WorkItem, Item: item, Partial: true, Pull: &PullRecord{}}, c)
}

// heardPost takes something that was written, edited or deleted in a thread that was read before.
func (l *look) heardPost(ctx context.Context, t thread, r Record, c Change) error {
	r.Aside = true
	if c.Deleted {
		r.Deleted = []Event{l.maker.postEvent(t, *c.Post)}
		return l.record(ctx, r)
	}
	posts := []Post{*c.Post}
	if c.Post.Kind == KindReview && !c.First {
		var err error
		if posts, err = l.asShown(ctx, c); err != nil {
			return err
		}
	}
	if err := l.whoEdited(ctx, posts, t.item.UpdatedAt); err != nil {
		return err
	}
	events, err := l.maker.later(t, posts, time.Time{})
	if err != nil {
		return err
	}
	for i := range events {
		events[i].First = c.First
	}
	r.Events = events
	return l.record(ctx, r)
}

// asShown returns a review as the source shows it now. Its payload tells no time of its changes, so that nothing says which of two is the later
// one.
func (l *look) asShown(ctx context.Context, c Change) ([]Post, error) {
	posts, err := l.watched.Source.Posts(ctx, c.Repository, c.Number, true, c.Item.UpdatedAt)
	return slices.DeleteFunc(posts, func(p Post) bool { return p.NodeID != c.Post.NodeID }), err
}

// heardCheck takes a result of CI: of a pull request of ours at whose head it is, or was. Which commit that is, is asked.
func (l *look) heardCheck(ctx context.Context, c Change, place string) error {
	if !c.Check.failed() {
		return nil
	}
	pulls, err := l.ledger.PullsAt(ctx, place, c.Check.SHA, c.Pulls)
	if err != nil {
		return err
	}
	for _, k := range pulls {
		item, err := l.watched.Source.Item(ctx, c.Repository, k.Number, true)
		if err != nil {
			return err
		}
		if item.Pull == nil || item.NodeID != k.NodeID || !item.Open || !l.mayTell(item, k.Rule) {
			continue
		}
		t := thread{workItem: k.WorkItem, item: item, pull: item.Ref.String(), node: item.NodeID}
		e, failed, err := l.maker.check(t, *c.Check, item.Pull.HeadSHA)
		if err != nil || !failed {
			return err
		}
		r := Record{WorkItem: k.WorkItem, Item: item, Events: []Event{e}, Pull: &PullRecord{}, Partial: true}
		state, told, err := l.maker.ended(t, item, k.Open, k.ClosedUpstream, k.ShownAt)
		if err != nil {
			return err
		}
		if told {
			r.Events = append(r.Events, state)
		}
		if err := l.record(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
