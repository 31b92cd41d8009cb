package fakemodel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// stream writes server-sent events, spread over the time that the answer takes. After the first error it does nothing more.
type stream struct {
	ctx  context.Context
	w    http.ResponseWriter
	step time.Duration
	err  error
}

// begin makes a stream of so many paced pieces.
func begin(ctx context.Context, w http.ResponseWriter, dur time.Duration, pieces int) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return &stream{ctx: ctx, w: w, step: dur / time.Duration(pieces)}
}

// pace waits for one piece's share of the time.
func (s *stream) pace() {
	if s.err == nil {
		s.err = pause(s.ctx, s.step)
	}
}

// send writes one event, with its name where the API names its events.
func (s *stream) send(name string, value object) {
	data, err := json.Marshal(value)
	if err != nil && s.err == nil {
		s.err = err
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	s.raw(fmt.Sprintf("%sdata: %s\n\n", name, data))
}

func (s *stream) raw(text string) {
	if s.err != nil {
		return
	}
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
}
