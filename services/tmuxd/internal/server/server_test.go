package server

import (
	"testing"

	"muxpost.dev/muxpost/core/session"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Every value has a word of its own on the wire: one that were missing would be sent as "not said".
func TestTranslation_IsOneToOne(t *testing.T) {
	states := map[tmuxdv1.State]bool{}
	for _, s := range session.States() {
		states[stateOf[s]] = true
	}
	if len(states) != len(session.States()) || states[tmuxdv1.State_STATE_UNSPECIFIED] {
		t.Errorf("states %v", states)
	}
	phases := map[tmuxdv1.Phase]bool{}
	for _, p := range session.Phases() {
		phases[phaseOf[p]] = true
	}
	if len(phases) != len(session.Phases()) {
		t.Errorf("phases %v", phases)
	}
	for c := host.HeldDraft; c <= host.HeldPerson; c++ {
		if holdOf[c] == tmuxdv1.HoldReason_HOLD_REASON_UNSPECIFIED {
			t.Errorf("held by %d has no word", c)
		}
	}
	for c := host.RefusedDead; c <= host.RefusedIncarnation; c++ {
		if refusalOf[c] == tmuxdv1.RefusalReason_REFUSAL_REASON_UNSPECIFIED {
			t.Errorf("refused by %d has no word", c)
		}
	}
	if got := flagsOf(session.Guests | session.Moved); len(got) != 2 {
		t.Errorf("flags %v", got)
	}
}

func TestPasted_EveryVerdictIsSent(t *testing.T) {
	for v := host.Unconfirmed; v <= host.Refused; v++ {
		if pasted(host.PasteResult{Verdict: v}).GetVerdict() == nil {
			t.Errorf("verdict %d is not sent", v)
		}
	}
	for o := host.SpawnFailed; o <= host.SpawnNotStarted; o++ {
		s := &Server{socket: func(string) string { return "" }}
		if s.spawned(host.SpawnResult{Outcome: o}).GetOutcome() == nil {
			t.Errorf("outcome %d is not sent", o)
		}
	}
}

func TestExit_UnknownIsNotZero(t *testing.T) {
	if e := exitOf(host.Status{State: session.Dead}); e == nil || e.GetEnd() != nil {
		t.Errorf("%v", e)
	}
	if e := exitOf(host.Status{State: session.Dead, Exit: host.Exit{Known: true}}); e.GetEnd() == nil || e.GetCode() != 0 {
		t.Errorf("%v", e)
	}
	if e := exitOf(host.Status{State: session.Live}); e != nil {
		t.Errorf("%v", e)
	}
}
