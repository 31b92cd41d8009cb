// Package telemetry tests what the product tells of itself: it runs the services for real, with a collector in the test, and holds docs/metrics.md,
// the dashboards and the alert rules to what really comes out.
package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/needs"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

const (
	number = 7
	words  = "the words of an event that nobody else may read"
)

// told is what one run told.
type told struct {
	*sink
	delivered *pollerv1.LedgerEntry
	// pages are what Prometheus is shown, by service, without exemplars and with them.
	pages map[string][2]string
}

// programs builds the programs.
func programs(t *testing.T) string {
	t.Helper()
	needs.Program(t, "tmux")
	dir, module := t.TempDir(), "muxpost.dev/muxpost/"
	for out, pkg := range map[string]string{
		"": module + "cmd/...", "fakeagent": module + "test/fakeagent", "fakegithub": module + "test/fakegithub/cmd/fakegithub",
		"muxpost-tmuxd": module + "services/tmuxd", "muxpost-dispatcher": module + "services/dispatcher", "muxpost-poller": module + "services/poller",
	} {
		if text, err := exec.Command("go", "build", "-o", filepath.Join(dir, out), pkg).CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", pkg, err, text)
		}
	}
	return dir
}

// run starts the product, has an issue and a comment delivered and a stranger refused, and returns what was told of it.
func run(t *testing.T) *told {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out := &told{sink: newSink(t), pages: map[string][2]string{}}
	var printed bytes.Buffer
	s, err := stack.New(ctx, programs(t), fakegithub.Seed{Repos: []fakegithub.Repo{{
		Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"},
		Issues: []fakegithub.Issue{{Number: number, Title: "The build is red", Author: stack.Author, Labels: []string{stack.Label}, Body: words}},
	}}}, &printed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	certify(t, ctx, s)
	s.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + out.address, "OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_BSP_SCHEDULE_DELAY=200"}
	if err := s.Up(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &printed)
	}
	item := stack.Item(number)
	wait := func(n int) *pollerv1.LedgerEntry {
		t.Helper()
		row, err := s.WaitEvent(ctx, item, n)
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	wait(0)
	for _, login := range []string{stack.Author, stack.Stranger} {
		if err := s.Comment(ctx, login, number, words); err != nil {
			t.Fatal(err)
		}
	}
	if out.delivered = wait(1); out.delivered.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
		t.Fatalf("the comment ended as %v", out.delivered)
	}
	wait(2)
	// What is in the database is asked for again after ten seconds.
	for out.find("dispatcher", "muxpost.dispatcher.sessions") == nil || out.find("poller", "muxpost.poller.source.age") == nil {
		select {
		case <-ctx.Done():
			t.Fatal("what is in the database was not told")
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, service := range []string{"dispatcher", "poller"} {
		out.pages[service] = [2]string{page(t, ctx, s.Address(service), "text/plain"), page(t, ctx, s.Address(service), "application/openmetrics-text")}
	}
	// What was done is told at the latest when the services end.
	if text, err := s.Run(ctx, "down"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// certify gives each service a certificate to show.
func certify(t *testing.T, ctx context.Context, s *stack.Stack) {
	t.Helper()
	data, err := os.ReadFile(s.ConfigFile())
	if err == nil {
		_, err = s.Run(ctx, "ca", "init")
	}
	if err != nil {
		t.Fatal(err)
	}
	config := "\n" + string(data)
	for section, party := range map[string]struct{ kind, name, listen string }{
		"dispatcher": {"service", "dispatcher", ""}, "poller": {"service", "poller", ""}, "tmuxd": {"host", "laptop", `listen: "127.0.0.1:0", `},
	} {
		if _, err := s.Run(ctx, "ca", "issue", party.kind, party.name); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(s.Dir, "certificates", party.kind+"-"+party.name)
		head := "\n" + section + ":\n"
		tls := fmt.Sprintf("  tls: {%scert_file: %[2]s/cert.pem, key_file: %[2]s/key.pem, ca_file: %[2]s/ca.pem}\n", party.listen, dir)
		if strings.Count(config, head) != 1 {
			t.Fatalf("the configuration has no section %s:\n%s", section, config)
		}
		config = strings.Replace(config, head, head+tls, 1)
	}
	if err := os.WriteFile(s.ConfigFile(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// page reads /metrics at a socket.
func page(t *testing.T, ctx context.Context, address, accept string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix:"))
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, res.Status, err)
	}
	return string(text)
}

func TestTelemetry_OfServicesThatRun(t *testing.T) {
	seen := run(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *told)
	}{
		{"the resource says who tells", resources},
		{"every metric is documented", metricsAreDocumented},
		{"each service tells how long its certificate is valid", certificates},
		{"no metric names what it is about", nothingIsNamed},
		{"a delivery's trace is beside the numbers", exemplars},
		{"what ended is counted", ended},
		{"logs go along, with the trace", logs},
		{"Prometheus is shown the same", shown},
		{"dashboards and rules ask for what there is", questions},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, seen) })
	}
}

func resources(t *testing.T, told *told) {
	for _, service := range []string{"dispatcher", "poller", "tmuxd"} {
		r := told.resources[service]
		if r["service.namespace"] != "muxpost" || r["service.version"] == "" || r["service.instance.id"] == "" || r["host.name"] == "" {
			t.Errorf("%s: %v", service, r)
		}
	}
	if got := told.resources["tmuxd"]["service.instance.id"]; got != "laptop" {
		t.Errorf("the instance of tmuxd is %q, not its host", got)
	}
}

