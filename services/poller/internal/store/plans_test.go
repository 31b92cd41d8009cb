package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// What grows for months, or for good, is not read to its end for what is new: these hold the statements to their plans.

// plan is how a statement would be carried out on the rows that there are, where an index serves it, and with other ways switched off.
func (w *world) plan(t *testing.T, statement string, args pgx.NamedArgs, off ...string) string {
	t.Helper()
	var lines []string
	must(t, db.InTx(t.Context(), w.pool, func(tx pgx.Tx) error {
		for _, way := range append(off, "enable_seqscan") {
			if _, err := tx.Exec(t.Context(), "set local "+way+" = off"); err != nil {
				return err
			}
		}
		rows, err := tx.Query(t.Context(), "explain "+statement, args)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return strings.Join(lines, "\n")
}

// goesBy holds a plan to what it has to read, and to no more.
func goesBy(t *testing.T, what, plan string, has ...string) {
	t.Helper()
	for _, words := range has {
		if !strings.Contains(plan, words) {
			t.Errorf("%s does not go by %q:\n%s", what, words, plan)
		}
	}
}

// history fills the ledger with events of one item that ended long ago, and a few others.
func (w *world) history(t *testing.T) {
	t.Helper()
	w.add(t, ref(t, 1))
	w.sql(t, `insert into poller.events (delivery_id, natural_key, work_item, source, kind, text, upstream_at, state, reason, budget)
select 'd' || n, 'k' || n, $1, 'gh', 'comment', repeat('x', 400), now(), case when n % 2 = 0 then 'delivered' else 'settled' end,
  case when n % 1000 = 0 then 'own' when n % 2 = 0 then '' else 'not_addressed' end, 3
from generate_series(1, 20000) as n`, ref(t, 1).String())
	w.sql(t, `analyze poller.events`)
}

func TestForget_ReadsWhatIsOldEnoughAlone(t *testing.T) {
	w := newWorld(t)
	w.history(t)
	goesBy(t, "forgetting", w.plan(t, forgetStatement, pgx.NamedArgs{
		"keep": 24 * time.Hour, "cancelled": keepCancelled, "unconfirmed": ledger.ReasonUnconfirmed, "n": forgetBatch,
	}), "Index Scan using events_finished", "Index Cond: (updated_at < ")
}

func TestPulls_WhatIsOverIsNotReadForWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	place := poll.PlaceOf(item)
	w.sql(t, `insert into poller.pulls (node_id, source, place, number, work_item, state, head_sha)
select 'P' || n, 'gh', $1, n, $2, case when n % 2000 = 0 then 'open' else 'merged' end, md5(n::text) from generate_series(1, 20000) as n`, place, item.String())
	w.sql(t, `analyze poller.pulls`)
	open := pgx.NamedArgs{"place": place, "nodes": []string{"P7"}}
	goesBy(t, "what is open", w.plan(t, pullsStatement(openPulls), open), "pulls_open", "pulls_pkey")
	head := pgx.NamedArgs{"place": place, "sha": "x", "numbers": []int64{7}}
	goesBy(t, "what is at a commit", w.plan(t, pullsStatement(pullsOfHead), head), "pulls_head", "pulls_place")
	known, err := w.KnownPulls(t.Context(), place, []string{"P7"})
	must(t, err)
	equal(t, "open, and the one that was named", len(known), 11)
	var sha string
	must(t, w.pool.QueryRow(t.Context(), `select head_sha from poller.pulls where number = 9`).Scan(&sha))
	known, err = w.PullsAt(t.Context(), place, sha, []uint64{7})
	must(t, err)
	equal(t, "at the commit, and the one that was named", len(known), 2)
}

func TestLinks_OfOnePullRequestAreFoundByItsName(t *testing.T) {
	w := newWorld(t)
	item := ref(t, 1)
	w.add(t, item)
	place := poll.PlaceOf(item)
	w.sql(t, `insert into poller.links (pull_node_id, place, number, work_item, rule)
select 'P' || n, $1, n, case when n > 19990 then $2 end, 'branch' from generate_series(1, 20000) as n`, place, item.String())
	w.sql(t, `analyze poller.links`)
	statement, args := linksStatement(fmt.Sprint(place, "#17"), 100)
	goesBy(t, "a pull request's history", w.plan(t, statement, args), "links_place", "links_item")
	for of, want := range map[string]int{"": 100, fmt.Sprint(place, "#17"): 1, item.String(): 11, "github:octo/other#17": 0, place: 0, place + "#x": 0} {
		links, err := w.Links(t.Context(), of, 100)
		must(t, err)
		equal(t, "links of "+of, len(links), want)
	}
}

func TestLedger_IsCountedAndListedByReasonWithoutItsTexts(t *testing.T) {
	w := newWorld(t)
	w.history(t)
	where, args := conditions(poll.Filter{})
	// What of the index alone can be believed is known once the table was vacuumed, which is no affair of a test.
	goesBy(t, "the count of all", w.plan(t, countStatement(where), args, "enable_bitmapscan"), "Index Only Scan using events_by_reason")
	where, args = conditions(poll.Filter{Reason: "own", Limit: 50})
	goesBy(t, "a list by reason", w.plan(t, listStatement(where), args), "events_by_reason", "Index Cond: (reason = ")
}
