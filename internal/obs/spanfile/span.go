// Package spanfile keeps finished spans in files of JSON lines, so that a laptop has traces without a collector: a writer
// that a tracer provider feeds, a reader that finds traces again, and a tree for a terminal.
//
// One span is one line, written by a single append when the span ends, so a killed process loses only the spans that were
// still running. The package knows nothing of what the spans mean, except which attributes people look for first.
package spanfile

import (
	"bytes"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// TraceID is a trace's id as 32 hexadecimal digits.
type TraceID string

// SpanID is a span's id as 16 hexadecimal digits.
type SpanID string

// Attributes are names and values; every value is its text, lists are JSON.
type Attributes map[string]string

// Span is one finished span, and the format of one line.
type Span struct {
	TraceID       TraceID    `json:"trace_id"`
	SpanID        SpanID     `json:"span_id"`
	ParentSpanID  SpanID     `json:"parent_span_id,omitempty"`
	Name          string     `json:"name"`
	Kind          string     `json:"kind"`
	Service       string     `json:"service"`
	Host          string     `json:"host,omitempty"`
	Start         time.Time  `json:"start"`
	End           time.Time  `json:"end"`
	Status        string     `json:"status,omitempty"` // "error", "ok", or empty when nobody set it
	StatusMessage string     `json:"status_message,omitempty"`
	Attributes    Attributes `json:"attributes,omitempty"`
	Events        []Event    `json:"events,omitempty"`
	Links         []Link     `json:"links,omitempty"`
}

// Event is something that was decided or observed during a span.
type Event struct {
	Name       string     `json:"name"`
	Time       time.Time  `json:"time"`
	Attributes Attributes `json:"attributes,omitempty"`
}

// Link names a span of another trace that this one follows from.
type Link struct {
	TraceID    TraceID    `json:"trace_id"`
	SpanID     SpanID     `json:"span_id"`
	Attributes Attributes `json:"attributes,omitempty"`
}

// The values of Span.Status.
const (
	StatusError = "error"
	StatusOK    = "ok"
)

// Failed reports whether the span ended in an error.
func (s *Span) Failed() bool { return s.Status == StatusError }

// Duration is how long the span took; never negative.
func (s *Span) Duration() time.Duration { return max(0, s.End.Sub(s.Start)) }

// fromSDK copies what a line holds out of an ended span.
func fromSDK(s sdktrace.ReadOnlySpan) Span {
	out := Span{
		TraceID: TraceID(s.SpanContext().TraceID().String()), SpanID: SpanID(s.SpanContext().SpanID().String()),
		Name: s.Name(), Kind: s.SpanKind().String(), Start: s.StartTime().UTC(), End: s.EndTime().UTC(),
		StatusMessage: s.Status().Description, Attributes: attributes(s.Attributes()),
	}
	if s.Parent().SpanID().IsValid() {
		out.ParentSpanID = SpanID(s.Parent().SpanID().String())
	}
	switch s.Status().Code {
	case codes.Error:
		out.Status = StatusError
	case codes.Ok:
		out.Status = StatusOK
	}
	if service, ok := s.Resource().Set().Value(semconv.ServiceNameKey); ok {
		out.Service = service.String()
	}
	if host, ok := s.Resource().Set().Value(semconv.HostNameKey); ok {
		out.Host = host.String()
	}
	for _, event := range s.Events() {
		out.Events = append(out.Events, Event{event.Name, event.Time.UTC(), attributes(event.Attributes)})
	}
	for _, link := range s.Links() {
		out.Links = append(out.Links, Link{
			TraceID(link.SpanContext.TraceID().String()), SpanID(link.SpanContext.SpanID().String()), attributes(link.Attributes),
		})
	}
	return out
}

func attributes(kvs []attribute.KeyValue) Attributes {
	if len(kvs) == 0 {
		return nil
	}
	out := make(Attributes, len(kvs))
	for _, kv := range kvs {
		out[string(kv.Key)] = kv.Value.String()
	}
	return out
}

// line returns the span as one line, newline included.
func (s *Span) line() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// ParseLine returns the span of one line. It reports false for anything else: a torn line, another format, a span without
// ids.
func ParseLine(line []byte) (Span, bool) {
	var s Span
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &s) != nil {
		return Span{}, false
	}
	if !isHex(string(s.TraceID), 32) || !isHex(string(s.SpanID), 16) || (s.ParentSpanID != "" && !isHex(string(s.ParentSpanID), 16)) {
		return Span{}, false
	}
	return s, true
}

func isHex(s string, length int) bool {
	if len(s) != length {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
