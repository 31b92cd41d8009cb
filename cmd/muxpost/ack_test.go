package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func TestAck_LeavesAnEntryOutUntilItsStateChanges(t *testing.T) {
	d := newDesk(t)
	row := &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", State: pollerv1.LedgerState_LEDGER_STATE_DROPPED,
		Reason: "session-occupied", CreateTime: at(time.Hour), UpdateTime: at(time.Hour)}
	source := &pollerv1.Source{Name: "gh", LastError: "it refuses", LastSuccessTime: at(2 * time.Hour)}
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{row}, sources: []*pollerv1.Source{source}}
	d.both(t, poller, &fakeDispatcher{})
	shows := func(what string, line []string, want ...string) {
		t.Helper()
		_ = d.run(t, line...) // the exit code is another matter
		for _, w := range want {
			if absent, not := strings.CutPrefix(w, "not "); strings.Contains(d.out.String(), absent) == not {
				t.Errorf("%s: %s\n%s", what, w, d.out)
			}
		}
	}
	shows("before", []string{"attention"}, "daaaa1111", "source-", "not left out")
	if err := d.run(t, "attention", "ack", "--by", "ann", "--reason", "she knows", "daaaa1111"); err != nil {
		t.Fatal(err)
	}
	shows("one of two seen", []string{"attention"}, "not daaaa1111", "source-", "1 acknowledged entry is left out; --all shows them")
	shows("all", []string{"attention", "--all"}, "daaaa1111", "seen: acknowledged by ann: she knows")
	shows("as JSON", []string{"attention", "--all", "--json"}, `"who": "ann"`, `"id": "daaaa1111"`)
	var id string
	for word := range strings.FieldsSeq(d.out.String()) {
		if strings.HasPrefix(word, `"source-`) {
			id = strings.Trim(word, `",`)
		}
	}
	if err := d.run(t, "attention", "ack", id); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t, "attention"); err != nil || !strings.Contains(d.out.String(), "2 acknowledged entries are left out") {
		t.Errorf("%v\n%s", err, d.out)
	}
	source.LastError = "it refuses in other words" // the same matter
	if err := d.run(t, "attention"); err != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
	row.State, row.Reason = pollerv1.LedgerState_LEDGER_STATE_GAVE_UP, "harness_exited"
	shows("another state", []string{"attention"}, "daaaa1111", "not source-")
	row.State, row.Reason, row.UpdateTime = pollerv1.LedgerState_LEDGER_STATE_DROPPED, "session-occupied", at(time.Minute)
	shows("the same again, later", []string{"attention"}, "daaaa1111")
	if err := d.run(t, "attention", "ack", "dunknown1"); !errors.Is(err, fault.NotFound) {
		t.Errorf("what is not on the list: %v", err)
	}
}

func TestDone_SaysWhatHappened(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", Reason: "unconfirmed",
		State: pollerv1.LedgerState_LEDGER_STATE_SETTLED}}}
	d.both(t, poller, &fakeDispatcher{})
	for _, want := range []string{"is done and is not tried again", "was done already: it was settled by ann"} {
		if err := d.run(t, "done", "--by", "ann", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), want) {
			t.Errorf("%v\n%s", err, d.out)
		}
	}
}

func TestRetry_OfAnUnconfirmedEventSaysThatNothingIsTypedAndHowItWouldBe(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", Reason: "unconfirmed",
		State: pollerv1.LedgerState_LEDGER_STATE_SETTLED}}}
	d.both(t, poller, &fakeDispatcher{})
	if err := d.run(t, "retry", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "nothing is typed") ||
		!strings.Contains(d.out.String(), "muxpost retry --type-again daaaa1111") || !strings.Contains(d.out.String(), "muxpost done daaaa1111") ||
		poller.retried[0].GetTypeAgain() {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "retry", "--type-again", "daaaa1111"); err != nil || !poller.retried[1].GetTypeAgain() ||
		!strings.Contains(d.out.String(), "as dagain111: it may then be there twice") || !strings.Contains(d.out.String(), "muxpost explain dagain111") {
		t.Errorf("%v\n%s", err, d.out)
	}
}
