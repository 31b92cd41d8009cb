package hosts

import (
	"context"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestSpawn_TranslatesEveryOutcome(t *testing.T) {
	started := func(phase tmuxdv1.Phase) *tmuxdv1.SpawnResponse {
		return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_Started{Started: &tmuxdv1.Started{
			Incarnation: &tmuxdv1.Incarnation{Stamp: "st"}, ConversationId: "c1", PromptPhase: phase, AlreadyDone: true}}}
	}
	occupied := func(by tmuxdv1.Occupant) *tmuxdv1.SpawnResponse {
		return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_Occupied{
			Occupied: &tmuxdv1.Occupied{Occupant: by, Detail: "someone", Remedy: "free it"},
		}}
	}
	died := func(f tmuxdv1.Failure) *tmuxdv1.SpawnResponse {
		return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_NotStarted{NotStarted: &tmuxdv1.NotStarted{Failure: f, FailureLine: "because"}}}
	}
	failed := func(reason string) *tmuxdv1.SpawnResponse {
		return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_Failed{Failed: &tmuxdv1.SpawnFailed{Reason: reason, Detail: "why"}}}
	}
	for name, row := range map[string]struct {
		answer *tmuxdv1.SpawnResponse
		want   dispatch.Spawn
	}{
		"started": {started(tmuxdv1.Phase_PHASE_BOOT), dispatch.SpawnStarted}, "started, to be pasted": {started(0), dispatch.SpawnStarted},
		"taken":    {started(tmuxdv1.Phase_PHASE_TAKEN), dispatch.SpawnTaken},
		"live":     {occupied(tmuxdv1.Occupant_OCCUPANT_LIVE), dispatch.SpawnOccupied},
		"not said": {occupied(0), dispatch.SpawnOccupied}, "foreign": {occupied(tmuxdv1.Occupant_OCCUPANT_FOREIGN), dispatch.SpawnUnclearable},
		"unclearable": {occupied(tmuxdv1.Occupant_OCCUPANT_UNCLEARABLE), dispatch.SpawnUnclearable},
		"not started": {&tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_NotStarted{NotStarted: &tmuxdv1.NotStarted{
			Exit: &tmuxdv1.Exit{End: &tmuxdv1.Exit_Signal{Signal: 9}}, LastLines: []string{"\x1b[31mbye"}}}}, dispatch.SpawnDied},
		"the conversation is unknown":  {died(tmuxdv1.Failure_FAILURE_CONVERSATION_UNKNOWN), dispatch.SpawnDied},
		"the conversation is in use":   {died(tmuxdv1.Failure_FAILURE_CONVERSATION_IN_USE), dispatch.SpawnInUse},
		"a limit of use":               {died(tmuxdv1.Failure_FAILURE_USAGE_LIMIT), dispatch.SpawnLimited},
		"nobody is logged in":          {died(tmuxdv1.Failure_FAILURE_AUTH), dispatch.SpawnNotLoggedIn},
		"a failure of a later release": {died(99), dispatch.SpawnDied},
		"tmux_no_answer":               {failed("tmux_no_answer"), dispatch.SpawnSilent}, "storage": {failed("storage"), dispatch.SpawnSilent},
		"server_remains": {failed("server_remains"), dispatch.SpawnSilent}, "moved": {failed("moved"), dispatch.SpawnSilent},
		"detached": {failed("detached"), dispatch.SpawnSilent}, "a reason of a later release": {failed("x"), dispatch.SpawnSilent},
		"duplicate": {failed("duplicate"), dispatch.SpawnFailed}, "tmux_error": {failed("tmux_error"), dispatch.SpawnFailed},
		"nothing": {&tmuxdv1.SpawnResponse{}, dispatch.SpawnFailed},
	} {
		got := spawnOf(row.answer)
		if got.Spawn != row.want || got.Detail == "" {
			t.Errorf("%s: %+v", name, got)
		}
		if strings.ContainsRune(strings.Join(got.LastLines, ""), 0x1b) {
			t.Errorf("%s: control characters in %q", name, got.LastLines)
		}
	}
}

