package harnesses

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// names are the entries that were tried on the real programs, and whose models' API the fake model speaks.
var names = []string{"codex", "opencode", "qwen"}

func each(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) { f(t, newRig(t, name)) })
	}
}

func TestHarness_AFirstPromptAPasteAndAResumeReachTheModelOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if res := r.start(""); res.GetStarted() == nil {
			t.Fatal(res)
		}
		first, second := r.next(), r.next()
		t.Log(strings.Join(r.deliver(first, "hello there"), "\n"))
		r.once(first, "hello there")
		long := strings.Repeat("a line of some length, number ×\n", 200)
		t.Log(strings.Join(r.deliver(second, long), "\n"))
		r.once(second, long)
		conversation := r.state().GetConversationId()
		if conversation == "" {
			t.Fatalf("its conversation was not learned: %v", r.state())
		}
		r.kill()
		res := r.start(conversation)
		if res.GetStarted() == nil || res.GetStarted().GetConversationId() != conversation {
			t.Fatal(res)
		}
		third := r.next()
		t.Log(strings.Join(r.deliver(third, "and again"), "\n"))
		r.once(third, "and again")
		if got := r.state().GetConversationId(); got != conversation {
			t.Errorf("the conversation is %s, and was %s", got, conversation)
		}
	})
}

func TestHarness_AnEventAtAnOpenApprovalIsHeldAndApprovesNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if res := r.start(""); res.GetStarted() == nil {
			t.Fatal(res)
		}
		marker := filepath.Join(r.dir, "approved")
		r.deliver(r.next(), "zz:tool=touch "+marker)
		second := r.next()
		r.until(startTime, "the event is held by the dialog", func() bool {
			res := r.paste(second, "in the meantime")
			if submitted(res) {
				t.Fatalf("%v; screen:\n%s", res, r.screen())
			}
			return res.GetHeld().GetReason() == tmuxdv1.HoldReason_HOLD_REASON_DIALOG
		})
		if _, err := os.Stat(marker); err == nil {
			t.Error("the command was approved")
		}
		if strings.Contains(r.screen(), "in the meantime") {
			t.Errorf("it was typed:\n%s", r.screen())
		}
	})
}
