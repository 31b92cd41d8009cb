package poll

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

const (
	// overlap is how far before the newest known change comments are asked for again: upstream times have a resolution of one
	// second, and a change may become visible after a later one.
	overlap = time.Minute
	// settleTime is how long after an item's last change its comments are read again although nothing shows a new change, for
	// the same reason.
	settleTime = time.Minute
	// missingTime is how long a comment has to be missing before it is asked for by itself: a listing may come from a replica that
	// lags behind.
	missingTime = time.Minute
	// The wait after a limit that was named without a time: doubled each time in a row.
	firstWait = time.Minute
	maxWait   = 15 * time.Minute
	// leastWait is the shortest wait after a limit with a time.
	leastWait = time.Second
)

// look is one look at one source.
type look struct {
	ledger   Ledger
	rearmer  Rearmer
	edits    *edits
	watched  Watched
	maker    maker
	began    time.Time
	result   Result
	rounds   *rounds
	known    map[string]RepositoryLook
	ends     []RepositoryEnd
	problems []error
	limit    *fault.Error // set once the source named a limit
}

func (p *Poller) newLook(ctx context.Context, w Watched, began time.Time) *look {
	var err error
	if w.Policy.Own, err = self(ctx, w); w.MentionSelf {
		w.Policy.Mention = w.Policy.Own
	}
	l := &look{
		ledger: p.config.Ledger, rearmer: p.config.Rearmer, edits: &p.edits, rounds: &p.rounds, watched: w, began: began, result: Result{Source: w.Name},
		maker: maker{source: w.Name, provider: w.Provider, policy: w.Policy, budget: p.config.Budget, teams: w.TeamLabels,
			templates: p.config.Templates},
	}
	l.note(err)
	return l
}

// err returns the one problem as it is, and several as one.
func (l *look) err() error {
	switch len(l.problems) {
	case 0:
		return nil
	case 1:
		return l.problems[0]
	}
	first := l.problems[0]
	return fault.Wrap(fault.KindOf(first), fault.ReasonOf(first), "several things could not be read", errors.Join(l.problems...))
}

// note keeps a problem.
func (l *look) note(err error) {
	if err == nil {
		return
	}
	l.problems = append(l.problems, err)
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Throttled {
		l.limit = f
	}
}

// over reports whether asking on would be of no use.
func (l *look) over() bool {
	if len(l.problems) == 0 {
		return false
	}
	last := fault.KindOf(l.problems[len(l.problems)-1])
	return last == fault.Throttled || last == fault.Unavailable
}

// end says how the look went, for the record.
func (l *look) end(before Look) LookEnd {
	e := LookEnd{Repositories: l.ends}
	if l.result.Err != nil {
		e.Problem = l.result.Err.Error()
	}
	if l.limit == nil {
		return e
	}
	e.Wait = max(l.limit.RetryAfter, leastWait)
	if l.limit.RetryAfter == 0 {
		e.Throttles = before.Throttles + 1
		e.Wait = LimitWait(before.Throttles)
	}
	return e
}

// LimitWait returns how long a source is left alone that named a limit without a time, after so many of them in a row.
func LimitWait(before int) time.Duration { return min(firstWait<<min(before, 10), maxWait) }

// repository reads the issues of a repository first: a pull request may belong to one that is seen for the first time. Where the last look did
// not come to the pull requests, they go before the items that no list shows, so that nothing about those can keep them from being read.
func (l *look) repository(ctx context.Context, repository string) {
	listing, err := l.watched.Source.Items(ctx, repository)
	if err != nil {
		l.note(err)
		return
	}
	place, err := l.place(repository)
	if err != nil {
		l.note(err)
		return
	}
	var issues, pulls []Item
	for _, item := range listing.Items {
		if item.Pull != nil {
			pulls = append(pulls, item)
		} else {
			issues = append(issues, item)
		}
	}
	rest := l.issues(ctx, place, issues, listing.At)
	steps := []func(){
		func() { l.others(ctx, repository, place, rest, listing.At) },
		func() { l.pulls(ctx, repository, place, pulls, listing.At) },
	}
	if l.rounds.owe(l.watched.Name, repository) {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if l.over() {
			return
		}
		step()
	}
}

// issues reads those that are listed, and returns the items that are known and that are not.
func (l *look) issues(ctx context.Context, place string, issues []Item, at time.Time) (rest []Known) {
	all, err := l.ledger.Known(ctx, place, nodeIDs(issues))
	if err != nil {
		l.note(err)
		return nil
	}
	known := newIndex(all)
	taken, names := make([]*Known, len(issues)), []string(nil)
	for i, item := range issues {
		if taken[i] = known.take(item); taken[i] != nil {
			names = append(names, taken[i].WorkItem)
		}
	}
	l.rearm(ctx, names)
	for i, item := range issues {
		l.result.Items++
		l.note(l.item(ctx, item, taken[i], at))
		if l.over() {
			return nil
		}
	}
	return known.rest()
}

func nodeIDs(items []Item) []string {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.NodeID
	}
	return ids
}

// rearm has what gave up tried again, of items that are seen.
func (l *look) rearm(ctx context.Context, items []string) {
	_, err := l.rearmer.See(ctx, items)
	l.note(err)
}

// place returns the place of a repository's items.
func (l *look) place(repository string) (string, error) {
	owner, name, _ := strings.Cut(repository, "/")
	ref, err := workitem.New(l.watched.Host, owner, name, "1")
	return PlaceOf(ref), err
}

