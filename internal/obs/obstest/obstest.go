// Package obstest holds the tables of docs/metrics.md to the instruments that there are.
package obstest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/otlptranslator"

	"muxpost.dev/muxpost/internal/obs"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// Documented expects a table of docs/metrics.md, between the marks of that name, to tell of exactly these instruments.
func Documented(t *testing.T, name string, made []obs.Metric) {
	t.Helper()
	_, self, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(self), "..", "..", "..", "docs", "metrics.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(data), begin)
	have, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("docs/metrics.md has no %q and %q", begin, end)
	}
	want := table(made)
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // it is for everybody
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("docs/metrics.md tells of other metrics (-there are +it tells); run this test with -update:\n%s", diff)
	}
}

func table(made []obs.Metric) string {
	var b strings.Builder
	b.WriteString("| metric | in Prometheus | kind | unit | attributes | meaning |\n|---|---|---|---|---|---|\n")
	for _, m := range made {
		var keys []string
		for _, k := range m.Attributes {
			keys = append(keys, "`"+k+"`")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", m.Name, Prometheus(m), m.Kind, m.Unit, strings.Join(keys, ", "), m.About)
	}
	return b.String()
}

// Prometheus is the name that Prometheus gives an instrument; a histogram has it with _bucket, _sum and _count behind it.
func Prometheus(m obs.Metric) string {
	kind := map[obs.Kind]otlptranslator.MetricType{obs.KindCounter: otlptranslator.MetricTypeMonotonicCounter,
		obs.KindHistogram: otlptranslator.MetricTypeHistogram, obs.KindGauge: otlptranslator.MetricTypeGauge}[m.Kind]
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	name, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: kind})
	if err != nil {
		return err.Error()
	}
	return name
}
