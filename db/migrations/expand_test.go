package migrations_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/test/previous"
)

// column is what a release can rely on of a column.
type column struct {
	kind             string
	required, filled bool // it must not be null; something fills it where nobody says a value
	generated        bool
}

// rule is a constraint or a unique index.
type rule struct {
	table, definition string
	columns           []string
	kind              string // as pg_constraint.contype has it; i for a unique index that is no constraint
}

// schema is what a release can rely on of a database.
type schema struct {
	relations map[string]bool
	columns   map[string]column
	rules     map[string]rule
	functions map[string]bool
}

func schemaOf(t *testing.T, pool *pgxpool.Pool) schema {
	t.Helper()
	const ours = `n.nspname in ('dispatcher', 'poller', 'access', 'public') and not c.relname ~ '^goose_db_version'`
	s := schema{relations: map[string]bool{}, columns: map[string]column{}, rules: map[string]rule{}, functions: map[string]bool{}}
	each := func(sql string, into []any, take func()) {
		t.Helper()
		rows, err := pool.Query(t.Context(), sql)
		must(t, err)
		_, err = pgx.ForEachRow(rows, into, func() error { take(); return nil })
		must(t, err)
	}
	var name string
	var c column
	each(`select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'S', 'v', 'm', 'p') and `+ours, []any{&name}, func() { s.relations[name] = true })
	each(`select n.nspname || '.' || c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			a.atthasdef or a.attidentity <> '', a.attgenerated <> '' or a.attidentity = 'a'
		from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p', 'v', 'm') and a.attnum > 0 and not a.attisdropped and `+ours,
		[]any{&name, &c.kind, &c.required, &c.filled, &c.generated}, func() { s.columns[name] = c })
	var r rule
	const columns = `(select coalesce(array_agg(a.attname::text), '{}') from pg_attribute a where a.attrelid = c.oid and a.attnum = any(%s))`
	each(`select n.nspname || '.' || c.relname || ' ' || k.conname, n.nspname || '.' || c.relname, pg_get_constraintdef(k.oid), k.contype::text, `+
		fmt.Sprintf(columns, "k.conkey")+`
		from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_namespace n on n.oid = c.relnamespace where k.contype <> 'n' and `+ours+`
		union all select n.nspname || '.' || c.relname || ' ' || x.relname, n.nspname || '.' || c.relname, pg_get_indexdef(i.indexrelid), 'i', `+
		fmt.Sprintf(columns, "i.indkey::int2[]")+`
		from pg_index i join pg_class x on x.oid = i.indexrelid join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
		where i.indisunique and not exists (select from pg_constraint k where k.conindid = i.indexrelid) and `+ours,
		[]any{&name, &r.table, &r.definition, &r.kind, &r.columns}, func() { r.columns = slices.Clone(r.columns); s.rules[name] = r })
	each(`select n.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') returns ' || pg_get_function_result(p.oid)
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('dispatcher', 'poller', 'access', 'public')`,
		[]any{&name}, func() { s.functions[name] = true })
	return s
}

// takes lists what a release that was written for one schema misses, or is refused, in a later one.
func takes(before, after schema) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for name := range before.relations {
		if !after.relations[name] {
			say("%s is gone", name)
		}
	}
	for name := range before.functions {
		if !after.functions[name] {
			say("the function %s is gone", name)
		}
	}
	table := func(column string) string { return column[:strings.LastIndex(column, ".")] }
	for name, was := range before.columns {
		switch is, there := after.columns[name]; {
		case !there:
			say("the column %s is gone", name)
		case is.kind != was.kind:
			say("the column %s is %s, and was %s", name, is.kind, was.kind)
		case is.required && !was.required:
			say("the column %s must not be null any more", name)
		case was.filled && !is.filled:
			say("the column %s has no default any more", name)
		case is.generated && !was.generated:
			say("the column %s cannot be written any more", name)
		}
	}
	for name, is := range after.columns {
		if _, there := before.columns[name]; !there && before.relations[table(name)] && is.required && !is.filled && !is.generated {
			say("the new column %s must not be null and has no default", name)
		}
	}
	for name, was := range before.rules {
		if _, there := after.rules[name]; !there && was.kind != "c" && was.kind != "f" {
			say("%s is gone, which an insert may name: %s", name, was.definition)
		}
	}
	for name, is := range after.rules {
		was, there := before.rules[name]
		isNew := func(c string) bool { _, known := before.columns[is.table+"."+c]; return !known }
		if !before.relations[is.table] || there && was.definition == is.definition || !there && slices.ContainsFunc(is.columns, isNew) ||
			there && widens(was, is) {
			continue
		}
		say("%s refuses what was not refused: %s", name, is.definition)
	}
	slices.Sort(out)
	return out
}

