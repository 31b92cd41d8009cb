package server

import (
	"testing"

	"muxpost.dev/muxpost/core/session"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// What is not known is said, and never looks like "no", nor like nothing at all.
func TestExistence_IsSentAsItIs(t *testing.T) {
	for state, want := range map[session.State]tmuxdv1.Existence{
		session.Unknown: tmuxdv1.Existence_EXISTENCE_CANNOT_TELL, session.Live: tmuxdv1.Existence_EXISTENCE_YES,
		session.Dead: tmuxdv1.Existence_EXISTENCE_YES, session.Absent: tmuxdv1.Existence_EXISTENCE_NO,
	} {
		if got := existenceOf[state.Exists()]; got != want {
			t.Errorf("%v is sent as %v", state, got)
		}
	}
}
