package spanfile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func trid(n int) TraceID { return TraceID(fmt.Sprintf("%032x", n)) }
func spid(n int) SpanID  { return SpanID(fmt.Sprintf("%016x", n)) }

// made returns a span that begins n milliseconds after the epoch and takes one.
func made(n, parent int) Span {
	s := Span{TraceID: trid(1), SpanID: spid(n), Name: fmt.Sprintf("span %d", n), Kind: "internal", Service: "svc",
		Start: epoch.Add(time.Duration(n) * time.Millisecond), End: epoch.Add(time.Duration(n+1) * time.Millisecond)}
	if parent > 0 {
		s.ParentSpanID = spid(parent)
	}
	return s
}

func all(Span) bool { return true }

func newWriter(t *testing.T, dir, service string, options WriterOptions) *Writer {
	t.Helper()
	w, err := NewWriter(dir, service, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Shutdown(context.Background()) })
	return w
}

func TestWriter_SpansOfTheSDKComeBackWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traces")
	w := newWriter(t, dir, "poller", WriterOptions{OnError: func(err error) { t.Error(err) }})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w), sdktrace.WithResource(
		resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("poller"), semconv.HostName("h1"))))
	tracer := provider.Tracer("test")
	ctx, root := tracer.Start(context.Background(), "poll", trace.WithTimestamp(epoch), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("work_item", "github:o/r#1"), attribute.Int("try", 2), attribute.StringSlice("l", []string{"a", "b"})))
	linked := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 9}, SpanID: trace.SpanID{7: 8}})
	_, child := tracer.Start(ctx, "child", trace.WithTimestamp(epoch.Add(time.Second)), trace.WithLinks(trace.Link{SpanContext: linked}))
	child.AddEvent("decided", trace.WithTimestamp(epoch.Add(2*time.Second)), trace.WithAttributes(attribute.String("reason", "dead")))
	child.SetStatus(codes.Error, "no answer")
	child.End(trace.WithTimestamp(epoch.Add(3 * time.Second)))
	root.End(trace.WithTimestamp(epoch.Add(4 * time.Second)))

	got, err := Read(dir, all)
	if err != nil {
		t.Fatal(err)
	}
	id := TraceID(root.SpanContext().TraceID().String())
	want := []Span{{
		TraceID: id, SpanID: SpanID(root.SpanContext().SpanID().String()), Name: "poll", Kind: "client", Service: "poller", Host: "h1",
		Start: epoch, End: epoch.Add(4 * time.Second),
		Attributes: Attributes{"work_item": "github:o/r#1", "try": "2", "l": `["a","b"]`},
	}, {
		TraceID: id, SpanID: SpanID(child.SpanContext().SpanID().String()), ParentSpanID: SpanID(root.SpanContext().SpanID().String()),
		Name: "child", Kind: "internal", Service: "poller", Host: "h1", Start: epoch.Add(time.Second), End: epoch.Add(3 * time.Second),
		Status: StatusError, StatusMessage: "no answer",
		Events: []Event{{"decided", epoch.Add(2 * time.Second), Attributes{"reason": "dead"}}},
		Links:  []Link{{TraceID: trid(9), SpanID: spid(8)}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for key, value := range map[string]string{"work_item": "github:o/r#1", "reason": "dead"} {
		if ids, err := FindTraces(dir, key, value); err != nil || !cmp.Equal(ids, []TraceID{id}) {
			t.Errorf("by %s: %v, %v", key, ids, err)
		}
	}
	if ids, err := FindTraces(dir, "work_item", "github:o/r"); err != nil || ids != nil {
		t.Errorf("by a part of a value: %v, %v", ids, err)
	}
	if spans, err := ReadTraces(dir, id); err != nil || len(spans) != 2 {
		t.Errorf("by trace: %v, %v", spans, err)
	}
	assertModes(t, dir)
}

func assertModes(t *testing.T, dir string) {
	t.Helper()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("files: %v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(info.Name(), fmt.Sprintf("poller-%d-2", os.Getpid())) {
		t.Errorf("file: %v, %v", info, err)
	}
}

func TestWriter_ConcurrentSpansAreWholeLines(t *testing.T) {
	dir := t.TempDir()
	// Two writers as two processes would have them, each with several goroutines, with files that fill up meanwhile.
	var group sync.WaitGroup
	for i := range 2 {
		w := newWriter(t, dir, "svc", WriterOptions{FileBytes: 4096, OnError: func(err error) { t.Error(err) }})
		for j := range 4 {
			group.Go(func() {
				for k := range 50 {
					w.Write(made(1+i*1000+j*100+k, 0))
				}
			})
		}
	}
	group.Wait()
	spans, err := Read(dir, all)
	if err != nil || len(spans) != 400 {
		t.Errorf("read %d spans of 400, %v", len(spans), err)
	}
}

func TestWriter_OldestFilesOfTheServiceMakeRoom(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"svc-1-a.jsonl", "svc-2-b.jsonl", "svc-3-c.jsonl", "other-1-a.jsonl", "svc-x-1-a.jsonl", "notes.txt"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 1000), 0o600); err != nil {
			t.Fatal(err)
		}
		at := epoch.Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	w := newWriter(t, dir, "svc", WriterOptions{FileBytes: 1000, TotalBytes: 2000, Now: func() time.Time { return epoch }})
	w.Write(made(1, 0))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want := []string{"notes.txt", "other-1-a.jsonl", "svc-3-c.jsonl",
		fmt.Sprintf("svc-%d-20260102T030405.000000006Z.jsonl", os.Getpid()), "svc-x-1-a.jsonl"}
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestWriter_FullFileIsFollowedByAnother(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir, "svc", WriterOptions{FileBytes: 600, TotalBytes: 1500, Now: func() time.Time { return epoch }})
	for i := range 50 {
		w.Write(made(i+1, 0))
	}
	var total int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 600 {
			t.Errorf("%s has %d bytes", info.Name(), info.Size())
		}
		total += info.Size()
	}
	if total > 1500 || len(entries) < 2 {
		t.Errorf("%d bytes in %d files", total, len(entries))
	}
	spans, err := Read(dir, all)
	if err != nil || len(spans) == 0 || spans[len(spans)-1].SpanID != spid(50) {
		t.Errorf("the newest span is missing: %d spans, %v", len(spans), err)
	}
}

