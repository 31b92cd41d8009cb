package harnesses

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// status is what was told of what the program does, with nobody looking at it.
type status struct {
	mu   sync.Mutex
	told []*tmuxdv1.SessionSummary
}

// follow follows what is told until the test ends.
func (r *rig) follow() *status {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	stream, err := r.tmuxd.WatchSessions(ctx, &tmuxdv1.WatchSessionsRequest{})
	must(r.t, err)
	s, done := &status{}, make(chan bool)
	go func() {
		defer close(done)
		for {
			step, err := stream.Recv()
			if err != nil {
				return
			}
			if told := step.GetSession(); told != nil {
				s.mu.Lock()
				s.told = append(s.told, told)
				s.mu.Unlock()
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *status) last() *tmuxdv1.SessionSummary {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == 0 {
		return nil
	}
	return s.told[len(s.told)-1]
}

// becomes waits until it is told that the program does something.
func (r *rig) becomes(s *status, want tmuxdv1.Activity) {
	r.t.Helper()
	began := time.Now()
	r.until(startTime, "it is told as "+want.String(), func() bool { return s.last().GetActivity() == want })
	r.t.Logf("told as %v after %v: %s", want, time.Since(began).Round(10*time.Millisecond), s.last().GetActivityDetail())
	if s.last().GetActivitySeenAt() != nil {
		r.t.Errorf("that was read from the screen: %v", s.last())
	}
}

func TestHarness_TellsWhatItDoes(t *testing.T) {
	each(t, func(r *rig) {
		s := r.follow()
		r.started("")
		r.deliver(r.next(r.turn(3)))
		r.becomes(s, tmuxdv1.Activity_ACTIVITY_WORKING)
		r.becomes(s, tmuxdv1.Activity_ACTIVITY_IDLE)
		r.sent++
		r.deliver(r.next(r.ask("allowed-" + strconv.Itoa(r.sent))))
		r.becomes(s, tmuxdv1.Activity_ACTIVITY_AWAITING_APPROVAL)
		r.tmux("send-keys", "-t", r.pane(), "Escape")
		r.becomes(s, tmuxdv1.Activity_ACTIVITY_IDLE)
		first := r.state().GetConversationId()
		if r.name != "opencode" {
			return
		}
		// A person begins another conversation, and it is the one that would be gone on with.
		r.tmux("send-keys", "-t", r.pane(), "-l", "/new")
		r.until(startTime, "the command shows", func() bool { return r.shows("New session") })
		r.tmux("send-keys", "-t", r.pane(), "Enter")
		r.until(startTime, "the conversation is over", func() bool { return r.shows("Ask anything") })
		r.tmux("send-keys", "-t", r.pane(), "-l", "hello from a person")
		r.until(startTime, "the text shows", func() bool { return r.shows("hello from a person") })
		r.tmux("send-keys", "-t", r.pane(), "Enter")
		r.until(startTime, "the other conversation is known", func() bool {
			id := s.last().GetConversationId()
			return id != "" && id != first
		})
	})
}
