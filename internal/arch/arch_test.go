package arch

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the sum of the generated code")

const root = "../.."

// source is one Go file that is ours and not generated.
type source struct {
	path string // below the root
	pkg  string // directory below the root
	test bool
	file *ast.File
	data string
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "dist", "tools", "testdata"}, rel) || rel == "proto/gen") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, data, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{rel, filepath.Dir(rel), strings.HasSuffix(path, "_test.go"), f, string(data)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d files were found: the test looks in the wrong place", len(out))
	}
	return out
}

func TestImports_KeepTheBoundaries(t *testing.T) {
	used := map[int]bool{}
	for _, s := range sources(t) {
		for i, r := range Rules() {
			if !r.about(s.pkg) {
				continue
			}
			used[i] = true
			if s.test {
				continue // a test may use real parts of every kind
			}
			for _, imp := range s.file.Imports {
				path, _ := strconv.Unquote(imp.Path.Value)
				if r.denies(path) {
					t.Errorf("%s imports %s: %s", s.path, path, r.Why)
				}
			}
		}
	}
	for i, r := range Rules() {
		if !used[i] && !slices.Contains(r.From, "proto/...") {
			t.Errorf("the rule about %v is about no package: it cannot fail", r.From)
		}
	}
}

func TestCore_ReadsNoClock(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.pkg, "core/") || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After"}, sel.Sel.Name) {
					t.Errorf("%s uses time.%s: time is an argument", s.path, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestPackages_HaveExactlyOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if s.file.Doc != nil {
			comments[s.pkg] = append(comments[s.pkg], s.path)
		} else if _, seen := comments[s.pkg]; !seen {
			comments[s.pkg] = nil
		}
	}
	for pkg, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments (%v): exactly one says what the package does and does not know", pkg, len(files), files)
		}
	}
}

func TestPackages_AreNamedByWhatTheyHold(t *testing.T) {
	for _, s := range sources(t) {
		for _, part := range strings.Split(s.pkg, "/") {
			if slices.Contains([]string{"common", "util", "utils", "helper", "helpers", "types", "models", "misc", "shared"}, part) {
				t.Errorf("%s: a package is named by the one idea that it holds", s.pkg)
			}
		}
	}
}

func TestFiles_FitOnTheTable(t *testing.T) {
	for _, s := range sources(t) {
		if n := strings.Count(s.data, "\n"); n > 520 && !s.test || n > 800 {
			t.Errorf("%s has %d lines: find the second idea in it", s.path, n)
		}
	}
}

// skips are the files with tests that are skipped for another reason than a want of something, which is internal/needs's affair.
var skips = map[string]string{
	"internal/needs/needs.go":                         "all others skip by it",
	"db/dbtest/dbtest_test.go":                        "one test is run by another, in a process of its own",
	"test/drill/drill_test.go":                        "it takes a minute or two, and -short asks for less",
	"services/tmuxd/stress_test.go":                   "it takes a minute or two, and -short asks for less",
	"services/tmuxd/internal/tmux/facts_life_test.go": "what it shows of tmux comes by chance, and not at all on some machines",
	"services/dispatcher/team_database_test.go":       "a disk is mounted, which not everybody may; a test beside it has a trigger say the same",
}

func TestTests_SkipOnlyAtADesk(t *testing.T) {
	skipping := map[string]bool{}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if skipping[s.path] = true; skips[s.path] == "" {
				t.Errorf("%s skips: what a test lacks is told to internal/needs, and in CI is a failure", s.path)
			}
			return true
		})
	}
	for path := range skips {
		if !skipping[path] {
			t.Errorf("%s does not skip any more", path)
		}
	}
}

// TestGenerated_IsCurrent holds proto/gen to proto/api without the tools: whoever changed one without the other has another sum. `make
// generate` writes it, `make verify` runs the generators again.
func TestGenerated_IsCurrent(t *testing.T) {
	h := sha256.New()
	for _, dir := range []string{"proto/api", "proto/gen", "proto/buf.gen.yaml", "tools/proto/go.mod"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(path), len(data), data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got := fmt.Sprintf("%x\n", h.Sum(nil))
	file := filepath.Join(root, "proto", "gen.sum")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("proto/gen is not what `make generate` made of proto/api (%v): run it and commit both", err)
	}
}
