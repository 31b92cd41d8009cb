package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// An agent that is killed again and again is not started a sixth time, whatever process of the dispatcher asks; what was sent for it waits,
// in its order, and goes in once a person says so. That every agent dies once parks none.
func TestPark_AnAgentThatDiesAgainAndAgainWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	r := s.on(t, 800)
	first := r.begun()
	r.dies()
	for range 4 {
		r.gets(true, delivered, "resumed")
		r.dies()
	}
	r.gets(true, waiting, "session_parked")
	r.told("session.parked")
	stamp := r.state().GetIncarnation().GetStamp()

	r.signal(r.pid("dispatcher"), syscall.SIGKILL)
	if out, err := r.Run(r.ctx, "up"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.gets(false, waiting, "session_parked")
	r.harmless(5, stamp)
	rows := make([]*pollerv1.LedgerEntry, 3)
	for i := range rows {
		submitted, err := r.Poller.Submit(r.ctx, &pollerv1.SubmitRequest{WorkItem: r.item, Text: "hello there"})
		if err != nil {
			t.Fatal(err)
		}
		rows[i] = submitted.GetEntry()
	}
	r.until("the first of them waits", func() bool {
		entries, err := r.Events(r.ctx, r.item)
		for _, e := range entries {
			if err == nil && e.GetDeliveryId() == rows[0].GetDeliveryId() {
				return e.GetReason() == "session_parked" && e.GetTries() == 0
			}
		}
		return false
	})
	if _, out := r.exit("", "attention"); !strings.Contains(out, "parked  "+r.item) || !strings.Contains(out, "muxpost unpark '"+r.item+"'") {
		t.Errorf("muxpost attention:\n%s", out)
	}
	if out, err := r.Run(r.ctx, "explain", rows[0].GetDeliveryId()); err != nil || !strings.Contains(out, "muxpost unpark") || !strings.Contains(out, "died 5 times") {
		t.Errorf("muxpost explain: %v\n%s", err, out)
	}
	if out, err := r.Run(r.ctx, "unpark", r.item, "--by", "ann"); err != nil || !strings.Contains(out, "after 5 deaths") {
		t.Fatalf("%v\n%s", err, out)
	}
	// Whichever of them is first brings the agent back.
	if d := r.ask(false); d.GetOutcome() != delivered {
		t.Errorf("%v (%s)", d.GetOutcome(), d.GetReason())
	}
	for _, row := range rows {
		var last *pollerv1.LedgerEntry
		r.until("it is delivered", func() bool {
			entries, err := r.Events(r.ctx, r.item)
			for _, e := range entries {
				if err == nil && e.GetDeliveryId() == row.GetDeliveryId() {
					last = e
				}
			}
			return last.GetState() == pollerv1.LedgerState_LEDGER_STATE_DELIVERED
		})
	}
	texts, err := r.Conversation(first.GetConversationId()).Texts("user")
	if err != nil || len(texts) != 9 {
		t.Errorf("%d messages, %v", len(texts), err)
	}
	at := 0
	for _, row := range rows {
		here := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, row.GetDeliveryId()) })
		if here <= at {
			t.Errorf("%s is message %d, and the one before it %d", row.GetDeliveryId(), here, at)
		}
		at = here
	}
	if out, err := r.Run(r.ctx, "unpark", r.item); err != nil || !strings.Contains(out, "was not parked") {
		t.Errorf("%v\n%s", err, out)
	}
	r.becomes(tmuxdv1.State_STATE_LIVE)
}

func TestPark_AHostWhoseAgentsAllDieParksNone(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	var rows []*row
	for n := range 8 {
		rows = append(rows, s.on(t, 810+n))
		rows[n].begun()
	}
	for _, r := range rows {
		r.signal(r.server(), syscall.SIGKILL)
	}
	for _, r := range rows {
		r.becomes(tmuxdv1.State_STATE_ABSENT)
		r.gets(true, delivered, "resumed")
	}
}

// A program that ends at once is started a few times for all events together, and not a few times for each: the first uses up its tries, and the
// others wait until it is seen to.
func TestPark_AProgramThatEndsAtOnceIsNotStartedForEachEvent(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	r := s.on(t, 820)
	r.harness = exits
	asked := 0
	for range 20 {
		d := r.ask(true)
		if asked++; d.GetReason() == "session_parked" {
			break
		}
		if d.GetReason() != "harness_exited" {
			t.Fatalf("%v (%s)", d.GetOutcome(), d.GetReason())
		}
		if asked == 2 {
			r.signal(r.pid("dispatcher"), syscall.SIGKILL)
			if out, err := r.Run(r.ctx, "up"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	if n := r.gate.count(r.item, "Spawn"); asked != 6 || n != 5 {
		t.Errorf("parked at event %d, after %d starts", asked, n)
	}
}
