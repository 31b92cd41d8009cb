package harnesses

import (
	"strings"
	"testing"
)

// names are the entries that were tried on the real programs.
var names = []string{"codex", "opencode"}

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
