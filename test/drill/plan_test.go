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
	if got := Only(plan, []int{3, 5}, nil); len(got) != 2 || got[0].Index != 3 || got[1] != plan[5] {
		t.Errorf("%v", got)
	}
	if got := Only(plan, nil, []Kind{Cut}); len(got) == 0 || slices.ContainsFunc(got, func(f Fault) bool { return f.Kind != Cut }) {
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
