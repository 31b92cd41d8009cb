package drill

import (
	"errors"
	"slices"
	"testing"
)

func TestShrink_FindsTheFaultsThatMatter(t *testing.T) {
	var all []Fault
	for i := range 40 {
		all = append(all, Fault{Index: i})
	}
	has := func(faults []Fault, i int) bool {
		return slices.ContainsFunc(faults, func(f Fault) bool { return f.Index == i })
	}
	runs := 0
	both := func(faults []Fault) (bool, error) { runs++; return has(faults, 7) && has(faults, 31), nil }
	got, err := Shrink(all, 100, both)
	if err != nil || len(got) != 2 || got[0].Index != 7 || got[1].Index != 31 || runs > 40 {
		t.Errorf("%v after %d runs, %v", got, runs, err)
	}
	if got, err := Shrink(all, 8, both); err != nil || !has(got, 7) || !has(got, 31) || len(got) == 40 {
		t.Errorf("with eight tries: %d are left, %v", len(got), err)
	}
	broken := errors.New("no verdict")
	if got, err := Shrink(all, 10, func([]Fault) (bool, error) { return false, broken }); !errors.Is(err, broken) || len(got) != 40 {
		t.Errorf("%d, %v", len(got), err)
	}
}
