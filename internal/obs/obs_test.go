package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs/spanfile"
	"muxpost.dev/muxpost/internal/version"
)

// records parses a JSON log.
func records(t *testing.T, log []byte) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range bytes.Lines(log) {
		var record map[string]any
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, record)
	}
	return out
}

func setup(t *testing.T, log *bytes.Buffer) (*Telemetry, string) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	for _, s := range []signal{traces, metrics, logs} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT", "")
		t.Setenv("OTEL_"+string(s)+"_EXPORTER", "")
	}
	dir := t.TempDir()
	telemetry, err := Setup(t.Context(), Config{Service: "poller", Host: "h1", Instance: "i1", DataDir: dir, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, TracesDir(dir)
}

func TestTraceHandler_KeepsTheContractOfHandlers(t *testing.T) {
	var log bytes.Buffer
	err := slogtest.TestHandler(NewLogger(&log, slog.LevelInfo).Handler(), func() []map[string]any { return records(t, log.Bytes()) })
	if err != nil {
		t.Error(err)
	}
}

func TestTraceHandler_IdsStandAtTheTopWhateverGroupIsOpen(t *testing.T) {
	var log bytes.Buffer
	telemetry, _ := setup(t, &log)
	ctx, end := Start(t.Context(), telemetry.Tracer("test"), "work")
	telemetry.Logger.InfoContext(ctx, "plain", KeyHost, "h1")
	telemetry.Logger.WithGroup("g").With("a", 1).WithGroup("h").InfoContext(ctx, "grouped", "b", 2)
	telemetry.Logger.Info("outside")
	telemetry.Logger.Debug("too quiet")
	end(nil)
	got := records(t, log.Bytes())
	if len(got) != 3 {
		t.Fatalf("got %d records", len(got))
	}
	for _, record := range got[:2] {
		if record[KeyTraceID] != TraceID(ctx) || len(record[KeySpanID].(string)) != 16 || record[KeyService] != "poller" {
			t.Errorf("got %v", record)
		}
	}
	if diff := cmp.Diff(map[string]any{"a": 1.0, "h": map[string]any{"b": 2.0}}, got[1]["g"]); diff != "" {
		t.Error(diff)
	}
	if _, ok := got[2][KeyTraceID]; ok {
		t.Errorf("a trace id outside of a span: %v", got[2])
	}
}

func TestTraceContext_SurvivesARowInADatabase(t *testing.T) {
	telemetry, dir := setup(t, &bytes.Buffer{})
	tracer := telemetry.Tracer("test")
	first, endFirst := Start(t.Context(), tracer, "first try", slog.String(KeyWorkItem, "github:o/r#1"))
	stored := Inject(first)
	Event(first, "decided", slog.String(KeyAction, "hold"), slog.Group("g", slog.Int("n", 1)), slog.Duration("d", time.Second))
	Annotate(first, slog.Bool("ok", true))
	endFirst(fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "no answer"))

	resumed, endResumed := Start(Extract(context.Background(), stored), tracer, "resumed")
	endResumed(nil)
	retried, endRetried := StartLinked(t.Context(), tracer, "second try", stored)
	endRetried(nil)
	_, endDamaged := StartLinked(t.Context(), tracer, "damaged", "00-nonsense")
	endDamaged(nil)

	if TraceID(resumed) != TraceID(first) || TraceID(retried) == TraceID(first) {
		t.Errorf("first %s, resumed %s, retried %s", TraceID(first), TraceID(resumed), TraceID(retried))
	}
	outside := context.Background()
	if Inject(outside) != "" || TraceID(Extract(outside, "")) != "" || TraceID(Extract(outside, "x")) != "" {
		t.Error("a context outside of a trace is inside of one")
	}
	spans, err := spanfile.Read(dir, func(spanfile.Span) bool { return true })
	if err != nil || len(spans) != 4 {
		t.Fatalf("got %v, %v", spans, err)
	}
	byName := map[string]spanfile.Span{}
	for _, s := range spans {
		byName[s.Name] = s
	}
	if s := byName["first try"]; !s.Failed() || s.Service != "poller" || s.Host != "h1" || s.Attributes["ok"] != "true" ||
		s.Events[0].Attributes["g.n"] != "1" || s.Events[0].Attributes["d"] != "1s" {
		t.Errorf("got %+v", s)
	}
	if s := byName["second try"]; len(s.Links) != 1 || s.Links[0].TraceID != byName["first try"].TraceID || s.ParentSpanID != "" {
		t.Errorf("got %+v", s)
	}
	if s := byName["damaged"]; len(s.Links) != 0 {
		t.Errorf("got %+v", s)
	}
}

