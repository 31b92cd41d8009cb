package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// keepHandled is how long the id of a message that was handled is known. GitHub sends one again for three days at most; the rest is for
	// clocks that do not agree.
	keepHandled = 7 * 24 * time.Hour
	// keepHook is how long any other is kept: one that failed for a person to look at, one that waits for a source that nobody watches any more.
	keepHook = 30 * 24 * time.Hour
)

var _ hook.Inbox = (*Store)(nil)

// One that had failed waits again: somebody had it sent again, which is how it is retried.
const putHooks = `
insert into poller.hooks as h (source, guid, event, action, repository, number, sha, object, payload)
select source, guid, event, action, lower(repository), number, sha, object, payload
from unnest(@sources::text[], @guids::text[], @events::text[], @actions::text[], @repositories::text[], @numbers::bigint[], @shas::text[],
  @objects::text[], @payloads::bytea[]) with ordinality as a (source, guid, event, action, repository, number, sha, object, payload, n)
order by n
on conflict (source, guid) do update
set state = 'waiting', tries = 0, last_error = '', next_look = now(), ended_at = null, payload = excluded.payload, received_at = clock_timestamp()
where h.state = 'failed'
returning source, guid`

// Put writes messages down, all or none, and reports of each whether it was there before. No two of them have the same id.
func (s *Store) Put(ctx context.Context, arrivals []hook.Arrival) ([]bool, error) {
	n := len(arrivals)
	texts := map[string][]string{}
	numbers, payloads := make([]int64, n), make([][]byte, n)
	for i, a := range arrivals {
		for name, text := range map[string]string{"sources": a.Source, "guids": a.GUID, "events": a.Event, "actions": a.Action,
			"repositories": a.Repository, "shas": a.SHA, "objects": a.Object} {
			texts[name] = append(texts[name], text)
		}
		numbers[i], payloads[i] = int64(a.Number), a.Payload
	}
	args := pgx.NamedArgs{"numbers": numbers, "payloads": payloads}
	for name, list := range texts {
		args[name] = list
	}
	var fresh map[[2]string]bool
	var err error
	// Two that write the same messages in another order may stand in each other's way.
	for try := 1; ; try++ {
		if fresh, err = s.put(ctx, args); db.SQLState(err) != "40P01" || try == claimTries {
			break
		}
	}
	if err != nil {
		return nil, db.Fault(err)
	}
	known := make([]bool, n)
	for i, a := range arrivals {
		known[i] = !fresh[[2]string{a.Source, a.GUID}]
	}
	return known, nil
}

func (s *Store) put(ctx context.Context, args pgx.NamedArgs) (map[[2]string]bool, error) {
	rows, err := s.quiet.Query(ctx, putHooks, args)
	if err != nil {
		return nil, err
	}
	fresh := map[[2]string]bool{}
	var key [2]string
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1]}, func() error {
		fresh[key] = true
		return nil
	})
	return fresh, err
}

// Watch says which sources' webhooks are taken from now on, and which are no more.
func (s *Store) Watch(ctx context.Context, on, off []string) error {
	return db.InTx(ctx, s.quiet, func(tx pgx.Tx) error {
		_, err := exec(ctx, tx, `insert into poller.hook_sources (source) select unnest(@on::text[]) on conflict do nothing`, pgx.NamedArgs{"on": on})
		if err != nil {
			return err
		}
		_, err = exec(ctx, tx, `delete from poller.hook_sources where source = any(@off::text[])`, pgx.NamedArgs{"off": off})
		return err
	})
}

// As for events: the conditions stand on the row that is locked, and one that is leased comes first in its thread, whatever was written
// down late. A limit of the source's goes along and holds nothing back: only who handles a message knows whether he has to ask.
const claimHooks = `
with heads as (
  select distinct on (source, thread) id
  from poller.hooks
  where state = 'waiting' and source = any(@sources::text[])
  order by source, thread, (lease_holder is not null) desc, id
), due as (
  select h.id, h.source
  from poller.hooks h
  where h.id in (select id from heads) and h.state = 'waiting' and h.next_look <= now() and coalesce(h.lease_until <= now(), true)
  order by h.id
  limit @n
  for update of h skip locked
)
update poller.hooks h
set lease_holder = @lease, lease_until = clock_timestamp() + @time, tries = h.tries + 1
from due left join poller.sources s on s.name = due.source
where h.id = due.id
returning h.id, h.source, h.guid, h.event, h.action, h.repository, h.number, h.sha, h.object, h.payload, h.tries, h.received_at,
  clock_timestamp() - h.received_at, greatest(s.not_before - clock_timestamp(), interval '0')`

