package drill

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A patch that does not fit any more would try a guard that is on.
func TestMutants_FitTheSources(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	clock, err := Clock()
	if err != nil {
		t.Fatal(err)
	}
	all := append(Mutants(), Mutant{Name: "the clock", Off: clock})
	for _, m := range all {
		dir := t.TempDir()
		flag, err := Overlay(dir, root, append(m.Slow, m.Off...))
		if err != nil || !strings.HasPrefix(flag, "-overlay="+dir) {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s changes nothing (%v)", m.Name, err)
		}
		for _, file := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), file, nil, 0); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		for _, count := range m.Notice {
			if _, ok := (Verdict{}).Counts()[count]; !ok {
				t.Errorf("%s: nothing is counted as %s", m.Name, count)
			}
		}
	}
	if _, err := Overlay(t.TempDir(), root, []Patch{{"test/drill/doc.go", "it stands nowhere", ""}}); err == nil {
		t.Error("a patch that does not fit is taken")
	}
	if data, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !strings.Contains(string(data), "muxpost.dev/muxpost") {
		t.Errorf("%s is not the root: %v", root, err)
	}
}