// What is done again and again is written apart from deliveries, which begin within it.
func TestRoutine_IsWrittenApartFromWhatComesOfIt(t *testing.T) {
	var log bytes.Buffer
	telemetry, dir := setup(t, &log)
	ctx, endLook := Start(Routine(t.Context(), true), telemetry.Tracer("test"), "look")
	_, endAsk := Start(ctx, telemetry.Tracer("test"), "ask")
	event, endEvent := Start(Routine(ctx, false), telemetry.Tracer("test"), "event")
	_, endInsert := Start(event, telemetry.Tracer("test"), "insert")
	for _, end := range []func(error){endInsert, endEvent, endAsk, endLook} {
		end(nil)
	}
	telemetry.Shutdown(t.Context())
	for pattern, want := range map[string][]string{"poller-routine-*": {"look", "ask"}, "poller-[0-9]*": {"event", "insert"}} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil || bytes.Count(data, []byte("\n")) != len(want) {
			t.Errorf("%s: %v\n%s", pattern, err, data)
		}
		for _, name := range want {
			if !bytes.Contains(data, []byte(`"name":"`+name+`"`)) {
				t.Errorf("%s has no %s", pattern, name)
			}
		}
	}
}

func TestSetup_CallersSamplingFlagLosesNoTrace(t *testing.T) {
	telemetry, dir := setup(t, &bytes.Buffer{})
	ctx := Extract(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	_, end := Start(ctx, telemetry.Tracer("test"), "work")
	end(nil)
	if spans, err := spanfile.ReadTraces(dir, "0af7651916cd43dd8448eb211c80319c"); err != nil || len(spans) != 1 {
		t.Errorf("got %v, %v", spans, err)
	}
}

func TestSetup_UnreachableCollectorIsLoggedOnceAndFailsNothing(t *testing.T) {
	var log bytes.Buffer
	_, dir := setup(t, &log)
	// An address that takes connections and never answers.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	telemetry, err := Setup(t.Context(), Config{Service: "poller", DataDir: filepath.Dir(dir), Stderr: &log})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, end := Start(t.Context(), telemetry.Tracer("test"), "work")
		end(nil)
	}
	begun := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	telemetry.Shutdown(ctx)
	if took := time.Since(begun); took > flushTimeout+2*time.Second {
		t.Errorf("shutting down took %v", took)
	}
	telemetry.collector.report(traces, errors.New("again"))
	got := records(t, log.Bytes())
	if len(got) != 1 || !strings.Contains(got[0]["msg"].(string), "collector") {
		t.Errorf("got %v", got)
	}
	if spans, err := spanfile.Read(dir, func(spanfile.Span) bool { return true }); err != nil || len(spans) != 3 {
		t.Errorf("span files hold %d spans, %v", len(spans), err)
	}
}

func TestSetup_DirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	setup(t, &bytes.Buffer{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Setup(t.Context(), Config{Service: "poller", DataDir: file})
	if fault.ReasonOf(err) != fault.ReasonStorage {
		t.Errorf("got %v", err)
	}
}

func TestSetup_ResourceNamesTheServiceTheBuildAndTheHost(t *testing.T) {
	telemetry, _ := setup(t, &bytes.Buffer{})
	defer telemetry.Shutdown(t.Context())
	_, span := telemetry.TracerProvider().Tracer("test").Start(t.Context(), "x")
	defer span.End()
	want := "host.name=h1,service.instance.id=i1,service.name=poller,service.namespace=muxpost,service.version=" + version.String()
	if got := span.(sdktrace.ReadOnlySpan).Resource().String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogger_ShowsTheCauseThatAMessageLeavesOut(t *testing.T) {
	var log bytes.Buffer
	err := fault.New(fault.Unavailable, "", "cannot reach it").WithHiddenCause(errors.New("transport: refused"))
	NewLogger(&log, slog.LevelInfo).Info("asked", KeyError, fmt.Errorf("look: %w", err))
	if want := `"error":"look: cannot reach it [transport: refused]"`; !strings.Contains(log.String(), want) {
		t.Errorf("%s", log.String())
	}
}
