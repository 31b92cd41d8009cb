package disk

import (
	"os"
	"strings"
	"testing"
)

// A floor and a highest token each lie in a file of their own, and neither ever sinks.
func TestFence_OnlyGrowsAndSurvives(t *testing.T) {
	d := open(t)
	for _, floor := range []int64{5, 3, 7} {
		if err := d.RaiseFloor(floor); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.RaiseToken(2); err != nil {
		t.Fatal(err)
	}
	d.Close()
	again, err := Open(d.root, "")
	if err != nil {
		t.Fatal(err)
	}
	if floor, token := again.Floor(), again.Token(); floor != 7 || token != 2 {
		t.Errorf("floor %d, token %d", floor, token)
	}
	again.Close()
	if err := os.Remove(again.path("floor.json")); err != nil {
		t.Fatal(err)
	}
	lost, err := Open(d.root, "")
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	if floor, token := lost.Floor(), lost.Token(); floor != 0 || token != 2 {
		t.Errorf("after a loss: floor %d, token %d", floor, token)
	}
}

func TestFence_AFloorThatCannotBeWrittenIsNotTold(t *testing.T) {
	d := open(t)
	if err := d.RaiseFloor(5); err != nil {
		t.Fatal(err)
	}
	// A directory in its place cannot be replaced by a file.
	if err := os.Remove(d.path("floor.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.path("floor.json", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.RaiseFloor(9); err == nil || d.Floor() != 5 {
		t.Errorf("floor %d, %v", d.Floor(), err)
	}
}

func TestFence_AFileThatHoldsNoTokenIsNotTakenForNone(t *testing.T) {
	for _, name := range []string{"token.json", "floor.json"} {
		d := open(t)
		d.Close()
		if err := os.WriteFile(d.path(name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(d.root, ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
