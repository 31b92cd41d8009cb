package tokens

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/internal/access"
)

// Invite keeps an invitation, and forgets those that ended long ago.
func (s *Store) Invite(ctx context.Context, i access.Invitation) error {
	_, err := s.pool.Exec(ctx, `
with old as (delete from access.invitations where expires_at < now() - interval '30 days')
insert into access.invitations (id, host, hash, who, expires_at) values ($1, $2, $3, $4, $5)`, i.ID, i.Host, i.Hash, i.Who, i.Ends)
	return db.Fault(err)
}

// Redeem uses an invitation up and returns whose it is. One that is not known, ended, was used or has another hash is fault.NotFound. How long
// comparing two hashes takes tells nothing that would help to find a secret.
func (s *Store) Redeem(ctx context.Context, id string, hash []byte) (host string, err error) {
	err = s.pool.QueryRow(ctx, `update access.invitations set used_at = now()
		where id = $1 and hash = $2 and used_at is null and expires_at > now() returning host`, id, hash).Scan(&host)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fault.New(fault.NotFound, "", "there is no such invitation")
	}
	return host, db.Fault(err)
}
