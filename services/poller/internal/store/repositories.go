package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

// repositoryLooks returns what is known of a source's repositories, on the database's clock.
func repositoryLooks(ctx context.Context, tx pgx.Tx, source string) (map[string]poll.RepositoryLook, error) {
	rows, err := tx.Query(ctx, `
select repository, now() - last_look_at, now() - full_read_at, next_look_at - now(), last_error, quiet
from poller.repositories where source = @source`, pgx.NamedArgs{"source": source})
	if err != nil {
		return nil, err
	}
	out := map[string]poll.RepositoryLook{}
	var name, problem string
	var since time.Duration
	var full, wait *time.Duration
	var quiet int
	_, err = pgx.ForEachRow(rows, []any{&name, &since, &full, &wait, &problem, &quiet}, func() error {
		look := poll.RepositoryLook{Since: max(0, since), SinceFull: -1, Problem: problem, Quiet: quiet}
		if full != nil {
			look.SinceFull = max(0, *full)
		}
		if wait != nil {
			look.Wait = max(0, *wait)
		}
		out[name] = look
		return nil
	})
	return out, err
}

// endRepositories records how a look at repositories went, while the lease is held.
func endRepositories(ctx context.Context, tx pgx.Tx, source, holder string, ends []poll.RepositoryEnd) error {
	for _, end := range ends {
		if _, err := exec(ctx, tx, `
insert into poller.repositories as r (source, repository, last_look_at, last_success_at, last_error, last_error_at, next_look_at, full_read_at, quiet)
select @source, @repository, now(), case when @problem = '' then now() end, @problem, case when @problem <> '' then now() end,
  case when @wait > interval '0' then now() + @wait end, case when @full then now() end, @quiet
from poller.sources where name = @source and lease_holder = @holder
on conflict (source, repository) do update set last_look_at = excluded.last_look_at,
  last_success_at = coalesce(excluded.last_success_at, r.last_success_at), last_error = excluded.last_error,
  last_error_at = excluded.last_error_at, next_look_at = excluded.next_look_at,
  full_read_at = coalesce(excluded.full_read_at, r.full_read_at), quiet = excluded.quiet`, pgx.NamedArgs{
			"source": source, "holder": holder, "repository": strings.ToLower(end.Name), "problem": clean(end.Problem), "wait": end.Wait,
			"full": end.Full, "quiet": end.Quiet,
		}); err != nil {
			return err
		}
	}
	return nil
}

// repositoryStates adds what is on record of repositories.
func (s *Store) repositoryStates(ctx context.Context, names []string, states map[string]poll.SourceState) error {
	rows, err := s.pool.Query(ctx, `
select source, repository, last_success_at, last_error, last_error_at, case when next_look_at > now() then next_look_at end, full_read_at
from poller.repositories where source = any(@names) order by source, repository`, pgx.NamedArgs{"names": names})
	if err != nil {
		return db.Fault(err)
	}
	var source, name, problem string
	var success, failure, next, full *time.Time
	_, err = pgx.ForEachRow(rows, []any{&source, &name, &success, &problem, &failure, &next, &full}, func() error {
		state := states[source]
		state.Repositories = append(state.Repositories, poll.RepositoryState{
			Name: name, LastSuccess: deref(success), LastError: problem, LastErrorAt: deref(failure), NextLook: deref(next), LastFull: deref(full),
		})
		states[source] = state
		return nil
	})
	return db.Fault(err)
}
