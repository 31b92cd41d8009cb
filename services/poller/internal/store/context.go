package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// Decide makes one text of a claim and of what waits behind it, where the rule for that says so (coalesce), and puts the context of its item
// behind it, where the agent may lack it: it begins a new conversation, or none ever got it. The text stays what it is from then on, for
// whoever asks about the event. A lease that was lost is fault.Fenced.
func (s *Store) Decide(ctx context.Context, c forward.Claim, goesOn bool) (forward.Claim, error) {
	own := c.Text
	err := db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		c.Text = own // not that of a try that was rolled back
		if _, err := lock(ctx, tx, c); err != nil {
			return err
		}
		if err := s.coalesce(ctx, tx, &c); err != nil {
			return err
		}
		var given bool
		var about poll.Context
		if err := tx.QueryRow(ctx, `select context_at is not null, title, url, body from poller.items where work_item = $1`, c.WorkItem).
			Scan(&given, &about.Title, &about.URL, &about.Body); err != nil {
			return err
		}
		with := !goesOn || !given
		if with {
			var err error
			if about.Comments, about.More, err = s.thread(ctx, tx, c); err != nil {
				return err
			}
			c.Text = poll.WithContext(s.templates, c.Text, about)
		}
		c.Undecided = false
		_, err := exec(ctx, tx, `update poller.events set text = @text, with_context = @with where id = @id`,
			pgx.NamedArgs{"id": c.ID, "text": clean(c.Text), "with": with})
		return err
	})
	return c, err
}

// thread returns the latest comments before an event, oldest first, of people who may still steer, and whether there are earlier ones.
func (s *Store) thread(ctx context.Context, tx pgx.Tx, c forward.Claim) (posts []prompt.Post, more bool, err error) {
	rows, err := tx.Query(ctx, `
select o.source, o.author, o.association, o.excerpt
from poller.events o join poller.events e on e.id = @id
where o.work_item = e.work_item and o.excerpt <> '' and o.deleted_at is null
  and (o.superseded_by = '' or o.reason = @coalesced
    and not exists (select from poller.events n where n.object_key = o.object_key and n.object_key <> '' and n.id > o.id))
  and (o.upstream_at, o.upstream_order, o.id) < (e.upstream_at, e.upstream_order, e.id)
order by o.upstream_at desc, o.upstream_order desc, o.id desc
limit @n`, pgx.NamedArgs{"id": c.ID, "n": poll.ContextComments + 1, "coalesced": ledger.ReasonCoalesced})
	if err != nil {
		return nil, false, err
	}
	var source, author, association, text string
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&source, &author, &association, &text}, func() error {
		if n++; n <= poll.ContextComments && s.maySteer(source, poll.Author{Login: author, Association: association}) {
			posts = append(posts, prompt.Post{Author: author, Body: text})
		}
		return nil
	})
	slices.Reverse(posts)
	return posts, n > poll.ContextComments, err
}

// contextGiven keeps that an event which carries the context was delivered.
func contextGiven(ctx context.Context, tx pgx.Tx, e leased) error {
	_, err := exec(ctx, tx, `
update poller.items i set context_at = now() from poller.events e where e.id = @id and e.with_context and i.work_item = e.work_item`,
		pgx.NamedArgs{"id": e.ID})
	return err
}
