package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// BeginLook takes the lease of a source. While another look has it, or while one that ended is younger than every, that is fault.Conflict
// with ReasonLeaseHeld; before the end of a limit of the source's, it is fault.Throttled, with the time that is left.
func (s *Store) BeginLook(ctx context.Context, source, holder string, lease, every time.Duration) (poll.Look, error) {
	var look poll.Look
	err := db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := exec(ctx, tx, `insert into poller.sources (name) values (@name) on conflict do nothing`,
			pgx.NamedArgs{"name": source}); err != nil {
			return err
		}
		var held, young bool
		var limited *time.Duration
		row := tx.QueryRow(ctx, `
select coalesce(lease_until > now(), false), coalesce(lease_holder is null and last_look_at > now() - @every::interval, false),
  not_before - now(), throttles
from poller.sources where name = @name for update`, pgx.NamedArgs{"name": source, "every": every})
		if err := row.Scan(&held, &young, &limited, &look.Throttles); err != nil {
			return err
		}
		switch {
		case held:
			return fault.Newf(fault.Conflict, fault.ReasonLeaseHeld, "another look at %s is under way", source)
		case young:
			return fault.Newf(fault.Conflict, fault.ReasonLeaseHeld, "another look at %s has just ended", source)
		}
		if limited != nil && *limited > 0 {
			left := max(time.Second, limited.Round(time.Second))
			return fault.Newf(fault.Throttled, fault.ReasonRateLimited, "%s asked to be left alone for another %v", source, left).
				WithRetryAfter(left)
		}
		_, err := exec(ctx, tx, `
update poller.sources set lease_holder = @holder, lease_until = now() + @lease, last_look_at = now() where name = @name`,
			pgx.NamedArgs{"name": source, "holder": holder, "lease": lease})
		if err != nil {
			return err
		}
		look.Repositories, err = repositoryLooks(ctx, tx, source)
		return err
	})
	return look, err
}

// KeepLook renews the lease of a source. One that was lost is fault.Fenced.
func (s *Store) KeepLook(ctx context.Context, source, holder string, lease time.Duration) error {
	n, err := exec(ctx, s.quiet, `update poller.sources set lease_until = now() + @lease::interval where name = @name and lease_holder = @holder`,
		pgx.NamedArgs{"name": source, "holder": holder, "lease": lease})
	if err == nil && n == 0 {
		return fault.Newf(fault.Fenced, fault.ReasonLeaseLost, "another look at %s has its lease", source)
	}
	return err
}

// LookDue returns how long it is until a source that is looked at every so often is to be looked at, not below zero. A look that did not end
// leaves its lease behind: then it is the end of that.
func (s *Store) LookDue(ctx context.Context, source string, every time.Duration) (time.Duration, error) {
	var wait *time.Duration
	err := s.quiet.QueryRow(ctx, `
select greatest(coalesce(lease_until, last_look_at + @every::interval), not_before) - now() from poller.sources where name = @name`,
		pgx.NamedArgs{"name": source, "every": every}).Scan(&wait)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && wait == nil {
		return 0, nil // nobody has looked yet
	}
	if err != nil {
		return 0, db.Fault(err)
	}
	return max(0, *wait), nil
}

// EndLook records how a look went and gives the lease back. A lease that was lost changes nothing, except that a limit of the
// source's always counts.
func (s *Store) EndLook(ctx context.Context, source, holder string, end poll.LookEnd) error {
	return db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"name": source, "holder": holder, "problem": clean(end.Problem), "wait": end.Wait, "throttles": end.Throttles}
		if end.Wait > 0 {
			if _, err := exec(ctx, tx, `
update poller.sources set not_before = greatest(not_before, now() + @wait), throttles = @throttles where name = @name`, args); err != nil {
				return err
			}
		}
		if err := logTurn(ctx, tx, source, holder, end.Problem); err != nil {
			return err
		}
		if err := endRepositories(ctx, tx, source, holder, end.Repositories); err != nil {
			return err
		}
		_, err := exec(ctx, tx, `
update poller.sources
set lease_holder = null, lease_until = null, throttles = @throttles, last_error = @problem,
  last_success_at = case when @problem = '' then now() else last_success_at end
where name = @name and lease_holder = @holder`, args)
		return err
	})
}

// logTurn writes down that a source can no longer be read, or can again.
func logTurn(ctx context.Context, tx pgx.Tx, source, holder, problem string) error {
	var before string
	err := tx.QueryRow(ctx, `select last_error from poller.sources where name = @name and lease_holder = @holder for update`,
		pgx.NamedArgs{"name": source, "holder": holder}).Scan(&before)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // the lease was lost
	case err != nil:
		return err
	case before == "" && problem != "":
		return write(ctx, tx, ledger.SourceFailed, logged{source: source, fields: map[string]string{"problem": problem}})
	case before != "" && problem == "":
		return write(ctx, tx, ledger.SourceRecovered, logged{source: source})
	}
	return nil
}

// SourceStates returns what is on record of sources, by name. One that nobody has looked at yet has the zero state.
func (s *Store) SourceStates(ctx context.Context, names []string) (map[string]poll.SourceState, error) {
	rows, err := s.pool.Query(ctx, `
select s.name, s.last_look_at, s.last_success_at, s.last_error,
  case when s.last_error <> '' and coalesce(s.lease_until <= now(), true) then s.last_look_at end,
  case when s.not_before > now() then s.not_before end,
  (select count(*) from poller.items i where i.source = s.name and i.baselined_at is not null and i.closed_at is null),
  s.notice_error, s.notice_error_at
from poller.sources s where s.name = any(@names)`, pgx.NamedArgs{"names": names})
	if err != nil {
		return nil, db.Fault(err)
	}
	states := map[string]poll.SourceState{}
	var name, problem, notice string
	var look, success, failure, notBefore, noticeAt *time.Time
	var items int
	_, err = pgx.ForEachRow(rows, []any{&name, &look, &success, &problem, &failure, &notBefore, &items, &notice, &noticeAt}, func() error {
		states[name] = poll.SourceState{LastLook: deref(look), LastSuccess: deref(success), LastError: problem, LastErrorAt: deref(failure),
			NotBefore: deref(notBefore), Items: items, NoticeError: notice, NoticeErrorAt: deref(noticeAt)}
		return nil
	})
	if err != nil {
		return nil, db.Fault(err)
	}
	return states, s.repositoryStates(ctx, names, states)
}
