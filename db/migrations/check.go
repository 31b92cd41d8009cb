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

// Check returns nil when this build works with the database: it has every version of the build, and of those that the build does not know none
// is a contract. Otherwise it is fault.Conflict, and says which is behind and what to do. It changes nothing, takes no lock, and needs no right
// but to read.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	return withProvider(pool, files, nil, func(p *goose.Provider) error {
		record, err := readRecord(ctx, pool)
		if err != nil {
			return err
		}
		if err := refuseContracts(ctx, pool, versions(p), record); err != nil {
			return err
		}
		return compare(versions(p), record)
	})
}

// compare says what a database lacks that a build needs.
func compare(build []int64, record map[int64]time.Time) error {
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
	if at >= needs {
		message = fmt.Sprintf("the database is at version %d and lacks %s, which this build needs", at, list(missing))
	}
	return fault.New(fault.Conflict, fault.ReasonDatabase, message+": run `muxpost migrate`")
}

// refuseContracts refuses a database from which a later release took away what this build needs.
func refuseContracts(ctx context.Context, pool *pgxpool.Pool, build []int64, record map[int64]time.Time) error {
	unknown := unknownTo(build, record)
	if len(unknown) == 0 {
		return nil
	}
	rows, _ := pool.Query(ctx, "select version from public.muxpost_contracts where version = any($1) order by version", unknown)
	contracts, err := pgx.CollectRows(rows, pgx.RowTo[int64]) // and with it the error of the query
	switch {
	case db.SQLState(err) == undefinedTable: // it is of a release that had no word for this
		contracts = unknown
	case err != nil:
		return db.Fault(err)
	case len(contracts) == 0:
		return nil
	}
	return tooNew(contracts, "took away what this build needs")
}

// refuseNewer refuses a database that has anything which this build does not know.
func refuseNewer(ctx context.Context, pool *pgxpool.Pool, p *goose.Provider) error {
	record, err := readRecord(ctx, pool)
	if err != nil {
		return err
	}
	if unknown := unknownTo(versions(p), record); len(unknown) > 0 {
		return tooNew(unknown, "this build does not know")
	}
	return nil
}

func tooNew(versions []int64, why string) error {
	return fault.Newf(fault.Conflict, fault.ReasonDatabase, "the database is newer than this build: it has %s, which %s", list(versions), why).
		WithRemedy("run the release of muxpost that migrated it, or a later one")
}

// unknownTo lists what a database has and a build does not know.
func unknownTo(build []int64, record map[int64]time.Time) []int64 {
	var out []int64
	for v := range record {
		if !slices.Contains(build, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
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
	if err != nil && db.SQLState(err) != undefinedTable {
		return nil, db.Fault(err)
	}
	return record, nil
}

// undefinedTable is the SQLSTATE for a table that is not there.
const undefinedTable = "42P01"

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
