package telemetry

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// documentedMetric is a row of docs/metrics.md.
type documentedMetric struct {
	name, prometheus, kind, unit string
	attributes                   []string
}

// series are the names that Prometheus has of it.
func (d documentedMetric) series() []string {
	if d.kind == "histogram" {
		return []string{d.prometheus + "_bucket", d.prometheus + "_sum", d.prometheus + "_count"}
	}
	return []string{d.prometheus}
}

var (
	metricRow = regexp.MustCompile("^\\| `([a-z0-9._]+)` \\| `([a-z0-9_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\| ([^|]*) \\| ")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// documented are the metrics of docs/metrics.md, by name.
func documented(t *testing.T) map[string]documentedMetric {
	t.Helper()
	out := map[string]documentedMetric{}
	for _, m := range rows(t, metricRow) {
		d := documentedMetric{name: m[1], prometheus: m[2], kind: m[3], unit: strings.TrimSpace(m[4])}
		for _, key := range quoted.FindAllStringSubmatch(m[5], -1) {
			d.attributes = append(d.attributes, key[1])
		}
		out[d.name] = d
	}
	if len(out) < 50 {
		t.Fatalf("%d metrics were read of docs/metrics.md", len(out))
	}
	return out
}

func rows(t *testing.T, row *regexp.Regexp) (out [][]string) {
	t.Helper()
	data, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if m := row.FindStringSubmatch(line); m != nil {
			out = append(out, m)
		}
	}
	return out
}
