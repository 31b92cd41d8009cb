package e2e

import (
	"os/exec"
	"strings"
	"testing"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// A name is a person's when its item's first event comes. The event is dropped once, loudly, and stays so while that is so; the command
// that it names frees the name, and then it goes in by itself.
func TestOccupied_WhatWasDroppedGoesInOnceTheNameIsFree(t *testing.T) {
	t.Parallel()
	s := startRows(t)
	r := s.on(t, 700)
	r.taken()
	submitted, err := r.Poller.Submit(r.ctx, &pollerv1.SubmitRequest{WorkItem: r.item, Text: "hello there"})
	if err != nil {
		t.Fatal(err)
	}
	id := submitted.GetEntry().GetDeliveryId()
	r.dropped(1)
	if _, out := r.exit("", "attention"); !strings.Contains(out, id) || !strings.Contains(out, "kill-session") {
		t.Errorf("muxpost attention:\n%s", out)
	}
	if res, err := r.Poller.Retry(r.ctx, &pollerv1.RetryRequest{DeliveryId: id, Who: "ann"}); err != nil || !res.GetRetried() {
		t.Fatalf("%v, %v", res, err)
	}
	r.dropped(2) // the name is still taken
	d, err := r.Dispatcher.GetDelivery(r.ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: id})
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(d.GetDelivery().GetRemedy(), "run on the host: ")
	if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); !found || err != nil {
		t.Fatalf("%s: %v: %s", d.GetDelivery().GetRemedy(), err, out)
	}
	// Its end is heard of: the sweep would come only minutes later.
	row, err := r.WaitEvent(r.ctx, r.item, 0)
	for err == nil && row.GetState() == pollerv1.LedgerState_LEDGER_STATE_DROPPED {
		row, err = r.WaitEvent(r.ctx, r.item, 0)
	}
	if err != nil || row.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED || row.GetDeliveryId() != id || row.GetTries() != 0 {
		t.Fatalf("%v, %v", row, err)
	}
	texts, err := r.Conversation(r.record().GetConversationId()).Texts("user")
	if err != nil || len(texts) != 1 || !strings.Contains(texts[0], id) {
		t.Errorf("%q, %v", texts, err)
	}
}

// dropped waits until the item's event was dropped for the nth time because of who has its name.
func (r *row) dropped(n int) {
	r.t.Helper()
	r.until("it is dropped", func() bool {
		res, err := r.Dispatcher.ListEvents(r.ctx, &dispatcherv1.ListEventsRequest{WorkItem: r.item, PageSize: 500})
		rows, rowsErr := r.Events(r.ctx, r.item)
		if err != nil || rowsErr != nil || len(rows) != 1 || rows[0].GetState() != pollerv1.LedgerState_LEDGER_STATE_DROPPED {
			return false
		}
		drops, failures := 0, 0
		for _, e := range res.GetEvents() {
			switch e.GetType() {
			case "dispatch.dropped":
				drops++
			case "session.spawn_failed":
				failures++
			}
		}
		return rows[0].GetReason() == "session-occupied" && drops == n && failures == n
	})
}
