package migrations

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
)

// Status returns every migration that the build or the database knows, by version. It changes nothing.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	var out []Migration
	err := withProvider(pool, files, nil, func(p *goose.Provider) error {
		record, err := readRecord(ctx, pool)
		if err != nil {
			return err
		}
		for _, s := range p.ListSources() {
			out = append(out, Migration{Version: s.Version, Name: sourceName(s), AppliedAt: record[s.Version]})
			delete(record, s.Version)
		}
		for version, at := range record {
			out = append(out, Migration{Version: version, AppliedAt: at})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Migration) int { return int(a.Version - b.Version) })
	return out, err
}

// Check returns nil when the database has exactly the schema of this build. Otherwise it is fault.Conflict, and says which is
// behind and what to do. It changes nothing, takes no lock, and needs no right but to read.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	return withProvider(pool, files, nil, func(p *goose.Provider) error {
		record, err := readRecord(ctx, pool)
		if err != nil {
			return err
		}
		return compare(versions(p), record)
	})
}

func refuseNewer(ctx context.Context, pool *pgxpool.Pool, p *goose.Provider) error {
	record, err := readRecord(ctx, pool)
	if err != nil {
		return err
	}
	return newer(versions(p), record)
}

// compare sets what a build needs against what a database has.
func compare(build []int64, record map[int64]time.Time) error {
	if err := newer(build, record); err != nil {
		return err
	}
	var missing []int64
	for _, v := range build {
		if _, ok := record[v]; !ok {
			missing = append(missing, v)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	at, needs := greatest(record), build[len(build)-1]
	message := fmt.Sprintf("the database is at version %d, this build needs %d", at, needs)
	if at == needs {
		message = fmt.Sprintf("the database is at version %d and lacks %s, which this build needs", at, list(missing))
	}
	return fault.New(fault.Conflict, fault.ReasonDatabase, message+": run `muxpost migrate`")
}

func newer(build []int64, record map[int64]time.Time) error {
	var unknown []int64
	for v := range record {
		if !slices.Contains(build, v) {
			unknown = append(unknown, v)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fault.Newf(fault.Conflict, fault.ReasonDatabase,
		"the database is newer than this build: it has %s, which this build does not know", list(unknown)).
		WithRemedy("run the release of muxpost that migrated it, or a later one")
}

// readRecord returns what was applied, and when. A database without the record has nothing.
func readRecord(ctx context.Context, pool *pgxpool.Pool) (map[int64]time.Time, error) {
	record := make(map[int64]time.Time)
	// The session's time zone is what goose's timestamps without one were written in.
	rows, err := pool.Query(ctx, "select version_id, tstamp::timestamptz from "+table+" where is_applied and version_id > 0")
	if err == nil {
		var version int64
		var at time.Time
		_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
			record[version] = at
			return nil
		})
	}
	const undefinedTable = "42P01"
	if err != nil && db.SQLState(err) != undefinedTable {
		return nil, db.Fault(err)
	}
	return record, nil
}

func greatest(record map[int64]time.Time) int64 {
	var out int64
	for v := range record {
		out = max(out, v)
	}
	return out
}

// list writes versions as people read them: "version 11", "versions 11, 12".
func list(versions []int64) string {
	words := make([]string, len(versions))
	for i, v := range versions {
		words[i] = strconv.FormatInt(v, 10)
	}
	noun := "version "
	if len(words) > 1 {
		noun = "versions "
	}
	return noun + strings.Join(words, ", ")
}
