package main

import (
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// TestTerminateUnneeded_EndsNobodyWhoMayBeNeeded has one thing speak against an end at a time, on a real agent, and at last nothing.
func TestTerminateUnneeded_EndsNobodyWhoMayBeNeeded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		needed func(r *rig)
		why    string
	}{
		"somebody looks":      {func(r *rig) { r.attach() }, "somebody looks"},
		"somebody only looks": {func(r *rig) { r.attach("-r") }, "somebody looks"},
		"a draft": {func(r *rig) {
			r.person("send-keys", "-t", "="+r.item.Target()+":", "-l", "half a thought")
			r.until("the draft shows", func() bool { return strings.Contains(r.screen(), "half a thought") })
		}, "a person has text"},
		"a dialog": {func(r *rig) {
			r.paste(d1, "zz:dialog zz:dur=100ms")
			r.until("it asks", func() bool { return strings.Contains(r.screen(), "Press enter to confirm") })
		}, "a dialog"},
		"a turn": {func(r *rig) {
			r.paste(d1, "zz:dur=1h")
			r.until("it works", func() bool { return strings.Contains(r.screen(), "esc to interrupt") })
		}, "a turn"},
		"a person's pane": {func(r *rig) { r.person("split-window", "-d", "-t", "="+r.item.Target()+":", "sleep 300") }, "something else"},
		"nothing":         {func(*rig) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			of := r.started("", "").Incarnation
			r.ready()
			row.needed(r)
			got, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: of.Stamp, Token: r.token(), Unneeded: true})
			if err != nil {
				t.Fatal(err)
			}
			if row.why == "" {
				if got.Outcome != host.EndDone || r.state().State != session.Dead {
					t.Errorf("%+v", got)
				}
				return
			}
			if got.Outcome != host.EndRefused || got.Cause != host.RefusedNeeded || !strings.Contains(got.Detail, row.why) {
				t.Errorf("%+v", got)
			}
			if st := r.state(); st.State != session.Live || st.Incarnation.Stamp != of.Stamp {
				t.Errorf("%+v", st)
			}
		})
	}
}
