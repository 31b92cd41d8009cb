// Package tokens keeps the bearer tokens of people and scripts in the database that the central services share. Fencing tokens are
// another thing (core/lease).
//
// It knows nothing of what a token lets do, and never sees the secret of one.
package tokens

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/access"
)

// most is how many tokens are listed at most.
const most = 1000

const columns = "id, name, role, hash, who, created_at, expires_at, revoked_at, used_at"

// Store keeps tokens.
type Store struct{ pool *pgxpool.Pool }

// New returns a store.
func New(pool *pgxpool.Pool) *Store { return &Store{pool} }

// Token returns what is kept of a token, and notes that it was used. One that is not known is fault.NotFound.
func (s *Store) Token(ctx context.Context, id string) (access.Token, error) {
	t, err := s.one(ctx, "select "+columns+" from access.tokens where id = $1", id)
	if err == nil && time.Since(t.Used) > time.Minute {
		// That it was used is for people. A call does not fail for it.
		_, _ = s.pool.Exec(ctx, "update access.tokens set used_at = now() where id = $1 and revoked_at is null", id)
	}
	return t, err
}

// Create keeps a token, of which ID, Name, Role, Hash, Who and Ends are given, and forgets those that ended long ago.
func (s *Store) Create(ctx context.Context, t access.Token) (access.Token, error) {
	return s.one(ctx, `
with old as (delete from access.tokens where least(revoked_at, expires_at) < now() - interval '90 days')
insert into access.tokens (id, name, role, hash, who, expires_at) values ($1, $2, $3, $4, $5, $6) returning `+columns,
		t.ID, t.Name, t.Role.String(), t.Hash, t.Who, moment(t.Ends))
}

// List returns the newest tokens; those that count alone, or all.
func (s *Store) List(ctx context.Context, all bool) ([]access.Token, error) {
	rows, err := s.pool.Query(ctx, "select "+columns+` from access.tokens
		where $1 or revoked_at is null and (expires_at is null or expires_at > now()) order by created_at desc, id limit $2`, all, most)
	if err != nil {
		return nil, db.Fault(err)
	}
	out, err := pgx.CollectRows(rows, scan)
	return out, db.Fault(err)
}

// Revoke ends a token; changed is false when it was revoked before. One that is not known is fault.NotFound.
func (s *Store) Revoke(ctx context.Context, id, who string) (t access.Token, changed bool, err error) {
	t, err = s.one(ctx, "update access.tokens set revoked_at = now(), revoked_by = $2 where id = $1 and revoked_at is null returning "+columns, id, who)
	if errors.Is(err, fault.NotFound) {
		t, err = s.one(ctx, "select "+columns+" from access.tokens where id = $1", id)
		return t, false, err
	}
	return t, err == nil, err
}

func (s *Store) one(ctx context.Context, sql string, args ...any) (access.Token, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return access.Token{}, db.Fault(err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, fault.New(fault.NotFound, "", "there is no such token").WithRemedy("muxpost tokens list --all lists them by id")
	}
	return t, db.Fault(err)
}

func scan(row pgx.CollectableRow) (t access.Token, err error) {
	var role string
	var ends, revoked, used *time.Time
	err = row.Scan(&t.ID, &t.Name, &role, &t.Hash, &t.Who, &t.Made, &ends, &revoked, &used)
	t.Role, _ = access.RoleOf(role) // an unknown one may do nothing
	t.Ends, t.Revoked, t.Used = timeOf(ends), timeOf(revoked), timeOf(used)
	return t, err
}

// moment is a time in a column; null when it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
