package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hits are the places in the sources, by name.
func hits(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir("../../services", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || called.Sel.Name != "Hit" {
				return true
			}
			if pkg, ok := called.X.(*ast.Ident); !ok || pkg.Name != "failpoint" {
				return true
			}
			place := files.Position(call.Pos()).String()
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the name is not a literal", place)
				return true
			}
			name, _ := strconv.Unquote(literal.Value)
			found[name] = append(found[name], place)
			if service, _, _ := strings.Cut(name, "."); !strings.HasPrefix(path, filepath.Join("../../services", service)+"/") {
				t.Errorf("%s: %s is not a place of this service", place, name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNames_AreHitInTheSourcesAndNoOthers(t *testing.T) {
	found := hits(t)
	all := slices.Concat(Names(), Hands(), Ends(), Attempts(), Teams(), Orders())
	for _, name := range all {
		if len(found[name]) != 1 {
			t.Errorf("%s stands at %d places, not one: %v", name, len(found[name]), found[name])
		}
	}
	for name, places := range found {
		if !slices.Contains(all, name) {
			t.Errorf("%v: %s is not in the list", places, name)
		}
	}
}

func TestNames_AreThereOnce(t *testing.T) {
	names := slices.Concat(Names(), Hands(), Ends(), Attempts(), Teams(), Orders())
	n := len(names)
	slices.Sort(names)
	if len(slices.Compact(names)) != n {
		t.Error("a name is in the list twice")
	}
}