// ClaimHooks leases up to n messages that are due, each the first of its thread that waits. One whose lease has ended is due.
func (s *Store) ClaimHooks(ctx context.Context, sources []string, n int, lease time.Duration) ([]hook.Hook, error) {
	for try := 1; ; try++ {
		claims, err := s.claimHooks(ctx, sources, n, lease)
		if !errors.Is(err, fault.AlreadyExists) || try == claimTries {
			return claims, err
		}
	}
}

func (s *Store) claimHooks(ctx context.Context, sources []string, n int, lease time.Duration) ([]hook.Hook, error) {
	h := hook.Hook{Lease: s.holder + "/" + uuid.NewString()}
	rows, err := s.quiet.Query(ctx, claimHooks, pgx.NamedArgs{"sources": sources, "n": n, "lease": h.Lease, "time": lease})
	if err != nil {
		return nil, db.Fault(err)
	}
	var claims []hook.Hook
	var number int64
	_, err = pgx.ForEachRow(rows, []any{&h.ID, &h.Source, &h.GUID, &h.Event, &h.Action, &h.Repository, &number, &h.SHA, &h.Object, &h.Payload,
		&h.Tries, &h.ReceivedAt, &h.Age, &h.Limited}, func() error {
		h.Number = uint64(number)
		claims = append(claims, h)
		h.Payload = nil // the next row must not be read into this one's
		return nil
	})
	return claims, db.Fault(err)
}

// EndHook writes down what became of a message. What was handled keeps its id alone.
func (s *Store) EndHook(ctx context.Context, h hook.Hook, end hook.End) error {
	if end.Limited {
		if err := s.limit(ctx, h.Source, end.Limit); err != nil {
			return err
		}
	}
	n, err := exec(ctx, s.quiet, `
update poller.hooks
set state = @state, next_look = clock_timestamp() + @wait, last_error = @problem, lease_holder = null, lease_until = null,
  payload = case when @state <> 'done' then payload end, ended_at = case when @state <> 'waiting' then clock_timestamp() end
where id = @id and lease_holder = @lease and state = 'waiting'`, pgx.NamedArgs{
		"id": h.ID, "lease": h.Lease, "state": string(end.State), "wait": end.Wait, "problem": clean(end.Problem),
	})
	if err == nil && n == 0 {
		return fault.New(fault.Fenced, fault.ReasonLeaseLost, "the message's lease ended and somebody else has it")
	}
	return err
}

// limit writes down that a source wants to be left alone, by whoever heard it. One that does not say for how long is left alone as a look
// leaves it, longer each time in a row; of several who hear it at once the first counts.
func (s *Store) limit(ctx context.Context, source string, wait time.Duration) error {
	return db.InTx(ctx, s.quiet, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"name": source, "wait": wait}
		if _, err := exec(ctx, tx, `insert into poller.sources (name) values (@name) on conflict do nothing`, args); err != nil {
			return err
		}
		var limited bool
		var throttles int
		if err := tx.QueryRow(ctx, `
select coalesce(not_before > clock_timestamp(), false), throttles from poller.sources where name = @name for update`, args).Scan(&limited, &throttles); err != nil {
			return err
		}
		if wait == 0 {
			if limited {
				return nil
			}
			args["wait"] = poll.LimitWait(throttles)
			throttles++
		}
		args["throttles"] = throttles
		_, err := exec(ctx, tx, `
update poller.sources set not_before = greatest(not_before, clock_timestamp() + @wait), throttles = @throttles where name = @name`, args)
		return err
	})
}

// Of what happened before webhooks were taken nothing is expected. The clocks of the source and of the database need not agree, so a
// webhook that came in a little before the event happened has told it too.
const findGap = `
with found as (
  select coalesce(e.revised_at, e.upstream_at) as at, split_part(e.natural_key, '|', 4) as object
  from poller.events e
  where e.source = @source and e.kind = any(@kinds::text[]) and e.reason <> @baselined
    and e.created_at > @after::timestamptz and e.created_at <= @through::timestamptz
)
select count(*), min(f.at), max(f.at)
from found f
where f.at >= @since::timestamptz
  and not exists (select from poller.hooks h where h.source = @source and h.object = f.object and h.received_at >= f.at - @grace::interval)`