// item reads one item's own thread if it may have news, and records what they are.
func (l *look) item(ctx context.Context, item Item, k *Known, at time.Time) error {
	if k == nil || !k.Baselined {
		return l.firstSight(ctx, item, k, at)
	}
	full := WantsFull(ctx)
	if !full && k.quiet(item) && k.Closed == !item.Open && len(k.Missing) == 0 {
		return nil
	}
	state, told, err := l.maker.ended(thread{workItem: k.WorkItem, item: item}, item, !k.Closed, k.ClosedUpstream, k.ShownAt)
	if err != nil {
		return err
	}
	since := k.CommentsSince
	if full || k.Waiting || len(k.Missing) > 0 || item.Comments < k.SeenComments {
		since = time.Time{}
	}
	r, err := l.thread(ctx, thread{workItem: k.WorkItem, item: item}, since, k.Missing, time.Time{}, at)
	if err != nil {
		return err
	}
	if told {
		r.Events = append(r.Events, state)
	}
	if r.Events, err = l.withTeam(ctx, thread{workItem: k.WorkItem, item: item}, r.Events); err != nil {
		return err
	}
	r.CommentsSince = latest(k.CommentsSince, r.CommentsSince)
	r.Closed = !item.Open
	return l.record(ctx, r)
}

// firstSight records the opening event and the baseline. Without all the comments there is no first sight: what could not be
// read would later be taken for new.
func (l *look) firstSight(ctx context.Context, item Item, k *Known, at time.Time) error {
	t := thread{workItem: item.Ref.String(), item: item}
	if k != nil {
		t.workItem = k.WorkItem
	}
	posts, err := l.posts(ctx, t, time.Time{})
	if err != nil {
		return err
	}
	events, err := l.opened(ctx, t, posts)
	if err == nil {
		events, err = l.withTeam(ctx, t, events)
	}
	if err != nil {
		return err
	}
	return l.record(ctx, Record{
		WorkItem: t.workItem, Item: item, FirstSight: true, SeenAt: at, CommentsSince: newest(posts), Events: events,
	})
}

// opened makes the events of a first sight, with the editor of the item's own text.
func (l *look) opened(ctx context.Context, t thread, posts []Post) ([]Event, error) {
	events, err := l.maker.firstSight(t, posts)
	if err != nil || events[0].Text == "" || l.maker.policy.trusts(t.item) {
		return events, err
	}
	edits, err := l.askEdits(ctx, []string{t.item.NodeID})
	if err != nil {
		return nil, err
	}
	edit := edits[t.item.NodeID]
	if edit.Edited && l.maker.policy.edited(t.item.Author, orGone(edit.Editor), true) {
		events[0] = l.maker.settled(events[0], ReasonEditor)
		events[0].Detail = explainEdit(orGone(edit.Editor), true)
	}
	return events, nil
}

// withTeam adds what the labels say that have a team run, where an open issue has one. Each time it is put on is an event of its own, however it was
// heard of, so that a run is begun once for each.
func (l *look) withTeam(ctx context.Context, t thread, events []Event) ([]Event, error) {
	if len(t.item.TeamLabels) == 0 || !t.item.Open || l.watched.Graph == nil {
		return events, nil
	}
	put, err := l.watched.Graph.Labelled(ctx, t.item.NodeID, t.item.TeamLabels)
	switch {
	case errors.Is(err, fault.Denied), errors.Is(err, fault.Invalid), errors.Is(err, fault.NotFound):
		// It will not be answered by asking again, and keeps nothing else of the item from being read.
		l.note(err)
		return events, nil
	case err != nil:
		return events, err
	}
	for _, by := range put {
		events = append(events, l.maker.labelled(t, by))
	}
	return events, nil
}

func (l *look) record(ctx context.Context, r Record) error {
	r.Source, r.LookBegan, r.Place = l.watched.Name, l.began, PlaceOf(r.Item.Ref)
	recorded, err := l.ledger.Record(ctx, r)
	l.result.NewEvents += recorded.Pending
	l.result.SettledEvents += recorded.Settled
	return err
}

// quiet reports whether the item looks as it did when its comments were last read, and that was long enough after its last
// change for the change to have been the whole of it.
func (k Known) quiet(item Item) bool {
	return k.Place == PlaceOf(item.Ref) && k.SeenUpdatedAt.Equal(item.UpdatedAt) && k.SeenComments == item.Comments && k.SeenAt.Sub(item.UpdatedAt) >= settleTime
}

// newest returns the newest change of posts, as lists show it: when a review was edited is told by somebody else, perhaps later than what
// the lists show, and they show all reviews whatever is asked for.
func newest(posts []Post) (since time.Time) {
	for _, c := range posts {
		at := c.UpdatedAt
		if c.Kind == KindReview {
			at = c.CreatedAt
		}
		since = latest(since, at)
	}
	return since
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// index finds known items by the provider's id, or by name where that is not known yet.
type index struct {
	byNode map[string]*Known
	byName map[string]*Known
	taken  map[*Known]bool
	order  []*Known
}

func newIndex(all []Known) *index {
	x := &index{byNode: map[string]*Known{}, byName: map[string]*Known{}, taken: map[*Known]bool{}}
	for i := range all {
		k := &all[i]
		x.order = append(x.order, k)
		x.byName[k.WorkItem] = k
		if k.NodeID != "" {
			x.byNode[k.NodeID] = k
		}
	}
	return x
}

// take returns what is known of an item, or nil. A record of the same name that belongs to another item (the repository was
// made anew) is returned by name too: Record refuses it in words.
func (x *index) take(item Item) *Known {
	k := x.byNode[item.NodeID]
	if k == nil {
		k = x.byName[item.Ref.String()]
	}
	if k != nil {
		x.taken[k] = true
	}
	return k
}

// rest returns what was not taken.
func (x *index) rest() []Known {
	var out []Known
	for _, k := range x.order {
		if !x.taken[k] {
			out = append(out, *k)
		}
	}
	return out
}
