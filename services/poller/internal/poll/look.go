package poll

import (
	"context"
	"errors"
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
	watched  Watched
	maker    maker
	began    time.Time
	result   Result
	read     []string
	problems []error
	limit    *fault.Error // set once the source named a limit
}

func (p *Poller) newLook(w Watched, began time.Time) *look {
	return &look{
		ledger: p.config.Ledger, rearmer: p.config.Rearmer, watched: w, began: began, result: Result{Source: w.Name},
		maker: maker{source: w.Name, provider: w.Provider, policy: w.Policy, budget: p.config.Budget},
	}
}

// run reads every repository. One that cannot be read does not keep the others from being read, unless it is the source
// itself that does not answer, or that wants to be left alone.
func (l *look) run(ctx context.Context) {
	for _, repository := range l.watched.Repositories {
		before := len(l.problems)
		l.repository(ctx, repository)
		if len(l.problems) == before {
			l.read = append(l.read, repository)
		}
		if l.over() {
			break
		}
	}
	l.result.Err = l.err()
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
	e := LookEnd{Read: l.read}
	if l.result.Err != nil {
		e.Problem = l.result.Err.Error()
	}
	if l.limit == nil {
		return e
	}
	e.Wait = max(l.limit.RetryAfter, leastWait)
	if l.limit.RetryAfter == 0 {
		e.Throttles = before.Throttles + 1
		e.Wait = min(firstWait<<min(before.Throttles, 10), maxWait)
	}
	return e
}

func (l *look) repository(ctx context.Context, repository string) {
	listing, err := l.watched.Source.Items(ctx, repository)
	if err != nil {
		l.note(err)
		return
	}
	nodeIDs := make([]string, len(listing.Items))
	for i, item := range listing.Items {
		nodeIDs[i] = item.NodeID
	}
	place, err := l.place(repository)
	if err != nil {
		l.note(err)
		return
	}
	all, err := l.ledger.Known(ctx, place, nodeIDs)
	if err != nil {
		l.note(err)
		return
	}
	known := newIndex(all)
	taken, names := make([]*Known, len(listing.Items)), []string(nil)
	for i, item := range listing.Items {
		if taken[i] = known.take(item); taken[i] != nil {
			names = append(names, taken[i].WorkItem)
		}
	}
	l.rearm(ctx, names)
	for i, item := range listing.Items {
		l.result.Items++
		l.note(l.item(ctx, item, taken[i], listing.At))
		if l.over() {
			return
		}
	}
	l.others(ctx, repository, place, known.rest(), listing.At)
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

// others looks at the items that we know and the listing does not show: the label was taken off, or they are closed or gone.
func (l *look) others(ctx context.Context, repository, place string, rest []Known, at time.Time) {
	for _, k := range rest {
		if k.Closed || !k.Baselined {
			continue
		}
		item, err := l.watched.Source.Item(ctx, repository, k.Number, false)
		gone := errors.Is(err, fault.NotFound) || err == nil && item.NodeID != k.NodeID
		switch {
		case gone:
			_, err = l.ledger.Record(ctx, Record{
				Source: l.watched.Name, LookBegan: l.began, WorkItem: k.WorkItem, Place: place, Closed: true,
				SeenAt: k.SeenAt, CommentsSince: k.CommentsSince,
				Item: Item{NodeID: k.NodeID, Repository: repository, UpdatedAt: k.SeenUpdatedAt, Comments: k.SeenComments},
			})
		case err == nil:
			l.result.Items++
			l.rearm(ctx, []string{k.WorkItem})
			err = l.item(ctx, item, &k, at)
		}
		l.note(err)
		if l.over() {
			return
		}
	}
}

// item reads one item's comments if it may have news, and records what they are. All of them are read while one is on its way or
// missing, and when there are fewer than before: that one is no longer among them shows only then.
func (l *look) item(ctx context.Context, item Item, k *Known, at time.Time) error {
	if k == nil || !k.Baselined {
		return l.firstSight(ctx, item, k, at)
	}
	if k.quiet(item) && k.Closed == !item.Open && len(k.Missing) == 0 {
		return nil
	}
	since := k.CommentsSince
	if k.Waiting || len(k.Missing) > 0 || item.Comments < k.SeenComments {
		since = time.Time{}
	}
	complete := since.IsZero()
	if !complete {
		since = since.Add(-overlap)
	}
	comments, err := l.watched.Source.Posts(ctx, item.Repository, item.Ref.Number(), item.Pull != nil, since)
	if err != nil {
		return err
	}
	events, err := l.maker.later(k.WorkItem, item, comments)
	if err != nil {
		return err
	}
	var gone []string
	if complete {
		if gone, err = l.gone(ctx, item, k.Missing, events, at); err != nil {
			return err
		}
	}
	return l.record(ctx, Record{
		WorkItem: k.WorkItem, Item: item, SeenAt: at, CommentsSince: newest(k.CommentsSince, comments), Closed: !item.Open, Events: events,
		Complete: complete, Gone: gone,
	})
}

// gone asks for the comments that have been missing for long enough and are not listed now either, each by itself, and returns those
// that are gone. One listing alone proves nothing: it may be older than the one before.
func (l *look) gone(ctx context.Context, item Item, missing []Missing, listed []Event, at time.Time) (gone []string, err error) {
	there := make(map[string]bool, len(listed))
	for _, e := range listed {
		there[ObjectOf(e.Key)] = true
	}
	for _, m := range missing {
		if there[m.Object] || at.Sub(m.Since) < missingTime {
			continue
		}
		found, err := l.watched.Source.HasPost(ctx, item.Repository, item.Ref.Number(), KindComment, m.ID)
		if err != nil {
			return nil, err
		}
		if !found {
			gone = append(gone, m.Object)
		}
	}
	return gone, nil
}

// firstSight records the opening event and the baseline. Without all the comments there is no first sight: what could not be
// read would later be taken for new.
func (l *look) firstSight(ctx context.Context, item Item, k *Known, at time.Time) error {
	workItem := item.Ref.String()
	if k != nil {
		workItem = k.WorkItem
	}
	comments, err := l.watched.Source.Posts(ctx, item.Repository, item.Ref.Number(), item.Pull != nil, time.Time{})
	if err != nil {
		return err
	}
	events, err := l.maker.firstSight(workItem, item, comments)
	if err != nil {
		return err
	}
	return l.record(ctx, Record{
		WorkItem: workItem, Item: item, FirstSight: true, SeenAt: at, CommentsSince: newest(time.Time{}, comments), Events: events,
	})
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
	return k.SeenUpdatedAt.Equal(item.UpdatedAt) && k.SeenComments == item.Comments && k.SeenAt.Sub(item.UpdatedAt) >= settleTime
}

func newest(since time.Time, comments []Post) time.Time {
	for _, c := range comments {
		if c.UpdatedAt.After(since) {
			since = c.UpdatedAt
		}
	}
	return since
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