// FindGap returns what looks at a source found a grace ago, since the last call, and which no message has told since it happened. One that
// waits, or that failed, has told it.
func (s *Store) FindGap(ctx context.Context, source string, grace time.Duration) (gap hook.Gap, err error) {
	err = db.InTx(ctx, s.quiet, func(tx pgx.Tx) error {
		gap = hook.Gap{}
		var since, after, through time.Time
		err := tx.QueryRow(ctx, `
select since, checked_through, clock_timestamp() - @grace::interval from poller.hook_sources where source = @source for update skip locked`,
			pgx.NamedArgs{"source": source, "grace": grace}).Scan(&since, &after, &through)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // another process is at it
		}
		if err != nil || !through.After(after) {
			return err
		}
		args := pgx.NamedArgs{
			"source": source, "since": since, "after": after, "through": through, "grace": grace, "baselined": ledger.ReasonBaselined,
			"kinds": []string{poll.KindOpened, poll.KindComment, poll.KindReview, poll.KindReviewComment},
		}
		var from, to *time.Time
		if err := tx.QueryRow(ctx, findGap, args).Scan(&gap.Count, &from, &to); err != nil {
			return err
		}
		gap.From, gap.To = deref(from).UTC(), deref(to).UTC()
		args["count"], args["from"], args["to"] = gap.Count, from, to
		if _, err := exec(ctx, tx, `
update poller.hook_sources set checked_through = @through, gap_at = case when @count::integer > 0 then clock_timestamp() else gap_at end,
  gap_count = case when @count::integer > 0 then @count::integer else gap_count end, gap_from = coalesce(@from::timestamptz, gap_from), gap_to = coalesce(@to::timestamptz, gap_to)
where source = @source`, args); err != nil || gap.Count == 0 {
			return err
		}
		return write(ctx, tx, ledger.GapFound, logged{source: source, fields: map[string]string{
			"count": strconv.Itoa(gap.Count), "from": gap.From.Format(time.RFC3339), "to": gap.To.Format(time.RFC3339),
		}})
	})
	return gap, err
}

// HookStates returns what is on record of sources' webhooks, by name.
func (s *Store) HookStates(ctx context.Context, names []string) (map[string]hook.SourceState, error) {
	rows, err := s.pool.Query(ctx, `
select n.name, (select max(h.received_at) from poller.hooks h where h.source = n.name),
  (select count(*) from poller.hooks h where h.source = n.name and h.state = 'waiting'),
  (select min(h.received_at) from poller.hooks h where h.source = n.name and h.state = 'waiting'),
  (select count(*) from poller.hooks h where h.source = n.name and h.state = 'failed'),
  coalesce((select h.last_error from poller.hooks h where h.source = n.name and h.state = 'failed' order by h.id desc limit 1), ''),
  s.gap_at, coalesce(s.gap_count, 0), s.gap_from, s.gap_to
from unnest(@names::text[]) as n (name) left join poller.hook_sources s on s.source = n.name`, pgx.NamedArgs{"names": names})
	if err != nil {
		return nil, db.Fault(err)
	}
	states := map[string]hook.SourceState{}
	var name, problem string
	var received, oldest, gapAt, from, to *time.Time
	var waiting, failed, gap int
	_, err = pgx.ForEachRow(rows, []any{&name, &received, &waiting, &oldest, &failed, &problem, &gapAt, &gap, &from, &to}, func() error {
		states[name] = hook.SourceState{
			LastReceived: deref(received), Waiting: waiting, OldestWaiting: deref(oldest), Failed: failed, LastError: problem,
			GapFound: deref(gapAt), Gap: hook.Gap{Count: gap, From: deref(from), To: deref(to)},
		}
		return nil
	})
	return states, db.Fault(err)
}

// ForgetHooks deletes messages that are old enough, and returns how many went, and how many of them had never been handled.
func (s *Store) ForgetHooks(ctx context.Context) (deleted, unhandled int64, err error) {
	args := pgx.NamedArgs{"handled": keepHandled, "keep": keepHook, "n": forgetBatch}
	for n := int64(forgetBatch); n == forgetBatch; {
		var lost int64
		err := s.quiet.QueryRow(ctx, `
with old as (
  select id from poller.hooks
  where state = 'done' and received_at < now() - @handled::interval or received_at < now() - @keep::interval
  order by id limit @n for update skip locked
), gone as (
  delete from poller.hooks h using old where h.id = old.id returning h.state
)
select count(*), count(*) filter (where state <> 'done') from gone`, args).Scan(&n, &lost)
		if err != nil {
			return deleted, unhandled, db.Fault(err)
		}
		deleted, unhandled = deleted+n, unhandled+lost
	}
	return deleted, unhandled, nil
}