func certificates(t *testing.T, told *told) {
	for _, service := range []string{"dispatcher", "poller", "tmuxd"} {
		if told.find(service, "muxpost.certificate.remaining") == nil {
			t.Errorf("%s does not tell it", service)
		}
	}
	for service, page := range told.pages {
		if m := regexp.MustCompile(`(?m)^muxpost_certificate_remaining_seconds(?:\{[^}]*\})? ([0-9.e+]+)$`).FindStringSubmatch(page[0]); m == nil {
			t.Errorf("%s does not show it", service)
		} else if n, err := strconv.ParseFloat(m[1], 64); err != nil || n < 29*86400 || n > 30*86400 {
			t.Errorf("%s shows %s seconds of 30 days: %v", service, m[1], err)
		}
	}
}

func metricsAreDocumented(t *testing.T, told *told) {
	known := documented(t)
	for service, metrics := range told.metrics {
		if len(metrics) < 20 {
			t.Errorf("%s told of %d metrics", service, len(metrics))
		}
		for name, m := range metrics {
			d, ok := known[name]
			switch {
			case !ok:
				t.Errorf("docs/metrics.md does not have %s (%s, unit %q, %v) of %s", name, m.kind, m.unit, sorted(m.attributes), service)
			case d.unit != m.unit:
				t.Errorf("docs/metrics.md has the unit %q of %s, which has %q", d.unit, name, m.unit)
			case d.kind != m.kind:
				t.Errorf("docs/metrics.md has %s as a %s, and it is a %s", name, d.kind, m.kind)
			}
			for _, key := range sorted(m.attributes) {
				if ok && !slices.Contains(d.attributes, key) {
					t.Errorf("docs/metrics.md does not have the attribute %s of %s", key, name)
				}
			}
		}
	}
}

// nothingIsNamed expects no attribute to hold an id, or a name that is minted for one item.
func nothingIsNamed(t *testing.T, told *told) {
	ref, err := workitem.Parse(stack.Item(number))
	if err != nil {
		t.Fatal(err)
	}
	row := told.delivered
	for service, metrics := range told.metrics {
		for name, m := range metrics {
			for value := range m.values {
				for _, id := range []string{row.GetDeliveryId(), row.GetWorkItem(), ref.Target(), row.GetTraceId(), stack.Owner + "/" + stack.Repo, words} {
					if strings.Contains(value, id) {
						t.Errorf("%s of %s has the value %q", name, service, value)
					}
				}
			}
		}
	}
}

func exemplars(t *testing.T, told *told) {
	for service, name := range map[string]string{
		"dispatcher": "muxpost.dispatcher.delivery.duration", "poller": "muxpost.poller.event.delivery", "tmuxd": "muxpost.tmuxd.act.duration",
	} {
		m := told.find(service, name)
		if m == nil || !slices.Contains(m.exemplars, told.delivered.GetTraceId()) {
			t.Errorf("%s of %s has not the trace %s beside it: %+v", name, service, told.delivered.GetTraceId(), m)
		}
	}
}

// ended expects what was delivered to be counted, and the states that an alert waits for to be there before anything ends so.
func ended(t *testing.T, told *told) {
	m := told.find("poller", "muxpost.poller.events.ended")
	if m == nil || !m.values["delivered"] || !m.values["dropped"] || !m.values["gave_up"] {
		t.Errorf("what ended is told as %+v", m)
	}
}

func logs(t *testing.T, told *told) {
	for _, want := range [][2]string{{"dispatcher", "delivery decided"}, {"poller", "event forwarded"}, {"tmuxd", "paste"}} {
		found := slices.ContainsFunc(told.logs, func(l logged) bool {
			return l.service == want[0] && l.body == want[1] && l.traceID == told.delivered.GetTraceId() && strings.Trim(l.spanID, "0") != "" &&
				l.attributes["delivery_id"] == told.delivered.GetDeliveryId()
		})
		if !found {
			t.Errorf("no record %q of %s has the trace %s of the delivery", want[1], want[0], told.delivered.GetTraceId())
		}
	}
	for _, l := range told.logs {
		if text := l.body + fmt.Sprint(l.attributes); strings.Contains(text, words) {
			t.Errorf("a log has the text of an event: %s", text)
		}
	}
	if !slices.ContainsFunc(told.spans, func(s span) bool { return s.service == "tmuxd" && s.traceID == told.delivered.GetTraceId() }) {
		t.Error("tmuxd's part of the trace did not come")
	}
}

// shown expects the pages for Prometheus to have the names that docs/metrics.md says, and those alone.
func shown(t *testing.T, told *told) {
	known := map[string]bool{"target_info": true}
	for _, d := range documented(t) {
		for _, name := range d.series() {
			known[name] = true
		}
	}
	series := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]`)
	for service, page := range told.pages {
		seen := map[string]bool{}
		for _, m := range series.FindAllStringSubmatch(page[0], -1) {
			seen[m[1]] = true
			if !known[m[1]] {
				t.Errorf("%s shows %s, which docs/metrics.md does not have", service, m[1])
			}
		}
		for _, name := range []string{"muxpost_build_info", "process_uptime_seconds", "go_goroutine_count", "pgxpool_acquired_connections",
			"rpc_server_call_duration_seconds_bucket", "rpc_client_call_duration_seconds_bucket"} {
			if !seen[name] {
				t.Errorf("%s does not show %s", service, name)
			}
		}
		if len(seen) < 40 {
			t.Errorf("%s shows only %d series", service, len(seen))
		}
		if !strings.Contains(page[1], `trace_id="`+told.delivered.GetTraceId()+`"`) {
			t.Errorf("%s shows no exemplar of the trace %s", service, told.delivered.GetTraceId())
		}
		if !strings.Contains(page[0], `service_name="`+service+`"`) {
			t.Errorf("%s has no target_info", service)
		}
	}
}
