package drill

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan_IsAFunctionOfTheSeed(t *testing.T) {
	plan := Plan(7, 3000, 9, 8)
	if diff := cmp.Diff(plan, Plan(7, 3000, 9, 8)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(plan, Plan(8, 3000, 9, 8)) {
		t.Error("another seed has the same plan")
	}
	seen := map[Kind]bool{}
	for i, f := range plan {
		if f.Index != i || f.Step < 0 || f.Step >= 3000 || f.Until < f.Step {
			t.Errorf("%d: %v", i, f)
		}
		seen[f.Kind] = true
	}
	for _, k := range Kinds() {
		if !seen[k] || acts[k] == nil {
			t.Errorf("%s is never chosen, or does nothing", k)
		}
	}
	if got := Only(plan, []int{3, 5}); len(got) != 2 || got[0].Index != 3 || got[1] != plan[5] {
		t.Errorf("%v", got)
	}
	if got := Plan(7, 300, 9, 8, Cut, Upgrade); len(got) < 20 || slices.ContainsFunc(got, func(f Fault) bool { return f.Kind != Cut && f.Kind != Upgrade }) {
		t.Errorf("%v", got)
	}
}

func TestTell_IsAFunctionOfTheSeed(t *testing.T) {
	ways := map[string]int{}
	for step := range 200 {
		telling := Tell(7, step, 9)
		if telling != Tell(7, step, 9) {
			t.Errorf("step %d is told in two ways", step)
		}
		ways[telling.How]++
	}
	if len(ways) != 4 {
		t.Errorf("%v", ways)
	}
}
