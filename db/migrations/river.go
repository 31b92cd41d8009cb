package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"

	"muxpost.dev/muxpost/core/fault"
)

// RiverSchema is the schema of River's tables: what river.Config.Schema must say.
const RiverSchema = "river"

// riverBase is the version before River's first.
const riverBase = 100

func isRiver(version int64) bool { return version > riverBase }

func riverName(version int64) string { return fmt.Sprintf("river %d", version-riverBase) }

// riverMigrations returns each of River's migrations as one of ours. River's own migrator takes no lock, so several processes
// that start at once would fail; and its migrations cannot share a transaction, for one adds to an enum what a later one uses.
func riverMigrations(log *slog.Logger) ([]*goose.Migration, error) {
	m, err := rivermigrate.New(riverdatabasesql.New(nil), &rivermigrate.Config{Schema: RiverSchema, Logger: log})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, fault.ReasonDatabase, "River's migrations cannot be read", err)
	}
	var out []*goose.Migration
	for _, v := range m.AllVersions() {
		before := v.Version - 1
		if before == 0 {
			before = -1 // River's word for nothing at all
		}
		out = append(out, goose.NewGoMigration(int64(riverBase+v.Version),
			riverStep(m, rivermigrate.DirectionUp, v.Version), riverStep(m, rivermigrate.DirectionDown, before)))
	}
	return out, nil
}

// riverStep runs one of River's migrations in goose's transaction, so that River's record and goose's never differ.
func riverStep(m *rivermigrate.Migrator[*sql.Tx], d rivermigrate.Direction, target int) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		opts := &rivermigrate.MigrateOpts{TargetVersion: target}
		_, err := m.MigrateTx(ctx, tx, d, opts) //nolint:staticcheck // deprecated for several migrations in a transaction; this is a single one
		return err
	}}
}
