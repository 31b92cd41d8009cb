package team

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/fault"
)

var update = flag.Bool("update", false, "write the golden file")

func TestNames_ReadBack(t *testing.T) {
	for _, p := range Phases() {
		if got, ok := ParsePhase(p.String()); !ok || got != p {
			t.Errorf("%v", p)
		}
	}
	for _, s := range []State{Corrupt, Pending, InProgress, Completed, TaskFailed} {
		if ParseState(s.String()) != s {
			t.Errorf("%v", s)
		}
	}
	for k := Task; k <= FixStep; k++ {
		if ParseKind(k.String()) != k || ValidName(k.StepID()) {
			t.Errorf("%v", k)
		}
	}
	for c := NoClass; c <= Stopped; c++ {
		if got := ParseClass(c.String()); got != c && c != NoClass {
			t.Errorf("%v", c)
		}
	}
	if _, ok := ParsePhase(""); ok || ParseState("") != Corrupt || ParseState("blocked") != Corrupt || ParseKind("x") != NoKind || ParseClass("x") != Execution {
		t.Error("what is no name must be read as what promises nothing")
	}
}

// TestAfter_TheTableIsTheReviewedOne has every result for a task and for a verification, at each count that matters.
func TestAfter_TheTableIsTheReviewedOne(t *testing.T) {
	var b strings.Builder
	for _, k := range []Kind{Task, VerifyStep} {
		for _, r := range Results() {
			for _, e := range []Ended{{Result: r}, {Result: r, Holds: true}, {Result: r, Fenced: true}, {Result: r, Draining: true}} {
				for _, i := range []Item{{Kind: k}, {Kind: k, Launches: maxLaunches - 1, Requeues: maxRequeues}} {
					if e.Holds && k != VerifyStep {
						continue
					}
					c := After(i, e)
					var with []string
					for word, on := range map[string]bool{"holds": e.Holds, "fenced": e.Fenced, "draining": e.Draining} {
						if on {
							with = append(with, word)
						}
					}
					line := fmt.Sprintf("%-6s %-13s %-8s launches %d requeues %d → %-9s %-9s launches %d requeues %d", k, r, strings.Join(with, ""), i.Launches, i.Requeues,
						c.State, c.Class, c.Launches, c.Requeues)
					if c.Again {
						line += " again"
					}
					if c.Pause > 0 {
						line += " after " + c.Pause.String()
					}
					b.WriteString(strings.TrimRight(line, " ") + "\n")
				}
			}
		}
	}
	const golden = "testdata/after.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Error("it is not as reviewed: run with -update and read the difference")
	}
}

func TestAfter_SuccessIsWhatWasSeen(t *testing.T) {
	for k := Task; k <= FixStep; k++ {
		for _, r := range Results() {
			for bits := range 8 {
				e := Ended{Result: r, Holds: bits&1 != 0, Fenced: bits&2 != 0, Draining: bits&4 != 0}
				for launches := range maxLaunches {
					for requeues := range maxRequeues + 1 {
						c := After(Item{Kind: k, Launches: launches, Requeues: requeues}, e)
						if (c.State == Completed) != (r == Succeeded && (k != VerifyStep || e.Holds)) {
							t.Errorf("%v %+v: %+v", k, e, c)
						}
						if c.State == Pending && (e.Draining || c.Requeues > maxRequeues || c.Launches >= maxLaunches) {
							t.Errorf("%v %+v: it is handed out for ever: %+v", k, e, c)
						}
						if c.Class == Launch && r != LaunchFailed || r == LaunchFailed && c.Class == Execution {
							t.Errorf("%v %+v: a failed launch is a class of its own: %+v", k, e, c)
						}
					}
				}
			}
		}
	}
}

func spec() Spec {
	return Spec{Team: "crew", Harness: "codex", Directory: "/srv/app", Verify: &Step{Prompt: "look"},
		Tasks: []Job{{ID: "a", Prompt: "do a"}, {ID: "b", Prompt: "do b", Needs: []string{"a"}}, {ID: "c", Prompt: "do c", Needs: []string{"a", "b"}}}}
}

