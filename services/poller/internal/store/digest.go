package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// queueLimit is how many of the events that wait are looked at for one text.
const queueLimit = 4 * prompt.MaxEntries

// queued is an event of an item's queue.
type queued struct {
	id         int64
	url, title string
	text       string
	excerpt    string
	rule       ledger.Queued
}

// coalesce makes one text of a claim that was never asked about and of what waits behind it, where the rule says so. What joins it is settled
// in the transaction in which its text is written: nothing is ever in two texts, or in none.
func (s *Store) coalesce(ctx context.Context, tx pgx.Tx, c *forward.Claim) error {
	if s.coalescing.After == 0 && !s.coalescing.Together {
		return nil
	}
	queue, err := lockQueue(ctx, tx, *c)
	if err != nil || len(queue) < 2 || queue[0].id != c.ID {
		return err
	}
	behind := make([]ledger.Queued, len(queue)-1)
	for i, q := range queue[1:] {
		behind[i] = q.rule
	}
	taken := ledger.Coalesce(queue[0].rule, behind, s.coalescing)
	if len(taken) == 0 {
		return nil
	}
	all, ids := []prompt.Entry{queue[0].entry()}, make([]int64, len(taken))
	for n, i := range taken {
		all, ids[n] = append(all, queue[1+i].entry()), queue[1+i].id
	}
	text, err := s.templates.Render(prompt.Digest, prompt.Data{WorkItem: c.WorkItem, Title: queue[0].title, Entries: all}, rand.Text())
	if err != nil {
		return err
	}
	c.Text = text
	_, err = exec(ctx, tx, `
update poller.events
set state = 'settled', reason = @reason, detail = @detail, superseded_by = @head, next_look = null, armed_for = '', updated_at = clock_timestamp()
where id = any(@ids)`, pgx.NamedArgs{
		"ids": ids, "reason": ledger.ReasonCoalesced, "head": c.DeliveryID,
		"detail": fmt.Sprintf("what it says is a part of the delivery %s, with %d others of its item", c.DeliveryID, len(taken)),
	})
	return err
}

// lockQueue locks what waits of an item, the claim first, and returns it in order. What may have been asked about has its context decided, and
// so have those whose text is no one else's words in a frame: the opening, and what an operator wrote.
func lockQueue(ctx context.Context, tx pgx.Tx, c forward.Claim) ([]queued, error) {
	rows, err := tx.Query(ctx, `
select id, url, title, text, excerpt, together, kind not in ('opened', 'message') and text <> '' and deleted_at is null and superseded_by = '',
  with_context is not null or state = 'held'
from poller.events
where work_item = @item and state in ('pending', 'leased', 'held')
order by state = 'leased' desc, reason = '', upstream_at, upstream_order, id
limit @n
for update`, pgx.NamedArgs{"item": c.WorkItem, "n": queueLimit})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q queued, err error) {
		err = row.Scan(&q.id, &q.url, &q.title, &q.text, &q.excerpt, &q.rule.Together, &q.rule.Framed, &q.rule.Asked)
		return q, err
	})
}

// entry is an event as a part of a digest: the first line of its text is ours.
func (q queued) entry() prompt.Entry {
	what, _, _ := strings.Cut(q.text, "\n")
	return prompt.Entry{What: what, URL: q.url, Text: q.excerpt}
}

// giveBack gives what became a part of an event's text its own turn again, because that text will never be delivered: the event was deleted
// or edited upstream. typed says that the text was typed, and that nothing shows whether it arrived: then a person has to look, as with any
// other. asked says that it may have arrived: then the text of each says so. What was deleted meanwhile stays so.
func giveBack(ctx context.Context, tx pgx.Tx, head string, typed, asked bool) error {
	n, err := exec(ctx, tx, `
update poller.events
set state = case when deleted_at is not null then 'cancelled' when @typed then 'settled' else 'pending' end,
  reason = case when deleted_at is not null then @deleted when @typed then @unconfirmed else '' end,
  detail = case when deleted_at is not null then @gone::text when @typed then @doubt::text else '' end,
  text = case when @asked and not @typed then split_part(text, e'\n', 1) || @perhaps || substr(text, length(split_part(text, e'\n', 1)) + 1) else text end,
  next_look = case when deleted_at is null and not @typed then now() end,
  superseded_by = '', updated_at = clock_timestamp()
where superseded_by = @head and reason = @coalesced and state = 'settled'`, pgx.NamedArgs{
		"head": head, "typed": typed, "asked": asked, "deleted": ledger.ReasonDeleted, "unconfirmed": ledger.ReasonUnconfirmed,
		"coalesced": ledger.ReasonCoalesced, "gone": deletedDetail, "perhaps": poll.PerhapsTold,
		"doubt": "it was a part of the text of " + head + ", which was typed, and nothing shows whether it arrived",
	})
	if err == nil && n > 0 {
		_, err = exec(ctx, tx, `select pg_notify(@channel, '')`, pgx.NamedArgs{"channel": channel})
	}
	return err
}

// giveBackOf is giveBack for an event that is not leased and is about to be cancelled, or was dropped and will not be tried again.
func giveBackOf(ctx context.Context, tx pgx.Tx, id int64) error {
	var head string
	var typed, asked bool
	if err := tx.QueryRow(ctx, `select delivery_id, unproven_since is not null, silences > 0 from poller.events where id = $1`, id).
		Scan(&head, &typed, &asked); err != nil {
		return err
	}
	return giveBack(ctx, tx, head, typed, asked)
}
