package telemetry

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const deploy = root + "/deploy/compose/"

// nameLabel is the label that Prometheus keeps the name of a series under.
const nameLabel = "__name__"

// question is what a dashboard or a rule asks Prometheus, with the labels that it shows of the answer.
type question struct {
	where, expr string
	shows       []string
}

// uncommon are the metrics that a healthy run with one delivery does not tell, with what they wait for.
var uncommon = map[string]string{
	"muxpost.dispatcher.host.breaker.openings": "a host that does not answer", "muxpost.dispatcher.leases.lost": "two dispatchers",
	"muxpost.dispatcher.host.capacity": "tmuxd.capacity", "muxpost.tmuxd.capacity": "tmuxd.capacity",
	"muxpost.tmuxd.answers.unknown": "a tmux that does not answer", "muxpost.tmuxd.snapshot.age": "a reader that allows an age",
	"muxpost.tmuxd.acts.refused": "a session that is not ours", "muxpost.tmuxd.spawns.failed": "a program that does not start",
	"muxpost.tmuxd.sessions.ended": "an agent that ends", "muxpost.tmuxd.attempts.ended": "a task",
	"muxpost.poller.items.rearmed": "another version", "muxpost.poller.webhooks": "webhooks", "muxpost.poller.webhooks.handled": "webhooks",
	"muxpost.poller.webhook.age": "webhooks", "muxpost.poller.notices": "notices", "db.client.operation.errors": "a statement that fails",
	"muxpost.tmuxd.pastes.held": "a draft", "muxpost.dispatcher.deliveries.waiting": "one that waits just then",
	"muxpost.dispatcher.deliveries.oldest": "one that waits just then",
}

func questions(t *testing.T, told *told) {
	c := catalogue{series: map[string][]string{}, of: map[string]string{}}
	for _, d := range documented(t) {
		c.add(d)
	}
	all := append(ofDashboards(t), ofRules(t)...)
	if len(all) < 100 {
		t.Fatalf("%d questions were read", len(all))
	}
	asked := map[string]bool{}
	for _, q := range all {
		q.expr = strings.ReplaceAll(q.expr, "$__rate_interval", "5m")
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v", q.where, err)
			continue
		}
		have := c.labels(expr, func(format string, args ...any) { t.Errorf(q.where+": "+format, args...) })
		for _, label := range q.shows {
			if !slices.Contains(have, label) {
				t.Errorf("%s shows the label %s, which the answer does not have: %v", q.where, label, have)
			}
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				asked[c.of[s.Name]] = true
			}
			return nil
		})
	}
	exported := map[string]bool{}
	for _, metrics := range told.metrics {
		for name := range metrics {
			exported[name] = true
		}
	}
	for name := range asked {
		if name != "" && !exported[name] && uncommon[name] == "" {
			t.Errorf("%s is asked for, and no service told it", name)
		}
	}
	for _, d := range documented(t) {
		if strings.HasPrefix(d.name, "muxpost.") && !asked[d.name] {
			t.Errorf("%s is on no dashboard and in no rule", d.name)
		}
	}
}

// catalogue are the series that there are, with their labels.
type catalogue struct {
	series map[string][]string
	// of is the metric of a series.
	of map[string]string
}

// add adds the series of a metric.
func (c catalogue) add(d documentedMetric) {
	has := []string{"job", "instance"}
	for _, key := range d.attributes {
		has = append(has, strings.ReplaceAll(key, ".", "_"))
	}
	for _, series := range d.series() {
		c.series[series], c.of[series] = slices.Clone(has), d.name
		if strings.HasSuffix(series, "_bucket") {
			c.series[series] = append(c.series[series], "le")
		}
	}
}

// labels returns the labels that the answer to an expression may have. What asks for a series or a label that there is not is told.
func (c catalogue) labels(e parser.Expr, wrong func(string, ...any)) []string {
	within := func(have, want []string) {
		for _, label := range want {
			if !slices.Contains(have, label) {
				wrong("the label %s is asked of %s, which has %v", label, e, have)
			}
		}
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		have, ok := c.series[e.Name]
		if !ok {
			wrong("there is no series %q", e.Name)
		}
		for _, m := range e.LabelMatchers {
			if m.Name != nameLabel {
				within(have, []string{m.Name})
			}
		}
		return have
	case *parser.MatrixSelector:
		return c.labels(e.VectorSelector, wrong)
	case *parser.ParenExpr:
		return c.labels(e.Expr, wrong)
	case *parser.AggregateExpr:
		have := c.labels(e.Expr, wrong)
		within(have, e.Grouping)
		if e.Without {
			return slices.DeleteFunc(slices.Clone(have), func(l string) bool { return slices.Contains(e.Grouping, l) })
		}
		return e.Grouping
	case *parser.Call:
		return c.called(e, within, wrong)
	case *parser.BinaryExpr:
		left, right := c.labels(e.LHS, wrong), c.labels(e.RHS, wrong)
		if m := e.VectorMatching; m != nil && m.On {
			within(left, m.MatchingLabels)
			within(right, m.MatchingLabels)
		}
		if e.Op == parser.LOR {
			return append(slices.Clone(left), right...)
		}
		return left
	case *parser.NumberLiteral, *parser.StringLiteral:
		return nil
	}
	wrong("%T is a kind of expression that this test does not know", e)
	return nil
}

