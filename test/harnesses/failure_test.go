package harnesses

import (
	"context"
	"strings"
	"syscall"
	"testing"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// A program that lives and cannot go on is told as one that needs a person, until a turn succeeds.
func TestHarness_SaysWhyItCannotGoOn(t *testing.T) {
	each(t, func(r *rig) {
		s := r.follow()
		r.started("")
		for _, row := range []struct{ text, class string }{{r.login, "auth: "}, {r.limit, "usage limit: "}} {
			if row.text == "" {
				continue
			}
			r.deliver(r.next(row.text))
			r.until(startTime, "it is told: "+row.class, func() bool {
				return s.last().GetActivity() == tmuxdv1.Activity_ACTIVITY_NEEDS_HUMAN && strings.HasPrefix(s.last().GetActivityDetail(), row.class)
			})
			r.t.Log(s.last().GetActivityDetail())
		}
		r.deliver(r.next("hello"))
		r.becomes(s, tmuxdv1.Activity_ACTIVITY_IDLE)
	})
}

// Two agents in one conversation hinder each other: the second one says so, and takes nothing.
func TestCodex_AConversationThatIsOpenElsewhereNeedsAPerson(t *testing.T) {
	r := newRig(t, programs()[1])
	r.started("")
	r.deliver(r.next("hello"))
	const second = "github:octo/widget#8"
	res, err := r.tmuxd.Spawn(t.Context(), &tmuxdv1.SpawnRequest{WorkItem: second, Harness: r.name, FencingToken: 1 << 30, Directory: r.directory,
		Conversation: &tmuxdv1.SpawnRequest_Resume{Resume: &tmuxdv1.Resume{ConversationId: r.state().GetConversationId()}}})
	must(t, err)
	if res.GetStarted() == nil {
		t.Fatal(res)
	}
	defer func() {
		_, err := r.tmuxd.Terminate(context.Background(), &tmuxdv1.TerminateRequest{WorkItem: second, FencingToken: 1 << 31,
			IncarnationStamp: res.GetStarted().GetIncarnation().GetStamp(), Reason: "the test is over"})
		if err != nil {
			t.Error(err)
		}
		_ = syscall.Kill(int(res.GetStarted().GetIncarnation().GetServerPid()), syscall.SIGTERM)
	}()
	var last *tmuxdv1.SessionStateResponse
	r.until(startTime, "it says that the conversation is open elsewhere", func() bool {
		last, err = r.tmuxd.SessionState(t.Context(), &tmuxdv1.SessionStateRequest{WorkItem: second, Look: true})
		must(t, err)
		return last.GetActivity() == tmuxdv1.Activity_ACTIVITY_NEEDS_HUMAN && strings.HasPrefix(last.GetActivityDetail(), "conversation in use: ")
	})
	t.Log(last.GetActivityDetail())
	paste, err := r.tmuxd.Paste(t.Context(), &tmuxdv1.PasteRequest{WorkItem: second, DeliveryId: "delivery-second", Text: "hello", FencingToken: 1 << 30})
	must(t, err)
	if paste.GetHeld().GetReason() != tmuxdv1.HoldReason_HOLD_REASON_DIALOG {
		t.Error(paste)
	}
}