var literal = regexp.MustCompile(`'(?:[^']|'')*'::text`)

// widens reports whether a check is the same but for more words that it allows.
func widens(was, is rule) bool {
	shape := func(r rule) string {
		return regexp.MustCompile(`LIT(, LIT)*`).ReplaceAllString(literal.ReplaceAllString(r.definition, "LIT"), "LIT")
	}
	words := literal.FindAllString(is.definition, -1)
	for _, w := range literal.FindAllString(was.definition, -1) {
		if !slices.Contains(words, w) {
			return false
		}
	}
	return was.kind == "c" && is.kind == "c" && shape(was) == shape(is)
}

var contract = regexp.MustCompile(`(?m)^-- contract: after (\S+)$`)

// released are the SQL migrations of the release before this one.
func released(t *testing.T) fstest.MapFS {
	t.Helper()
	dir := t.TempDir()
	previous.Extract(t, dir, "db/migrations")
	out := fstest.MapFS{}
	names, err := filepath.Glob(filepath.Join(dir, "db", "migrations", "*.sql"))
	must(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		out[filepath.Base(name)] = &fstest.MapFile{Data: text}
	}
	if len(out) < 20 {
		t.Fatalf("the release before this one has only %d migrations", len(out))
	}
	return out
}

// expands applies migrations to the schema of the release before this one, one at a time, and returns what each does that it may not.
func expands(t *testing.T, before, these fstest.MapFS) (problems []string) {
	t.Helper()
	pool := dbtest.NewEmpty(t)
	_, err := migrations.UpWith(t.Context(), pool, before)
	must(t, err)
	known := maps.Clone(before)
	was := schemaOf(t, pool)
	for _, name := range slices.Sorted(maps.Keys(these)) {
		text := these[name].Data
		if old, there := before[name]; there {
			if !bytes.Equal(old.Data, text) {
				problems = append(problems, name+" was released, and has been edited since")
			}
			continue
		}
		known[name] = these[name]
		_, err := migrations.UpWith(t.Context(), pool, known)
		must(t, err)
		is := schemaOf(t, pool)
		taken := takes(was, is)
		was = is
		problems = append(problems, judge(t, pool, name, string(text), taken)...)
	}
	for name := range before {
		if _, there := these[name]; !there {
			problems = append(problems, name+" was released, and is gone")
		}
	}
	return problems
}

// judge says what is wrong with a migration that takes something away.
func judge(t *testing.T, pool *pgxpool.Pool, name, text string, taken []string) (problems []string) {
	t.Helper()
	var version int64
	_, err := fmt.Sscanf(name, "%d_", &version)
	must(t, err)
	var recorded string
	err = pool.QueryRow(t.Context(), `select coalesce(max(after_release), '') from public.muxpost_contracts where version = $1`, version).Scan(&recorded)
	must(t, err)
	marked := contract.FindStringSubmatch(text)
	switch {
	case marked == nil && recorded != "":
		return []string{name + " is recorded as a contract and has no line `-- contract: after RELEASE`"}
	case marked == nil:
		for _, what := range taken {
			problems = append(problems, name+": "+what+"; the release before this one still runs on this schema (docs/upgrade.md)")
		}
		return problems
	case len(taken) == 0:
		problems = append(problems, name+" says that it is a contract, and takes nothing away")
	}
	if recorded != marked[1] {
		problems = append(problems, name+" is a contract, and does not insert its version and its release into public.muxpost_contracts")
	}
	if !previous.Earlier(t, marked[1]) {
		problems = append(problems, fmt.Sprintf("%s may only come after %s is out of use, and it is not earlier than the release in %s", name, marked[1], previous.File))
	}
	return problems
}

