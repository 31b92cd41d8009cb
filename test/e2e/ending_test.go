package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// away kills tmuxd; the agents live on. What it returns starts it again.
func (r *row) away() (back func()) {
	r.t.Helper()
	r.signal(r.pid("tmuxd"), syscall.SIGKILL)
	return func() {
		r.t.Helper()
		if out, err := r.Run(r.ctx, "up"); err != nil {
			r.t.Fatalf("%v\n%s", err, out)
		}
	}
}

func (r *row) says(want string, line ...string) {
	r.t.Helper()
	if out, err := r.Run(r.ctx, line...); err != nil || !strings.Contains(out, want) {
		r.t.Fatalf("%v: %v, want %q in\n%s", line, err, want, out)
	}
}

// A person closes an item while its host is away: nothing is begun for it, and once the host is there its agent ends and the event that waited
// begins a new conversation.
func TestClose_WhileTheHostIsAwayIsCarriedOutWhenItReturns(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	r := s.on(t, 830)
	first := r.begun()
	pid := r.agent()
	back := r.away()
	r.says("the order stands", "close", r.item, "--by", "ann", "--reason", "it is merged")
	r.gets(true, waiting, "session_ending")
	if _, out := r.exit("", "attention"); !strings.Contains(out, "ending  "+r.item) || !strings.Contains(out, "muxpost close --cancel '"+r.item+"'") {
		t.Errorf("muxpost attention:\n%s", out)
	}
	r.says("the order to close it waits", "sessions", r.item)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the agent has ended already: %v", err)
	}
	back()
	r.becomes(tmuxdv1.State_STATE_DEAD)
	r.until("the order is carried out", func() bool { s, err := r.Session(r.ctx, r.item); return err == nil && s.GetClosed() })
	r.says("closed", "sessions", r.item)
	if d := r.gets(false, delivered, "spawned"); d.GetConversationId() == first.GetConversationId() {
		t.Errorf("%v", d)
	}
	if got := r.record(); got.GetClosed() || !slices.Equal(got.GetLineage(), []string{first.GetConversationId()}) {
		t.Errorf("%v", got)
	}
	r.has(first.GetConversationId(), 1)
}

// An order that was taken back, or that names an incarnation that does not live any more, touches nothing.
func TestStop_WhileTheHostIsAwayTouchesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	kept, later := s.on(t, 840), s.on(t, 841)
	kept.begun()
	first := later.begun()
	stamps := []string{kept.state().GetIncarnation().GetStamp()}
	back := kept.away()
	kept.says("the order stands", "stop", kept.item)
	kept.says("taken back", "stop", kept.item, "--cancel")
	later.says("the order stands", "stop", later.item)
	// Meanwhile another incarnation takes the place of the one that is meant, which the dispatcher cannot know of.
	back = func(up func()) func() {
		return func() {
			later.sql(`update dispatcher.endings set stamp = 'of-an-earlier-life' where work_item = $1`, later.item)
			up()
		}
	}(back)
	stampOfLater := later.record().GetIncarnationStamp()
	back()
	later.until("the order is over", func() bool { s, err := later.Session(later.ctx, later.item); return err == nil && s.GetEnding() == nil })
	later.says("session.end_lapsed", "events", later.item)
	for i, r := range []*row{kept, later} {
		if st := r.state(); st.GetState() != tmuxdv1.State_STATE_LIVE || st.GetIncarnation().GetStamp() != append(stamps, stampOfLater)[i] {
			t.Errorf("%s: %v", r.item, st)
		}
		r.gets(true, delivered, "pasted")
	}
	later.has(first.GetConversationId(), 1, 2)
}