func TestWriter_FailureIsReportedOnceUntilItWorksAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traces")
	var reports []error
	w := newWriter(t, dir, "svc", WriterOptions{OnError: func(err error) { reports = append(reports, err) }})
	lose := func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		w.file = nil
	}
	lose()
	w.Write(made(1, 0))
	w.Write(made(2, 0))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.Write(made(3, 0))
	lose()
	w.Write(made(4, 0))
	if len(reports) != 2 {
		t.Errorf("got %d reports, want 2: %v", len(reports), reports)
	}
}

func TestWriter_TornWriteDoesNotSpoilTheNextSpan(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir, "svc", WriterOptions{})
	w.Write(made(1, 0))
	if _, err := w.file.WriteString(`{"trace_id":"00`); err != nil {
		t.Fatal(err)
	}
	w.torn = true
	w.Write(made(2, 0))
	if spans, err := Read(dir, all); err != nil || len(spans) != 2 {
		t.Errorf("got %v, %v", spans, err)
	}
}

func TestRead_WhatIsNoSpanIsSkipped(t *testing.T) {
	dir := t.TempDir()
	first, second := made(1, 0), made(2, 1)
	a, _ := first.line()
	b, _ := second.line()
	garbage := []byte("{}\nnull\n[]\n{\"trace_id\":\"XY\"}\n\n\xff\xfe\n")
	file := bytes.Join([][]byte{a, garbage, bytes.Repeat([]byte("y"), maxLine+5), []byte("\n"), b, a[:len(a)/2]}, nil)
	if err := os.WriteFile(filepath.Join(dir, "svc-1-a.jsonl"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), a, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Span{first, second}, got); diff != "" {
		t.Error(diff)
	}
	if got, err := Read(filepath.Join(dir, "missing"), all); err != nil || got != nil {
		t.Errorf("a missing directory: %v, %v", got, err)
	}
}

