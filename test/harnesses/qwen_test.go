package harnesses

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// qwen was tried with a part of the contract alone.
func qwen() program {
	return program{name: "qwen", path: func(t testing.TB) string { return needs.Agent(t, "qwen") }, heard: modelHeard}
}

func TestQwen_APasteAndAResumeReachTheModelOnceAndAnEventApprovesNothing(t *testing.T) {
	r := newRig(t, qwen())
	r.started("")
	r.deliver(r.next("hello there"))
	r.deliver(r.next(strings.Repeat("a line of some length, number ×\n", 200)))
	conversation := r.state().GetConversationId()
	r.kill(theProgram)
	r.started(conversation)
	r.deliver(r.next("and again"))
	marker := filepath.Join(r.dir, "approved")
	r.deliver(r.next("zz:tool=touch " + marker))
	r.holds(r.next("in the meantime"), tmuxdv1.HoldReason_HOLD_REASON_DIALOG)
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command was approved")
	}
}