func (c catalogue) called(e *parser.Call, within func(have, want []string), wrong func(string, ...any)) (have []string) {
	for _, arg := range e.Args {
		have = append(have, c.labels(arg, wrong)...)
	}
	text := func(i int) string { return e.Args[i].(*parser.StringLiteral).Val }
	switch e.Func.Name {
	case "label_replace":
		within(have, []string{text(3)})
		return append(have, text(1))
	case "absent": // it has the labels that it was asked with
		have = nil
		for _, m := range e.Args[0].(*parser.VectorSelector).LabelMatchers {
			if m.Type == labels.MatchEqual && m.Name != nameLabel {
				have = append(have, m.Name)
			}
		}
	case "histogram_quantile":
		within(have, []string{"le"})
		return slices.DeleteFunc(slices.Clone(have), func(l string) bool { return l == "le" })
	}
	return have
}

var (
	legend  = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	inAlert = regexp.MustCompile(`\$labels\.(\w+)`)
)

func found(re *regexp.Regexp, text string) (out []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// ofDashboards are the questions of the dashboards.
func ofDashboards(t *testing.T) (out []question) {
	t.Helper()
	files, err := filepath.Glob(deploy + "grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	ids := map[string]string{}
	for _, file := range files {
		var board struct {
			UID    string
			Panels []struct {
				Type, Title string
				GridPos     struct{ X, Y, W, H int }
				Datasource  struct{ UID string }
				Targets     []struct{ Expr, LegendFormat string }
			}
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &board)
		}
		if err != nil {
			t.Fatal(file, err)
		}
		if other := ids[board.UID]; other != "" || board.UID == "" {
			t.Errorf("%s has the uid %q of %s", file, board.UID, other)
		}
		ids[board.UID] = file
		for _, p := range board.Panels {
			if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "prometheus" || p.GridPos.X+p.GridPos.W > 24) {
				t.Errorf("%s: the panel %q asks nothing, asks nobody, or does not fit", file, p.Title)
			}
			for _, target := range p.Targets {
				out = append(out, question{filepath.Base(file) + ": " + p.Title, target.Expr, found(legend, target.LegendFormat)})
			}
		}
	}
	return out
}

// rule is an alert.
type rule struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

// alerts reads the alert rules.
func alerts(t *testing.T) (out []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	data, err := os.ReadFile(deploy + "alerts.yml")
	if err == nil {
		err = yaml.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("%d alerts were read", len(out))
	}
	return out
}

// ofRules are the questions of the alerts.
func ofRules(t *testing.T) (out []question) {
	t.Helper()
	for _, r := range alerts(t) {
		out = append(out, question{"the alert " + r.Alert, r.Expr, found(inAlert, r.Annotations["summary"])})
	}
	return out
}

func TestAlerts_SayWhatToDo(t *testing.T) {
	runbook, err := os.ReadFile(root + "/docs/runbook-alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for _, entry := range strings.Split(string(runbook), "\n## ")[1:] {
		name, text, _ := strings.Cut(entry, "\n")
		entries[name] = text
	}
	for _, r := range alerts(t) {
		if s := r.Labels["severity"]; s != "critical" && s != "warning" || r.Annotations["summary"] == "" {
			t.Errorf("%s has the severity %q and the summary %q", r.Alert, s, r.Annotations["summary"])
		}
		if want := "docs/runbook-alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s links to %q, not to %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		for _, part := range []string{"**Means**: ", "**Confirm**: ", "**Do**: "} {
			if !strings.Contains(entries[r.Alert], part) {
				t.Errorf("docs/runbook-alerts.md does not say of %s: %s", r.Alert, part)
			}
		}
		delete(entries, r.Alert)
	}
	for name := range entries {
		t.Errorf("docs/runbook-alerts.md has %s, which is no alert", name)
	}
}

// Whether the rules fire when they should, and only then, is promtool's to say, of Prometheus: where there is none this is not tried.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	tested, err := os.ReadFile(deploy + "testing/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		if n := strings.Count(string(tested), "alertname: "+r.Alert+"\n") + strings.Count(string(tested), "alertname: "+r.Alert+","); n < 2 {
			t.Errorf("testing/alerts_test.yml has %d cases of %s: one that raises it and one that must not", n, r.Alert)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("not tried: promtool is not installed")
		return
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"check", "config", "--syntax-only", "prometheus.yml"}, {"test", "rules", "testing/alerts_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = deploy
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
