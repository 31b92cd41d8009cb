package e2e

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The record of a living session is lost: it is listed, and a person takes it in again, with no event in between. A closed one is brought back
// with its conversation. A name that somebody else has is refused.
func TestAdopt_ALivingSessionThatTheRecordLacks(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	r := s.on(t, 850)
	first := r.begun()
	stamp := r.state().GetIncarnation().GetStamp()
	r.says("was recorded already", "adopt", r.item)
	r.sql(`delete from dispatcher.sessions where work_item = $1`, r.item)
	r.says("unrecorded  "+r.item, "sessions", "--orphans")
	if _, out := r.exit("", "attention"); !strings.Contains(out, "orphan  "+r.item) || !strings.Contains(out, "muxpost adopt '"+r.item+"'") {
		t.Errorf("muxpost attention:\n%s", out)
	}
	r.says("is recorded now", "adopt", r.item, "--by", "ann")
	if got := r.record(); got.GetIncarnationStamp() != stamp || got.GetConversationId() != first.GetConversationId() {
		t.Errorf("%v", got)
	}
	r.says("session.registered", "events", r.item)
	r.says("every living session is recorded", "sessions", "--orphans")
	r.gets(true, delivered, "pasted")

	r.says("has ended", "close", r.item)
	r.says("is recorded now", "adopt", r.item)
	if got := r.record(); got.GetClosed() || got.GetConversationId() != first.GetConversationId() || slices.Contains(got.GetLineage(), first.GetConversationId()) {
		t.Errorf("%v", got)
	}
	r.gets(true, delivered, "resumed")
	r.has(first.GetConversationId(), 1, 2, 3)

	other := s.on(t, 851)
	other.taken()
	out, err := other.Run(other.ctx, "adopt", other.item)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(out, "not ours") {
		t.Errorf("%v\n%s", err, out)
	}
}