func TestMigrations_SinceTheReleaseBeforeOnlyAdd(t *testing.T) {
	for _, problem := range expands(t, released(t), files(t, nil)) {
		t.Error(problem)
	}
}

// What the test above stands on: each way of taking something away is seen, and each way of adding is none.
func TestExpands_SeesWhatTakesAway(t *testing.T) {
	before := released(t)
	for sql, want := range map[string]string{
		"create table poller.more (id bigint primary key, word text not null)":                                    "",
		"alter table poller.events add column more text not null default ''":                                      "",
		"alter table poller.events add column more text":                                                          "",
		"alter table poller.events add column more text check (more <> ''); create index on poller.events (more)": "",
		"create unique index on poller.events (delivery_id, url)":                                                 "refuses what was not refused",
		"alter table poller.events drop constraint events_kind, add constraint events_kind check (kind in ('opened', 'comment', 'message', 'review', " +
			"'review_comment', 'state', 'check', 'chat'))": "",
		"alter table poller.events drop constraint events_kind":                                                                   "",
		"alter table poller.events drop constraint events_kind, add constraint events_kind check (kind in ('opened', 'comment'))": "refuses what was not refused",
		"alter table poller.events add constraint longer check (length(text) < 5)":                                                "refuses what was not refused",
		"alter table poller.events add column more text not null":                                                                 "has no default",
		"alter table poller.events drop column about":                                                                             "poller.events.about is gone",
		"alter table poller.events rename column about to concerns":                                                               "poller.events.about is gone",
		"alter table poller.events alter column about drop default":                                                               "no default any more",
		"alter table poller.events alter column tries type bigint":                                                                "is bigint, and was integer",
		"alter table dispatcher.sessions alter column server_started set not null":                                                "must not be null any more",
		"drop table dispatcher.activities":                                                                                        "dispatcher.activities is gone",
		"alter table poller.hooks drop constraint hooks_once":                                                                     "hooks_once is gone",
		"drop function dispatcher.next_token()":                                                                                   "next_token() returns bigint is gone",
		"drop index poller.events_found":                                                                                          "",
	} {
		these := maps.Clone(before)
		these["00059_tried.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + ";\n")}
		problems := strings.Join(expands(t, before, these), "\n")
		if (want == "") != (problems == "") || !strings.Contains(problems, want) {
			t.Errorf("%s\n\tgot  %q\n\twant %q", sql, problems, want)
		}
	}
}

func TestExpands_AContractNamesItsRelease(t *testing.T) {
	before := released(t)
	const drop = "alter table poller.events drop column about;\n"
	record := func(release string) string {
		return fmt.Sprintf("insert into public.muxpost_contracts (version, after_release) values (59, '%s');\n", release)
	}
	earlier := previous.Commit(t) + "~1"
	for text, want := range map[string]string{
		"-- contract: after " + earlier + "\n" + drop + record(earlier):                       "",
		"-- contract: after " + earlier + "\n" + drop:                                         "does not insert",
		drop + record(earlier):                                                                "has no line",
		"-- contract: after " + earlier + "\n" + record(earlier):                              "takes nothing away",
		"-- contract: after v99\n" + drop + record("v99"):                                     "not earlier",
		"-- contract: after " + previous.Commit(t) + "\n" + drop + record(previous.Commit(t)): "not earlier",
	} {
		these := maps.Clone(before)
		these["00059_tried.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text)}
		if problems := strings.Join(expands(t, before, these), "\n"); (want == "") != (problems == "") || !strings.Contains(problems, want) {
			t.Errorf("%s\n\tgot  %q\n\twant %q", text, problems, want)
		}
	}
	these := maps.Clone(before)
	these["00010_dispatcher.sql"] = &fstest.MapFile{Data: append(slices.Clone(before["00010_dispatcher.sql"].Data), "-- more\n"...)}
	delete(these, "00042_poller_due.sql")
	if problems := strings.Join(expands(t, before, these), "\n"); !strings.Contains(problems, "edited since") || !strings.Contains(problems, "is gone") {
		t.Errorf("of migrations that were changed: %q", problems)
	}
}
