package hosts

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/fault"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

func (d *tmuxd) WatchSessions(_ *tmuxdv1.WatchSessionsRequest, stream grpc.ServerStreamingServer[tmuxdv1.WatchSessionsResponse]) error {
	d.mu.Lock()
	d.watched++
	steps, stop := d.steps, d.stop
	d.mu.Unlock()
	for _, s := range steps {
		if err := stream.Send(s); err != nil {
			return err
		}
	}
	select {
	case <-stream.Context().Done():
	case <-stop:
	}
	return fault.New(fault.Unavailable, "", "the stream was ended")
}

func told(item string, state tmuxdv1.State, stamp string, flags ...tmuxdv1.Flag) *tmuxdv1.WatchSessionsResponse {
	return &tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_Session{Session: &tmuxdv1.SessionSummary{
		WorkItem: item, Target: "t-" + item, State: state, Flags: flags, Incarnation: &tmuxdv1.Incarnation{Stamp: stamp}, Detail: time.Now().String(),
	}}}
}

// follower collects what is told.
type follower struct {
	mu   sync.Mutex
	told []string
}

func (f *follower) tell(item string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, item)
}

func (f *follower) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

// followed follows the host until the test ends.
func followed(t *testing.T, h *Host) *follower {
	t.Helper()
	f := &follower{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Follow(ctx, f.tell) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFollow_TellsOfChangesAndThatTheHostIsBack(t *testing.T) {
	caughtUp := &tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}}
	missed := &tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_Missed{Missed: &tmuxdv1.Missed{Changes: 3}}}
	live, dead, absent := tmuxdv1.State_STATE_LIVE, tmuxdv1.State_STATE_DEAD, tmuxdv1.State_STATE_ABSENT
	d := newTmuxd()
	d.stop = make(chan struct{})
	d.steps = []*tmuxdv1.WatchSessionsResponse{
		told("a", live, "1"), told("b", dead, "2"), caughtUp,
		told("a", live, "1"), // its conversation, say
		told("a", dead, "1"), told("b", dead, "2", tmuxdv1.Flag_FLAG_GUESTS), told("a", live, "3"), told("b", absent, ""), told("c", absent, ""),
		told("", live, "9"), missed,
	}
	f := followed(t, reach(t, d))
	want := []string{"a", "b", hints.Any, "a", "b", "a", "b", hints.Any}
	until(t, "everything is told", func() bool { return len(f.heard()) >= len(want) })
	if got := f.heard(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// The stream breaks, and what is told at its next beginning is known: but the host is back.
	again := []*tmuxdv1.WatchSessionsResponse{told("a", live, "3"), caughtUp}
	d.set(func(d *tmuxd) { d.steps = again })
	close(d.stop)
	until(t, "the host is back", func() bool { return len(f.heard()) > len(want) })
	if got := f.heard()[len(want)]; got != hints.Any {
		t.Errorf("%q", got)
	}
}

func TestFollow_TellsOfAnAgentThatWaitsForAMessage(t *testing.T) {
	idle, working := tmuxdv1.Activity_ACTIVITY_IDLE, tmuxdv1.Activity_ACTIVITY_WORKING
	d := newTmuxd()
	d.stop = make(chan struct{})
	d.steps = []*tmuxdv1.WatchSessionsResponse{does("a", "1", idle), does("a", "1", working), does("b", "1", working), does("a", "1", working),
		does("b", "1", tmuxdv1.Activity_ACTIVITY_AWAITING_APPROVAL), does("a", "1", idle), does("a", "1", idle), does("b", "1", idle)}
	f := followed(t, reach(t, d))
	want := []string{"a", "b", "a", "b"}
	until(t, "everything is told", func() bool { return len(f.heard()) >= len(want) })
	if got := f.heard(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestFollow_AHostThatDoesNotHaveTheCallIsLeftAlone(t *testing.T) {
	d := newTmuxd()
	addr, stop := serve(t, older{d})
	t.Cleanup(stop)
	h := dial(t, "a", addr, &tokens{})
	f := followed(t, h)
	until(t, "it was asked", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.watched > 0 })
	if got := h.Probe(t.Context(), item, ""); got.Host != "a" || len(f.heard()) != 0 {
		t.Errorf("%+v, %q", got, f.heard())
	}
}

// older is a tmuxd that does not have the call.
type older struct{ *tmuxd }

func (o older) WatchSessions(r *tmuxdv1.WatchSessionsRequest, s grpc.ServerStreamingServer[tmuxdv1.WatchSessionsResponse]) error {
	o.set(func(d *tmuxd) { d.watched++ })
	return tmuxdv1.UnimplementedTmuxdServiceServer{}.WatchSessions(r, s)
}

func TestBuild_IsWhatTheHostSaidLast(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	if got := h.Build(); got != (deliver.Build{Program: "tmuxd", Host: "a"}) {
		t.Errorf("before it was reached: %+v", got)
	}
	for _, row := range []struct {
		info *tmuxdv1.InfoResponse
		want deliver.Build
	}{
		{&tmuxdv1.InfoResponse{Host: "a", Version: "v1 (abc)", Release: "v1", Commit: "abc"}, deliver.Build{Program: "tmuxd", Release: "v1", Commit: "abc", Host: "a"}},
		{&tmuxdv1.InfoResponse{Host: "a", Version: "devel (abc, modified)", Commit: "abc", Dirty: true}, deliver.Build{Program: "tmuxd", Commit: "abc", Dirty: true, Host: "a"}},
		{&tmuxdv1.InfoResponse{Host: "a", Version: "v0 (old)"}, deliver.Build{Program: "tmuxd", Release: "v0 (old)", Host: "a"}}, // an older one
		{&tmuxdv1.InfoResponse{Host: "a", Version: "devel"}, deliver.Build{Program: "tmuxd", Host: "a"}},
	} {
		d.set(func(d *tmuxd) { d.info = row.info })
		h.forget()
		h.Meet(t.Context())
		if got := h.Build(); got != row.want {
			t.Errorf("%+v, want %+v", got, row.want)
		}
	}
}
