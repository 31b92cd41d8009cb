package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// caseRow is one row of docs/cases.md.
type caseRow struct {
	id   string
	line int
	text string
	// tests are what shows it, each as it stands there.
	tests []string
}

var (
	caseTable = regexp.MustCompile(`^## ([A-Z])\. `)
	caseStart = regexp.MustCompile(`^- \*\*([A-Z])(\d+)\*\* (.*)$`)
	caseTest  = regexp.MustCompile("`([a-z][a-z0-9/-]*: [^`]*)`")
)

// caseRows reads the document: its tables, and under each its rows, which begin with their number and may go on in indented lines. What is
// wrong with its form is returned as well.
func caseRows(doc string) (rows []caseRow, problems []string) {
	table, next := "", 1
	var row *caseRow
	for i, line := range strings.Split(doc, "\n") {
		if m := caseTable.FindStringSubmatch(line); m != nil {
			table, next, row = m[1], 1, nil
			continue
		}
		switch m := caseStart.FindStringSubmatch(line); {
		case m != nil:
			id := m[1] + m[2]
			if want := table + strconv.Itoa(next); id != want {
				problems = append(problems, fmt.Sprintf("line %d: the row is %s, and the next one of the table is %s", i+1, id, want))
			}
			rows = append(rows, caseRow{id: id, line: i + 1, text: m[3]})
			row, next = &rows[len(rows)-1], next+1
		case strings.HasPrefix(line, "  ") && row != nil:
			row.text += " " + strings.TrimSpace(line)
		default:
			row = nil
		}
	}
	for i := range rows {
		for _, m := range caseTest.FindAllStringSubmatch(rows[i].text, -1) {
			rows[i].tests = append(rows[i].tests, m[1])
		}
	}
	return rows, problems
}

// shown are the tests that there are: by package, by name, the strings that stand in the file of the test, the names of its subtests among
// them.
type shown map[string]map[string]map[string]bool

func shownBy(files []source) shown {
	out := shown{}
	for _, s := range files {
		if !strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		literals := map[string]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					literals[text] = true
				}
			}
			return true
		})
		pkg := filepath.ToSlash(s.pkg)
		if out[pkg] == nil {
			out[pkg] = map[string]map[string]bool{}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				out[pkg][f.Name.Name] = literals
			}
		}
	}
	return out
}

// problem says what is wrong with a test that a row names; empty when it is there.
func (s shown) problem(named string) string {
	pkg, test, _ := strings.Cut(named, ": ")
	names := strings.Split(test, "/")
	literals, found := s[pkg][names[0]]
	switch {
	case s[pkg] == nil:
		return "there is no package " + pkg + " with tests"
	case !found:
		return pkg + " has no test function " + names[0]
	}
	for _, sub := range names[1:] {
		if !literals[sub] {
			return fmt.Sprintf("the file of %s in %s does not hold the string %q", names[0], pkg, sub)
		}
	}
	return ""
}

// TestCases_EveryRowIsShownByATestThatIsThere holds docs/cases.md to the tests: whoever renames or removes one has to say what shows its
// rows from then on.
func TestCases_EveryRowIsShownByATestThatIsThere(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := caseRows(string(doc))
	for _, p := range problems {
		t.Errorf("docs/cases.md: %s", p)
	}
	var tables []string
	there := shownBy(sources(t))
	for _, r := range rows {
		if table := r.id[:1]; !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
		if !strings.Contains(r.text, " → ") {
			t.Errorf("docs/cases.md:%d: %s does not say, behind an arrow (→), what must come out", r.line, r.id)
		}
		if len(r.tests) == 0 {
			t.Errorf("docs/cases.md:%d: %s names no test, as `package: TestName` or `package: TestName/subtest`", r.line, r.id)
		}
		for _, named := range r.tests {
			if p := there.problem(named); p != "" {
				t.Errorf("docs/cases.md:%d: %s: %s", r.line, r.id, p)
			}
		}
	}
	if want := []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L"}; !slices.Equal(tables, want) {
		t.Errorf("docs/cases.md has the tables %v, not %v", tables, want)
	}
}

// TestCases_WhatIsWrongWithTheDocumentIsFound has documents with one mistake each.
func TestCases_WhatIsWrongWithTheDocumentIsFound(t *testing.T) {
	const good = "## A. State\n\n- **A1** one → two.\n  `internal/arch: TestImports_KeepTheBoundaries`\n" +
		"- **A2** three → four,\n  `internal/arch: TestTests_SkipOnlyAtADesk/testdata`\n"
	there := shownBy(sources(t))
	for name, row := range map[string]struct{ old, new, want string }{
		"nothing":                 {"", "", ""},
		"a row is missing":        {"**A2**", "**A3**", "line 5: the row is A3, and the next one of the table is A2"},
		"a row of another table":  {"**A1**", "**B1**", "line 3: the row is B1"},
		"a test that is not":      {"TestImports_Keep", "TestImports_Kept", "no test function TestImports_Kept"},
		"a package that is not":   {"internal/arch: TestI", "internal/ark: TestI", "no package internal/ark"},
		"a subtest that is not":   {"Desk/testdata", "Desk/another " + "one", `does not hold the string "another one"`},
		"a row without any test":  {"  `internal/arch: TestTests_SkipOnlyAtADesk/testdata`\n", "", "A2 names none"},
		"a test in another line ": {"  `internal/arch: TestTests", "`internal/arch: TestTests", "A2 names none"},
	} {
		rows, problems := caseRows(strings.Replace(good, row.old, row.new, 1))
		for _, r := range rows {
			if len(r.tests) == 0 {
				problems = append(problems, r.id+" names none")
			}
			for _, named := range r.tests {
				if p := there.problem(named); p != "" {
					problems = append(problems, p)
				}
			}
		}
		if found := strings.Join(problems, "\n"); (row.want == "") != (found == "") || !strings.Contains(found, row.want) {
			t.Errorf("%s: %q, want %q", name, found, row.want)
		}
	}
}
