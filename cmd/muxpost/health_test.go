package main

import (
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
)

func TestHealth_TellsServingFromNotServingFromSilence(t *testing.T) {
	d := newDesk(t)
	d.serve(t, "d", func(*rpc.Server) {})
	d.serve(t, "p", func(s *rpc.Server) { s.Health().Set("", false) })
	if err := d.run(t, "health", "dispatcher"); err != nil || d.out.String() != "SERVING\n" {
		t.Errorf("serving: %q, %v", d.out, err)
	}
	if err := d.run(t, "health", "poller"); err == nil || fault.KindOf(err) == fault.Unavailable || d.out.String() != "NOT_SERVING\n" {
		t.Errorf("not serving: %q, %v", d.out, err)
	}
	if err := d.run(t, "health", "tmuxd"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("silent: %v", err)
	}
	if err := d.run(t, "health", "teapot"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "tmuxd, dispatcher or poller") {
		t.Errorf("no such service: %v", err)
	}
}
