package migrations

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// UpWith is Up with other SQL files, as a later or a broken build would have them.
func UpWith(ctx context.Context, pool *pgxpool.Pool, sqlFiles fs.FS) (done []Migration, err error) {
	err = withProvider(pool, sqlFiles, nil, func(p *goose.Provider) (err error) {
		done, err = up(ctx, pool, p)
		return err
	})
	return done, err
}