func TestPaste_TranslatesEveryVerdict(t *testing.T) {
	held := func(reason tmuxdv1.HoldReason) *tmuxdv1.PasteResponse {
		return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Held{Held: &tmuxdv1.Held{Reason: reason, Detail: "d"}}}
	}
	refused := func(reason tmuxdv1.RefusalReason) *tmuxdv1.PasteResponse {
		return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Refused{Refused: &tmuxdv1.Refused{Reason: reason, Detail: "d"}}}
	}
	type row struct {
		answer *tmuxdv1.PasteResponse
		want   dispatch.Paste
	}
	rows := []row{
		{&tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Submitted{Submitted: &tmuxdv1.Submitted{}}}, dispatch.PasteSubmitted},
		{&tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_AlreadyDelivered{}}, dispatch.PasteAlready},
		{&tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Unconfirmed{}}, dispatch.PasteUnconfirmed},
		{&tmuxdv1.PasteResponse{}, dispatch.PasteFailed},
	}
	for number := range tmuxdv1.HoldReason_name {
		want := dispatch.PasteHeld
		switch tmuxdv1.HoldReason(number) {
		case tmuxdv1.HoldReason_HOLD_REASON_NOT_READY:
			want = dispatch.PasteNotReady
		case tmuxdv1.HoldReason_HOLD_REASON_BUSY:
			want = dispatch.PasteBusy
		}
		rows = append(rows, row{held(tmuxdv1.HoldReason(number)), want})
	}
	for number := range tmuxdv1.RefusalReason_name {
		want := dispatch.PasteRefusedOther
		switch tmuxdv1.RefusalReason(number) {
		case tmuxdv1.RefusalReason_REFUSAL_REASON_DEAD, tmuxdv1.RefusalReason_REFUSAL_REASON_ABSENT:
			want = dispatch.PasteRefusedGone
		case tmuxdv1.RefusalReason_REFUSAL_REASON_FOREIGN:
			want = dispatch.PasteRefusedForeign
		}
		rows = append(rows, row{refused(tmuxdv1.RefusalReason(number)), want})
	}
	for _, r := range rows {
		if got, _ := pasteOf(r.answer); got != r.want {
			t.Errorf("%v is %v, want %v", r.answer, got, r.want)
		}
	}
}

func TestOrders_SayWhatIsAskedFor(t *testing.T) {
	d := newTmuxd()
	d.spawn, d.paste = &tmuxdv1.SpawnResponse{}, &tmuxdv1.PasteResponse{}
	h := reach(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for _, o := range []deliver.SpawnOrder{
		{WorkItem: item, Harness: "claude", Resume: "c1", DeliveryID: "delivery-1", Text: "hello", Token: 5, Directory: "/d"},
		{WorkItem: item, Harness: "claude", Reason: dispatch.ReasonBadConversationID, Token: 6},
	} {
		if _, err := h.Spawn(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Paste(ctx, deliver.PasteOrder{WorkItem: item, DeliveryID: "delivery-1", Text: "hello", Stamp: "st", Token: 7}); err != nil {
		t.Fatal(err)
	}
	resume, fresh, paste := d.asked[0].(*tmuxdv1.SpawnRequest), d.asked[1].(*tmuxdv1.SpawnRequest), d.asked[2].(*tmuxdv1.PasteRequest)
	if resume.GetResume().GetConversationId() != "c1" || resume.GetPrompt().GetText() != "hello" || resume.GetFencingToken() != 5 ||
		resume.GetDirectory() != "/d" {
		t.Errorf("resume %v", resume)
	}
	if fresh.GetFresh().GetReason() != "cannot_resume" || fresh.GetPrompt() != nil || fresh.GetFencingToken() != 6 {
		t.Errorf("fresh %v", fresh)
	}
	if paste.GetIncarnationStamp() != "st" || paste.GetText() != "hello" || paste.GetDeliveryId() != "delivery-1" ||
		paste.GetFencingToken() != 7 {
		t.Errorf("paste %v", paste)
	}
	if limit := paste.GetTimeout().AsDuration(); limit <= 0 || limit >= 15*time.Second {
		t.Errorf("the host may take %v of 15s", limit)
	}
}