func TestCheck_RefusesWhatCannotWork(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"as it is":                {func(*Spec) {}, ""},
		"a check":                 {func(s *Spec) { s.Verify = &Step{Check: "unit-tests"} }, ""},
		"no verification":         {func(s *Spec) { s.Verify = nil }, "nothing says when the work is good"},
		"a check and a prompt":    {func(s *Spec) { s.Verify.Check = "x" }, "one of them decides"},
		"a plan that is a check":  {func(s *Spec) { s.Plan = &Step{Check: "x"} }, "plan cannot be a check"},
		"an empty plan":           {func(s *Spec) { s.Plan = &Step{Prompt: " "} }, "plan has no prompt"},
		"T94 team .":              {func(s *Spec) { s.Team = "." }, "team's name"},
		"T94 team ..":             {func(s *Spec) { s.Team = ".." }, "team's name"},
		"T94 team ../x":           {func(s *Spec) { s.Team = "../x" }, "team's name"},
		"T94 team a/b":            {func(s *Spec) { s.Team = "a/b" }, "team's name"},
		"T94 team a..b":           {func(s *Spec) { s.Team = "a..b" }, "team's name"},
		"T94 empty team":          {func(s *Spec) { s.Team = "" }, "team's name"},
		"T94 300 characters":      {func(s *Spec) { s.Team = strings.Repeat("a", 300) }, "team's name"},
		"T95 a task with a slash": {func(s *Spec) { s.Tasks[0].ID = "a/b" }, "task's id"},
		"a step's name":           {func(s *Spec) { s.Tasks[0].ID = "@verify" }, "task's id"},
		"T96 unknown":             {func(s *Spec) { s.Tasks[1].Needs = []string{"x"} }, `needs "x", which is no task`},
		"T96 itself":              {func(s *Spec) { s.Tasks[1].Needs = []string{"b"} }, "needs itself"},
		"T96 a circle":            {func(s *Spec) { s.Tasks[0].Needs = []string{"c"} }, "in a circle: a needs c needs a"},
		"twice the same need":     {func(s *Spec) { s.Tasks[1].Needs = []string{"a", "a"} }, "twice"},
		"twice the same id":       {func(s *Spec) { s.Tasks[1].ID = "a" }, "two tasks have the id a"},
		"no tasks":                {func(s *Spec) { s.Tasks = nil }, "no task"},
		"too many":                {func(s *Spec) { s.Tasks = make([]Job, maxTasks+1) }, "at most"},
		"no harness":              {func(s *Spec) { s.Harness = "" }, "no harness"},
		"no directory":            {func(s *Spec) { s.Directory = "" }, "no directory"},
		"no prompt":               {func(s *Spec) { s.Tasks[2].Prompt = "" }, "c has no prompt"},
		"a great prompt":          {func(s *Spec) { s.Tasks[2].Prompt = strings.Repeat("a", maxPrompt+1) }, "bytes"},
		"loops below zero":        {func(s *Spec) { s.MaxFixLoops = -1 }, "max_fix_loops"},
		"too parallel":            {func(s *Spec) { s.Parallel = maxParallel + 1 }, "parallel"},
		"trees":                   {func(s *Spec) { s.Trees = TaskTrees }, ""},
		"other trees":             {func(s *Spec) { s.Trees = "host" }, "trees is"},
		"trees elsewhere":         {func(s *Spec) { s.Trees, s.Tasks[0].Directory = TaskTrees, "/x" }, "trees are of the team's"},
		"time below zero":         {func(s *Spec) { s.Stall = -1 }, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			row.change(&s)
			got, err := s.Check()
			if row.want == "" {
				if err != nil || got.Parallel != defaultParallel {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSteps_AreWhatARunBeginsWith(t *testing.T) {
	s := spec()
	s.Plan = &Step{Prompt: "plan"}
	var got []string
	for _, i := range s.Steps() {
		got = append(got, fmt.Sprintf("%s %s %s %d", i.ID, i.Kind, i.State, i.Number))
	}
	if want := "a task pending 1|b task pending 1|c task pending 1|@plan plan pending 1|@verify verify pending 1|@fix fix completed 0"; strings.Join(got, "|") != want {
		t.Errorf("%v", got)
	}
}

func TestT107_TheNextPromptHasWhatWasSaidBefore(t *testing.T) {
	fence := "-----n1-----"
	text := Compose(Told{Team: "crew", TaskID: "a", Kind: Task, Prompt: "do a\n", Number: 3, Nonce: "n1", Before: []Carried{
		{Title: "The plan", Text: "first this\n" + fence + "\nthen that"},
		{Title: "Try 2 ended with exit code 7, and wrote last", Text: strings.Repeat("x", maxCarried) + "tail"}}})
	for _, want := range []string{"task a of the team crew", "3rd time", "\ndo a\n", "The plan:\n" + fence + "\nfirst this\n\nthen that\n" + fence, "exit code 7", "xtail\n" + fence} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%.600s", want, text)
		}
	}
	if strings.Count(text, fence) != 4 || len(text) > maxCarried+1000 {
		t.Errorf("%d fences, %d bytes", strings.Count(text, fence), len(text))
	}
	if first := Compose(Told{Team: "crew", TaskID: "a", Kind: Task, Prompt: "do a", Number: 1}); strings.Contains(first, "fences") || strings.Contains(first, "time") {
		t.Errorf("a first try has nothing before it:\n%s", first)
	}
	if fix := Compose(Told{Team: "crew", Kind: FixStep, Number: 1}); !strings.Contains(fix, usualFix) {
		t.Errorf("%s", fix)
	}
}

func TestCompose_WhatIsNotAllSaysSoAndIsNeverHalfACharacter(t *testing.T) {
	for _, row := range []struct {
		Carried
		want string
	}{
		{Carried{Text: "all of it"}, "\nall of it\n"},
		{Carried{Text: "all of it", Cut: true}, "\n[…] all of it\n"},
		{Carried{Text: "äöü", Most: 3}, "\n[…] ü\n"},
		{Carried{Text: "äöü", Most: 4}, "\n[…] öü\n"},
		{Carried{Text: "äöü", Most: 6}, "\näöü\n"},
		{Carried{Text: strings.Repeat("x", maxCarried) + "y"}, "\n[…] xx"},
	} {
		text := Compose(Told{Team: "crew", TaskID: "a", Kind: Task, Prompt: "do a", Number: 2, Nonce: "n", Before: []Carried{row.Carried}})
		if !utf8.ValidString(text) || !strings.Contains(text, row.want) {
			t.Errorf("%.20q, %d: there is no %q in\n%.400q", row.Text, row.Most, row.want, text)
		}
	}
}

func TestReadVerdict_IsWhatTheAgentSaysLast(t *testing.T) {
	asked := Compose(Told{Team: "crew", Kind: VerifyStep, Prompt: "look", Number: 1, Nonce: "n1"})
	for name, row := range map[string]struct {
		output      string
		holds, said bool
		why         string
	}{
		"pass":                     {"all good\nVERDICT-n1: pass\n", true, true, ""},
		"fail":                     {"VERDICT-n1: fail: two tests are red\n", false, true, "two tests are red"},
		"the last one":             {"VERDICT-n1: fail no\nthen\n> **VERDICT-n1: PASS**", true, true, ""},
		"a list's":                 {"  - VERDICT-n1: fail, it leaks", false, true, ", it leaks"},
		"of another attempt":       {"VERDICT-n0: pass", false, false, ""},
		"none":                     {"it is fine, pass", false, false, ""},
		"the prompt's echo":        {asked, false, false, ""},
		"the echo and the answer":  {asked + "\nVERDICT-n1: pass", true, true, ""},
		"another word":             {"VERDICT-n1: passable", false, false, ""},
		"in the middle of a line ": {"I would say VERDICT-n1: pass", false, false, ""},
	} {
		holds, why, said := ReadVerdict("n1", row.output)
		if holds != row.holds || said != row.said || why != row.why {
			t.Errorf("%s: %v, %q, %v", name, holds, why, said)
		}
	}
}

func TestNeedsOf_AreTheCommitsOfWhatCameBefore(t *testing.T) {
	s := spec()
	heads := Heads{"@plan": "p", "a": "1", "b": "2", "c": "2", "@fix": "f", "@verify": "v"}
	for name, row := range map[string]struct {
		item Item
		want string
	}{
		"a plan":                {Item{ID: "@plan", Kind: PlanStep}, ""},
		"requirements":          {Item{ID: "@prd", Kind: PRDStep}, "p"},
		"a task":                {Item{ID: "a", Kind: Task}, "p"},
		"one that needs others": {Item{ID: "c", Kind: Task, Needs: []string{"a", "b"}}, "p 1 2"},
		"a need without one":    {Item{ID: "c", Kind: Task, Needs: []string{"x"}}, "p"},
		"a verification":        {Item{ID: "@verify", Kind: VerifyStep}, "p 1 2 f"},
		"a fix":                 {Item{ID: "@fix", Kind: FixStep}, "p 1 2"},
	} {
		if got := strings.Join(s.NeedsOf(row.item, heads), " "); got != row.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	task := Item{ID: "a", Kind: Task}
	if s.Trees = TaskTrees; s.TreeOf(task, "worker-2") != "a" {
		t.Error(s.TreeOf(task, "worker-2"))
	}
	if s.Trees = WorkerTree; s.TreeOf(task, "worker-2") != "worker-2" || s.TreeOf(Item{ID: "@verify", Kind: VerifyStep}, "worker-2") != "@verify" {
		t.Error(s.TreeOf(task, "worker-2"))
	}
}
