package workitem

import (
	"errors"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
)

func TestParse_FoldsCaseAndDropsTheDefaultHost(t *testing.T) {
	for in, want := range map[string]string{
		"github:Octo/Widget#7":               "github:octo/widget#7",
		"GitHub:github.com/octo/widget#7":    "github:octo/widget#7",
		"github:GHE.example.com/octo/w.js#1": "github:ghe.example.com/octo/w.js#1",
		"github:127.0.0.1:8080/octo/w#1":     "github:127.0.0.1:8080/octo/w#1",
	} {
		r, err := Parse(in)
		if err != nil {
			t.Errorf("Parse(%q): %v", in, err)
			continue
		}
		if r.String() != want {
			t.Errorf("Parse(%q) = %q, want %q", in, r, want)
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("Parse(%q) = %v, %v: the canonical form does not read back", r, again, err)
		}
	}
}

func TestParse_SaysWhatIsWrong(t *testing.T) {
	for in, part := range map[string]string{
		"":                                   "empty",
		"octo/widget#7":                      "provider",
		"gitlab:octo/widget#7":               "provider",
		"github:octo/widget":                 "#number",
		"github:octo#7":                      "1 parts",
		"github:a/b/c/d#7":                   "4 parts",
		"github:octo/widget#0":               "number",
		"github:octo/widget#07":              "number",
		"github:octo/widget#-1":              "number",
		"github:octo/widget#+1":              "number",
		"github:octo/widget#":                "number",
		"github:octo/widget#7#8":             "number",
		"github:octo/widget#99999999999":     "number",
		"github:-octo/widget#7":              "owner",
		"github:oc to/widget#7":              "owner",
		"github:octo/#7":                     "repository",
		"github:octo/..#7":                   "repository",
		"github:octo/wid\nget#7":             "repository",
		"github:octo/#(touch x)#7":           "repository",
		"github:ho st/octo/widget#7":         "host",
		"github:h:0/octo/widget#7":           "host",
		"github:.h/octo/widget#7":            "host",
		"github:octo/widget\u212a#7":         "repository",
		"github:" + strings.Repeat("a", 301): "longer",
	} {
		_, err := Parse(in)
		if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonBadWorkItem {
			t.Errorf("Parse(%q) = %v, want an invalid work item", in, err)
			continue
		}
		if !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "github:owner/repo#number") {
			t.Errorf("Parse(%q) says %q: it should name %q and what is wanted", in, err, part)
		}
	}
}

func TestTarget_IsReadableWhereNothingIsLost(t *testing.T) {
	for in, want := range map[string]string{
		"github:octo/widget#7":     "loop-octo-widget-7",
		"github:Octo/Widget#7":     "loop-octo-widget-7",
		"github:octo/foo-bar_x#12": "loop-octo-foo-bar_x-12",
	} {
		if got := mustParse(t, in).Target(); got != want {
			t.Errorf("target of %s = %q, want %q", in, got, want)
		}
	}
}

func TestTarget_KeepsLookalikesApart(t *testing.T) {
	items := []string{
		"github:octo/foo.js#15", "github:octo/foo_js#15", "github:a-b/c#1", "github:a/b-c#1", "github:a/b#1", "github:a/b-1#1",
		"github:ghe.example/a/b#1", "github:ghe-example/a/b#1", "github:octo/widget#1", "github:octo/widget#10",
		"github:" + strings.Repeat("o", 39) + "/" + strings.Repeat("r", 80) + "#1",
		"github:" + strings.Repeat("o", 39) + "/" + strings.Repeat("r", 80) + "#2",
		"github:" + strings.Repeat("o", 39) + "/" + strings.Repeat("r", 81) + "#1",
	}
	seen := map[string]string{}
	for _, in := range items {
		target := mustParse(t, in).Target()
		if other, ok := seen[target]; ok {
			t.Errorf("%s and %s share the target %s", in, other, target)
		}
		seen[target] = in
	}
}

func TestValidTarget_RefusesWhatTmuxWouldReadOtherwise(t *testing.T) {
	for _, s := range []string{"", "1a", "-a", "_a", "A", "a.b", "a:b", "a b", "a#(x)", "$1", "client-1", "pts", "tty1",
		"a\n", "aé", strings.Repeat("a", 49)} {
		if ValidTarget(s) {
			t.Errorf("ValidTarget(%q) = true", s)
		}
	}
}

// FuzzTarget holds the three promises of a target: safe for tmux, the same for every spelling, and another one for another item.
func FuzzTarget(f *testing.F) {
	f.Add("github:octo/widget#7", "github:octo/widget#8")
	f.Add("github:a-b/c#1", "github:a/b-c#1")
	f.Add("github:octo/foo.js#15", "github:octo/foo_js#15")
	f.Add("github:h.example/a/b#1", "github:a/b#1")
	f.Fuzz(func(t *testing.T, a, b string) {
		ra, errA := Parse(a)
		rb, errB := Parse(b)
		if errA == nil {
			if !ValidTarget(ra.Target()) {
				t.Fatalf("target %q of %q is not safe", ra.Target(), a)
			}
			again, err := Parse(strings.ToUpper(ra.String()))
			if err != nil || again != ra {
				t.Fatalf("upper case of %q reads as %v, %v", ra, again, err)
			}
		}
		if errA == nil && errB == nil && (ra == rb) != (ra.Target() == rb.Target()) {
			t.Fatalf("%q and %q: same item %v, targets %q and %q", a, b, ra == rb, ra.Target(), rb.Target())
		}
	})
}

func mustParse(t *testing.T, s string) Ref {
	t.Helper()
	r, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
