package attention

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/cmd/muxpost/internal/why"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// loopGap is how long nothing more was dropped for having been too much before it is another matter.
const loopGap = time.Hour

func (f *finder) ended() {
	for _, row := range f.Ended {
		e, since := f.event(row), row.GetUpdateTime().AsTime()
		e.Since = &since
		switch {
		case since.Before(f.EndedAfter), loop(row):
			continue
		case row.GetState() == pollerv1.LedgerState_LEDGER_STATE_DROPPED:
			e.Kind = Dropped
			e.Remedy = why.WithRetry(e.Remedy, e.DeliveryID)
		case row.GetState() == pollerv1.LedgerState_LEDGER_STATE_GAVE_UP:
			e.Kind = GaveUp
			e.Why = "its tries are spent; the last answer: " + e.Why
			e.Remedy = why.WithRetry(e.Remedy, e.DeliveryID)
		case row.GetState() == pollerv1.LedgerState_LEDGER_STATE_SETTLED && row.GetReason() == "unconfirmed":
			e.Kind, e.Look = Unconfirmed, attach(row.GetWorkItem())
			explained, _ := why.Of(row.GetReason())
			e.Remedy = strings.ReplaceAll(explained.Remedy, why.DeliveryID, e.DeliveryID)
		default:
			continue
		}
		f.add(e)
	}
}

// loop reports whether a row was dropped because too much was written about its item.
func loop(row *pollerv1.LedgerEntry) bool {
	return row.GetState() == pollerv1.LedgerState_LEDGER_STATE_DROPPED && row.GetReason() == "loop"
}

// loops tells of what was too much about an item once, however much it was, until nothing more of it came for loopGap.
func (f *finder) loops() {
	rows := slices.DeleteFunc(slices.Clone(f.Ended), func(row *pollerv1.LedgerEntry) bool {
		return !loop(row) || row.GetUpdateTime().AsTime().Before(f.EndedAfter)
	})
	slices.SortStableFunc(rows, func(a, b *pollerv1.LedgerEntry) int {
		return cmp.Or(cmp.Compare(a.GetWorkItem(), b.GetWorkItem()), a.GetUpdateTime().AsTime().Compare(b.GetUpdateTime().AsTime()),
			cmp.Compare(a.GetDeliveryId(), b.GetDeliveryId()))
	})
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].GetWorkItem() == rows[0].GetWorkItem() &&
			rows[n].GetUpdateTime().AsTime().Sub(rows[n-1].GetUpdateTime().AsTime()) <= loopGap {
			n++
		}
		f.add(f.loop(rows[:n]))
		rows = rows[n:]
	}
}

func (f *finder) loop(rows []*pollerv1.LedgerEntry) Entry {
	e, item := f.event(rows[0]), view.Quote(rows[0].GetWorkItem())
	e.Kind, e.Since = Dropped, timeOf(rows[0].GetUpdateTime())
	var authors []string
	for _, row := range rows {
		if a := row.GetAuthor(); a != "" && !slices.Contains(authors, a) {
			authors = append(authors, a)
		}
	}
	e.Why = view.Count(len(rows), "post about it is", "posts about it are") + " not delivered, because more was written within minutes than people " +
		"write; that looks like programs that answer each other"
	if len(authors) > 0 {
		e.Why += ": " + strings.Join(authors[:min(len(authors), 5)], ", ")
	}
	list := "muxpost ledger " + item + " --state dropped --reason loop"
	e.Remedy = "see what writes there, and stop it; muxpost retry " + e.DeliveryID + " delivers the first of them, muxpost done lets one go"
	if len(rows) > 1 {
		e.Look = list
	}
	return e
}
