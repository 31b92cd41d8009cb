package poll

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// othersTime is how long a look asks for the items of one repository that no list shows.
const othersTime = LookTime / 5

// others looks at the items that we know and the listing does not show: the label was taken off, or they are closed or gone. Each takes a
// request of its own, so they take turns: a look begins behind where the one before it got to. One over which the look came to its end
// goes first in the next, unless it did so already.
func (l *look) others(ctx context.Context, repository, place string, rest []Known, at time.Time) {
	rest = slices.DeleteFunc(rest, func(k Known) bool { return k.Closed || !k.Baselined })
	slices.SortFunc(rest, func(a, b Known) int { return cmp.Compare(a.Number, b.Number) })
	part, cancel := context.WithTimeout(ctx, othersTime)
	defer cancel()
	for i, k := range l.rounds.inTurn(l.watched.Name, repository, rest) {
		if part.Err() != nil {
			return
		}
		l.note(l.other(ctx, repository, place, k, at))
		if i == 0 || !l.over() {
			l.rounds.came(l.watched.Name, repository, k.Number)
		}
		if l.over() {
			return
		}
	}
}

// other asks for one item by itself.
func (l *look) other(ctx context.Context, repository, place string, k Known, at time.Time) error {
	item, err := l.watched.Source.Item(ctx, repository, k.Number, false)
	switch {
	case errors.Is(err, fault.NotFound), err == nil && item.NodeID != k.NodeID:
		_, err = l.ledger.Record(ctx, Record{
			Source: l.watched.Name, LookBegan: l.began, WorkItem: k.WorkItem, Place: place, Closed: true,
			SeenAt: k.SeenAt, CommentsSince: k.CommentsSince,
			Item: Item{NodeID: k.NodeID, Repository: repository, UpdatedAt: k.SeenUpdatedAt, Comments: k.SeenComments},
		})
		return err
	case err != nil:
		return err
	}
	l.result.Items++
	l.rearm(ctx, []string{k.WorkItem})
	return l.item(ctx, item, &k, at)
}