func TestTree_OrphansAndCirclesAreRoots(t *testing.T) {
	spans := []Span{made(4, 9), made(3, 1), made(2, 1), made(1, 0), made(5, 2), made(2, 1), made(6, 7), made(7, 6), made(8, 8)}
	var outline func(nodes []*Node) string
	outline = func(nodes []*Node) string {
		var parts []string
		for _, n := range nodes {
			part := strings.TrimPrefix(n.Span.Name, "span ")
			if n.Orphan {
				part += "?"
			}
			if len(n.Children) > 0 {
				part += "(" + outline(n.Children) + ")"
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, " ")
	}
	if diff := cmp.Diff("1(2(5) 3) 4? 7?(6) 8?", outline(Tree(spans))); diff != "" {
		t.Error(diff)
	}
}

func TestRender_TellsTheStoryOfATrace(t *testing.T) {
	root, call, orphan, other := made(1, 0), made(2, 1), made(4, 77), made(5, 0)
	root.End = epoch.Add(2500 * time.Millisecond)
	root.Attributes = Attributes{"work_item": "github:o/r#1", "minor": "x", "reason": "a b"}
	root.Links = []Link{{TraceID: trid(7), SpanID: spid(7)}}
	call.Service, call.Status, call.StatusMessage = "dispatcher", StatusError, "no answer\x1b[31m\nfrom the host"
	call.Events = []Event{{"decided", epoch.Add(2500 * time.Microsecond), Attributes{"action": "hold"}}}
	other.TraceID = trid(2)
	var out strings.Builder
	if err := Render(&out, Tree([]Span{root, call, made(3, 2), made(6, 1), orphan, other}), RenderOptions{}); err != nil {
		t.Fatal(err)
	}
	began := func(n int) string {
		return epoch.Add(time.Duration(n) * time.Millisecond).Local().Format("2006-01-02 15:04:05.000 MST")
	}
	want := `trace 00000000000000000000000000000001  2.50s  5 spans, svc + dispatcher  began ` + began(1) + `
      +0µs      2.50s  svc         span 1  reason="a b"  work_item=github:o/r#1
                                   │ → linked to trace 00000000000000000000000000000007
    +1.0ms      1.0ms  dispatcher  ├─span 2
    +1.5ms                         │ │ · decided  action=hold
                                   │ │ ! no answer\u{1b}[31m\nfrom the host
    +2.0ms      1.0ms  svc         │ └─span 3
    +5.0ms      1.0ms  svc         └─span 6
    +3.0ms      1.0ms  svc         span 4 (its parent span is not here)

trace 00000000000000000000000000000002  1.0ms  1 spans, svc  began ` + began(5) + `
      +0µs      1.0ms  svc  span 5
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := Render(&out, Tree([]Span{root, call}), RenderOptions{All: true, Colour: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"minor=\x1b[0mx", "\x1b[31mspan 2\x1b[0m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %q", want, out.String())
		}
	}
}

func FuzzParseLine(f *testing.F) {
	s := made(1, 2)
	line, _ := s.line()
	f.Add(line)
	f.Add([]byte(`{"trace_id":"00000000000000000000000000000001","span_id":"0000000000000001","start":"9999-12-31T23:59:59Z"}`))
	f.Add([]byte(`{"events":[null],"links":{}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, ok := ParseLine(line)
		if !ok {
			return
		}
		again, err := s.line()
		if err != nil {
			t.Fatalf("a parsed span cannot be written: %v", err)
		}
		back, ok := ParseLine(again)
		if !ok || !back.Start.Equal(s.Start) || back.Name != s.Name {
			t.Errorf("%s came back as %s", line, again)
		}
		var out bytes.Buffer
		child := Span{TraceID: s.TraceID, SpanID: spid(1), ParentSpanID: s.SpanID}
		if err := Render(&out, Tree([]Span{s, back, child}), RenderOptions{All: true}); err != nil {
			t.Error(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07\r") {
			t.Errorf("control characters in %q", out.String())
		}
	})
}

func BenchmarkWriter_Span(b *testing.B) {
	w, err := NewWriter(b.TempDir(), "svc", WriterOptions{})
	if err != nil {
		b.Fatal(err)
	}
	s := made(1, 2)
	s.Attributes = Attributes{"work_item": "github:o/r#1", "delivery_id": strings.Repeat("x", 32), "target": "loop-o-r-1"}
	for b.Loop() {
		w.Write(s)
	}
}
