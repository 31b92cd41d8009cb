package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/settings"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

func TestPolicies_TheFirstThatMatchesIsRunForTheItem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("harness: codex\ndirectory: '/srv/{repo}'\nmax_fix_loops: 1\nlimit: 10m\nplan: {prompt: 'read {work_item}'}\ntasks: [{id: a, prompt: 'fix {owner}/{repo}#{number}'}]\nverify: {prompt: look}\n")
	policy, err := policies([]settings.Team{{Match: "octo/*", File: file, Retries: 2}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := workitem.Parse(item)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := policy(ref, "")
	if !ok || p.Spec.Directory != "/srv/widget" || p.Spec.Tasks[0].Prompt != "fix octo/widget#7" || p.Spec.Plan.Prompt != "read "+item || p.Retries != 2 ||
		p.Backoff != 5*time.Minute || p.Spec.Limit != 10*time.Minute || p.Spec.MaxFixLoops != 1 {
		t.Errorf("%+v, %v", p, ok)
	}
	if again, _ := policy(ref, ""); again.Spec.Tasks[0].Prompt != "fix octo/widget#7" {
		t.Error("what was filled in for one item stays for the next")
	}
	named, err := policies([]settings.Team{{Match: "other/*", Name: "review", File: file}, {Name: "crew", File: file, Retries: 1}, {Name: "review", File: file, Retries: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for name, retries := range map[string]int{"": 1, "crew": 1, "review": 2, "nobody": -1} {
		if p, ok := named(ref, name); ok != (retries >= 0) || ok && p.Retries != retries {
			t.Errorf("%q: %v, %d", name, ok, p.Retries)
		}
	}
	other, err := workitem.Parse("github:other/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := policy(other, ""); ok {
		t.Error("a repository that nothing is said of has a team")
	}
	for text, want := range map[string]string{"tasks: []": "no task", "teem: x": "unknown field", "a: [": "did not find"} {
		write(text)
		if _, err := policies([]settings.Team{{File: file}}); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTeams_AnItemsRunIsTheConfiguredOne(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	file := filepath.Join(c.dir, "team.yaml")
	text := "harness: sh\ndirectory: " + c.work + "\nmax_fix_loops: 0\nverify: {check: good}\ntasks: [{id: a, prompt: \"#!\\necho {number} >> ran; test $(wc -l < ran) = 2 && touch good\\n#end\"}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(c.dir, "d.yaml")
	data, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append(data, []byte("  teams: [{match: octo/*, file: "+file+", retries: 1, backoff: 1s}]\n")...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, end := c.dispatcher()
	c.answers()
	begun, err := c.team.StartItemRun(t.Context(), &teamv1.StartItemRunRequest{WorkItem: item, Who: "alice (in a comment)", OrderId: "d1"})
	if err != nil || begun.GetRun().GetTeam() != "loop-octo-widget-7" || begun.GetRun().GetWorkItem() != item {
		t.Fatalf("%v, %v", begun, err)
	}
	if first := c.over(begun.GetRun().GetRunId()).GetRun(); first.GetPhase() != teamv1.Phase_PHASE_FAILED || first.GetTry() != 1 {
		t.Errorf("%v", first)
	}
	c.until("it is begun again, and completes", func() bool {
		last, err := c.team.GetRun(t.Context(), &teamv1.GetRunRequest{Run: "loop-octo-widget-7"})
		return err == nil && last.GetRun().GetTry() == 2 && last.GetRun().GetPhase() == teamv1.Phase_PHASE_COMPLETE
	})
	again, err := c.team.StartItemRun(t.Context(), &teamv1.StartItemRunRequest{WorkItem: item, Who: "alice (in a comment)", OrderId: "d1"})
	if err != nil || again.GetRun().GetRunId() != begun.GetRun().GetRunId() || again.GetRun().GetPhase() != teamv1.Phase_PHASE_FAILED {
		t.Errorf("the same order again: %v, %v", again, err)
	}
	if lines := c.lines("ran"); strings.Join(lines, " ") != "7 7" {
		t.Errorf("%v", lines)
	}
	if _, err := c.team.StartItemRun(t.Context(), &teamv1.StartItemRunRequest{WorkItem: "github:other/widget#7"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
	end(syscall.SIGTERM)
}

func TestTeams_AnOrderThatIsGivenAgainBeginsNoOtherRun(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	file := filepath.Join(c.dir, "team.yaml")
	text := "harness: sh\ndirectory: " + c.work + "\nverify: {check: good}\ntasks: [{id: a, prompt: \"#!\\necho a >> ran; touch good; while test ! -e go; do sleep 0.1; done\\n#end\"}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(c.dir, "d.yaml")
	data, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append(data, []byte("  teams: [{match: octo/*, file: "+file+"}]\n")...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, end := c.dispatcher()
	c.answers()
	order := func(id string) (*teamv1.Run, error) {
		out, err := c.team.StartItemRun(t.Context(), &teamv1.StartItemRunRequest{WorkItem: item, Who: "alice (by a label)", OrderId: id})
		return out.GetRun(), err
	}
	first, err := order("one")
	if err != nil {
		t.Fatal(err)
	}
	// Given again by many at once, and after the dispatcher was killed.
	end(syscall.SIGKILL)
	c.dispatcher()
	c.answers()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if again, err := order("one"); err != nil || again.GetRunId() != first.GetRunId() {
				t.Errorf("given again: %v, %v", again, err)
			}
		})
	}
	all.Wait()
	if _, err := c.team.StartItemRun(t.Context(), &teamv1.StartItemRunRequest{WorkItem: item, Team: "nobody"}); fault.KindOf(err) != fault.NotFound ||
		!strings.Contains(err.Error(), `no team called "nobody" is configured`) {
		t.Errorf("a team that there is not: %v", err)
	}
	if _, err := order("two"); fault.ReasonOf(err) != fault.ReasonRunExists {
		t.Errorf("another order while it runs: %v", err)
	}
	c.write("go", "")
	if got := c.over(first.GetRunId()); got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		t.Errorf("%v", got)
	}
	// It stays so once that run is over; another order begins another.
	if again, err := order("one"); err != nil || again.GetRunId() != first.GetRunId() || again.GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		t.Errorf("given again afterwards: %v, %v", again, err)
	}
	second, err := order("two")
	if err != nil || second.GetRunId() == first.GetRunId() {
		t.Errorf("another order: %v, %v", second, err)
	}
	c.over(second.GetRunId())
	if lines := c.lines("ran"); len(lines) != 2 {
		t.Errorf("it ran %d times", len(lines))
	}
}
