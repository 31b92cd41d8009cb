package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs/spanfile"
)

// spans writes span files as the services do.
func (d *desk) spans(t *testing.T, spans ...spanfile.Span) {
	t.Helper()
	for _, s := range spans {
		w, err := spanfile.NewWriter(filepath.Join(d.dir, "traces"), s.Service, spanfile.WriterOptions{OnError: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(s)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func span(trace, id, parent int, service, name string, attributes spanfile.Attributes) spanfile.Span {
	s := spanfile.Span{TraceID: spanfile.TraceID(fmt.Sprintf("%032x", trace)), SpanID: spanfile.SpanID(fmt.Sprintf("%016x", id)), Name: name,
		Kind: "internal", Service: service, Attributes: attributes,
		Start: now.Add(time.Duration(id) * time.Millisecond), End: now.Add(time.Duration(id+1) * time.Millisecond)}
	if parent > 0 {
		s.ParentSpanID = spanfile.SpanID(fmt.Sprintf("%016x", parent))
	}
	return s
}

func TestTrace_ShowsTheDeliveryAndTheLookThatFoundIt(t *testing.T) {
	d := newDesk(t)
	statement := spanfile.Attributes{"db.system.name": "postgresql"}
	event := span(1, 10, 0, "poller", "poll.Event", spanfile.Attributes{"delivery_id": "daaaa1111"})
	event.Links = []spanfile.Link{{TraceID: span(2, 1, 0, "", "", nil).TraceID, SpanID: span(2, 1, 0, "", "", nil).SpanID}}
	failed := span(1, 16, 11, "dispatcher", "UPDATE", statement)
	failed.Status, failed.StatusMessage = spanfile.StatusError, "deadlock"
	d.spans(t,
		span(2, 1, 0, "poller", "poll.Source", spanfile.Attributes{"source": "github"}), event,
		span(1, 11, 10, "dispatcher", "deliver.Deliver", spanfile.Attributes{"delivery_id": "daaaa1111", "extra": "e"}),
		span(1, 12, 11, "dispatcher", "INSERT", statement), span(1, 13, 12, "dispatcher", "INSERT prepared", statement),
		span(1, 14, 11, "tmuxd", "tmux.Create", nil), failed,
		span(3, 20, 0, "poller", "poll.Event", spanfile.Attributes{"delivery_id": "dother111"}),
	)
	if err := d.run(t, "trace", "daaaa1111"); err != nil {
		t.Fatal(err)
	}
	golden(t, "trace", regexp.MustCompile(`began .*`).ReplaceAllString(d.out.String(), "began AT-SOME-TIME"))
	if err := d.run(t, "trace", "--all", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "INSERT prepared") ||
		!strings.Contains(d.out.String(), "extra=e") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "trace", "--json", "daaaa1111"); err != nil || strings.Count(d.out.String(), `"span_id"`) != 8 {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "trace", fmt.Sprintf("%032x", 3)); err != nil || !strings.Contains(d.out.String(), "poll.Event") {
		t.Errorf("by the trace's id: %v\n%s", err, d.out)
	}
	if err := d.run(t, "trace", "dnowhere1"); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}
