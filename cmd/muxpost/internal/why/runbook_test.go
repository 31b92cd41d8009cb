package why_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/cmd/muxpost/internal/why"
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

var update = flag.Bool("update", false, "write into docs/runbook.md what the reasons mean and what to do")

const (
	tree    = "../../../../"
	runbook = tree + "docs/runbook.md"
)

// entry is a row of the runbook.
type entry struct{ means, confirm, do, heals string }

// section is a part of the runbook with its entries. Of a table its first column's head says what the entries are.
type section map[string]entry

var row = regexp.MustCompile("^\\| `([^`]+)` \\| (.*?) \\| (.*?) \\| (.*?) \\| (.*?) \\|$")

// sections reads the runbook, by heading and by what the first column is called: "Sessions, flag".
func sections(t *testing.T) map[string]section {
	t.Helper()
	data, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	all, heading, of := map[string]section{}, "", ""
	for i, line := range strings.Split(string(data), "\n") {
		head, isHead := strings.CutSuffix(line, " | what it means | how to confirm it | what to do | by itself |")
		m := row.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ")
		case isHead:
			of = heading + ", " + strings.TrimPrefix(head, "| ")
			if all[of] == nil {
				all[of] = section{}
			}
		case m != nil:
			if _, twice := all[of][m[1]]; twice {
				t.Errorf("docs/runbook.md:%d: %s has %s twice", i+1, of, m[1])
			}
			all[of][m[1]] = entry{m[2], m[3], m[4], m[5]}
		case strings.HasPrefix(line, "| ") && of != "":
			t.Errorf("docs/runbook.md:%d: a row that is no entry", i+1)
		}
	}
	return all
}

func words[T any](all []T, word func(T) string) (out []string) {
	for _, v := range all {
		out = append(out, word(v))
	}
	return out
}

// enum are the names of the values of an enum, as people see them.
func enum(values map[int32]string, prefix string, unsaid bool) (out []string) {
	for n, name := range values {
		if n != 0 || unsaid {
			out = append(out, view.Word(name, prefix))
		}
	}
	return out
}

// written are the words that a source file assigns in some way, as the first group of a pattern.
func written(t *testing.T, file, pattern string) (out []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tree, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1) {
		out = append(out, strings.TrimSpace(m[1]))
	}
	return out
}

// shown is everything that muxpost shows, by the section of the runbook that has its entry.
func shown(t *testing.T) map[string][]string {
	t.Helper()
	ofDispatcher := words(dispatch.Reasons(), func(r dispatch.Reason) string { return string(r) })
	// What the dispatcher gives as well has its entry there.
	ofErrors := slices.DeleteFunc(words(fault.Reasons(), func(r fault.Reason) string { return string(r) }), func(r string) bool {
		return slices.Contains(ofDispatcher, r)
	})
	now := timestamppb.Now()
	hosts := []*dispatcherv1.Host{{}, {Reached: true}, {Reached: true, KeptAwayUntil: now}, {Reached: true, Draining: true}}
	flags := []session.Flags{session.Guests, session.Foreign, session.Detached, session.Moved}
	return map[string][]string{
		"Reasons of the dispatcher, reason": ofDispatcher,
		"Reasons of the ledger, reason":     why.OfLedger(),
		"Reasons of errors, reason":         ofErrors,
		"Reasons of errors, kind":           words(fault.Kinds(), func(k fault.Kind) string { return strings.ReplaceAll(k.Error(), " ", "_") }),
		"States of the ledger, state":       words(ledger.States(), ledger.State.String),
		"Outcomes of a delivery, outcome":   words(dispatch.Outcomes(), dispatch.Outcome.String),
		"Sessions, state":                   append(enum(dispatcherv1.SessionState_name, "SESSION_STATE_", true), written(t, "cmd/muxpost/internal/view/lists.go", `\bstate = "(.+)"`)...),
		"Sessions, flag":                    words(flags, session.Flags.String),
		"Sessions, activity":                enum(dispatcherv1.SessionActivity_name, "SESSION_ACTIVITY_", false),
		"Sessions, orphan":                  enum(dispatcherv1.OrphanKind_name, "ORPHAN_KIND_", false),
		"Hosts, state":                      words(hosts, view.HostState),
		"Sources, state":                    written(t, "cmd/muxpost/internal/view/sources.go", `state :?= Cell\{Text: "([a-z ]+)"`),
		"Services, state":                   written(t, "cmd/muxpost/status.go", `(?:State: |State = |State, r\.Detail = )"([a-z]+)"`),
		"What needs a person, kind":         words(attention.Kinds(), func(k attention.Kind) string { return string(k) }),
		"Attempts, state":                   words(task.States(), task.State.String),
		"Attempts, reason":                  words(task.Reasons(), func(r task.Reason) string { return string(r) }),
	}
}

func TestRunbook_HasAnEntryForEverythingThatIsShownAndForNothingElse(t *testing.T) {
	have, want := sections(t), shown(t)
	for name, entries := range want {
		slices.Sort(entries)
		if diff := cmp.Diff(slices.Compact(entries), slices.Sorted(maps.Keys(have[name]))); diff != "" {
			t.Errorf("docs/runbook.md, %s: what is shown (-), and what has an entry (+):\n%s", name, diff)
		}
	}
	for name, s := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("docs/runbook.md has a table of %s, and nothing is known of it", name)
		}
		for word, e := range s {
			if e.means == "" || e.confirm == "" || e.do == "" || e.heals == "" {
				t.Errorf("docs/runbook.md, %s: %s does not say everything: %+v", name, word, e)
			}
		}
	}
}

// What muxpost explain says and what the runbook says are the same words.
func TestRunbook_SaysWhatMuxpostExplainSays(t *testing.T) {
	if *update {
		rewrite(t)
	}
	for name, entries := range sections(t) {
		if !strings.HasPrefix(name, "Reasons of") {
			continue
		}
		for reason, e := range entries {
			known, _ := why.Of(reason)
			if means, do := said(known); e.means != means || e.do != do {
				t.Errorf("docs/runbook.md, %s: %s says %q, %q; muxpost explain says %q, %q (go test -update writes it)", name, reason, e.means, e.do, means, do)
			}
		}
	}
}

var command = regexp.MustCompile(`\bmuxpost (?:hosts (?:undrain|evacuate)|(?:attach|attention|deliveries|doctor|done|explain|harnesses|hosts|ledger|retry|send|status|` +
	`stop|unpark|unpause|up|version|workspaces)\b)( --[a-z-]+)*`)

// said is an explanation as the runbook has it: its commands as such.
func said(e why.Explanation) (means, do string) {
	if do = e.Remedy; do == "" {
		do = "nothing"
	}
	code := func(s string) string {
		return command.ReplaceAllStringFunc(strings.ReplaceAll(strings.ReplaceAll(s, "`", ""), " "+why.DeliveryID, ""), func(m string) string {
			return "`" + m + "`"
		})
	}
	return code(e.Meaning), code(do)
}

func rewrite(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	heading, lines := "", strings.Split(string(data), "\n")
	for i, line := range lines {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			heading = h
		}
		m := row.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(heading, "Reasons of") {
			continue
		}
		if e, ok := why.Of(m[1]); ok {
			means, do := said(e)
			lines[i] = fmt.Sprintf("| `%s` | %s | %s | %s | %s |", m[1], means, m[3], do, m[5])
		}
	}
	if err := os.WriteFile(runbook, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}
