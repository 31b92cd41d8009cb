package migrations_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/db/dbtest"
)

// Every table is in docs/retention.md, which says how long its rows are kept, and nothing else is there.
func TestTables_AreAllInTheDocumentOfWhatIsKept(t *testing.T) {
	rows, err := dbtest.New(t).Query(t.Context(), `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'`)
	must(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	doc, err := os.ReadFile("../../docs/retention.md")
	must(t, err)
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllSubmatch(doc, -1) {
		for _, m := range regexp.MustCompile("`([a-z]+\\.[a-z_]+)`").FindAllSubmatch(row[1], -1) {
			documented = append(documented, string(m[1]))
		}
	}
	slices.Sort(tables)
	slices.Sort(documented)
	if diff := cmp.Diff(tables, documented); diff != "" {
		t.Errorf("docs/retention.md: the tables that there are (-), and those that have a row (+):\n%s", diff)
	}
}
