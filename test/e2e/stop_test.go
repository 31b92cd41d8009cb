package e2e

import (
	"strings"
	"testing"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/stack"
)

// A person ends an agent with the command; its conversation comes back with the next event.
func TestStop_EndsTheAgentAndTheNextEventBringsItsConversationBack(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	first, spawned := w.delivered(0)
	out, err := w.Run(w.ctx, "stop", item, "--by", "ann", "--reason", "it is stuck")
	if err != nil || !strings.Contains(out, "has ended") {
		t.Fatalf("%v\n%s", err, out)
	}
	if st := w.state(); st.GetState() != tmuxdv1.State_STATE_DEAD {
		t.Errorf("%v", st)
	}
	if out, err := w.Run(w.ctx, "stop", item); err != nil || !strings.Contains(out, "no agent of "+item+" lives") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "events", item); err != nil || !strings.Contains(out, "session.stopped") || !strings.Contains(out, "it is stuck") {
		t.Errorf("%v\n%s", err, out)
	}
	w.comment(stack.Author, "Go on.")
	second, resumed := w.delivered(1)
	if resumed.GetHow() != dispatcherv1.How_HOW_RESUMED || resumed.GetConversationId() != spawned.GetConversationId() {
		t.Errorf("%v", resumed)
	}
	w.took(spawned.GetConversationId(), first.GetDeliveryId(), second.GetDeliveryId())
}
