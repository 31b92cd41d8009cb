package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func (f *fakeDispatcher) ListEvents(_ context.Context, r *dispatcherv1.ListEventsRequest) (*dispatcherv1.ListEventsResponse, error) {
	out := &dispatcherv1.ListEventsResponse{}
	for _, e := range f.events {
		if e.GetSequence() > r.GetAfterSequence() {
			out.Events = append(out.Events, e)
		}
	}
	return out, nil
}

func TestRetry_SaysWhatHappened(t *testing.T) {
	for state, want := range map[pollerv1.LedgerState]string{
		pollerv1.LedgerState_LEDGER_STATE_DROPPED: "is tried again, with 3 new tries",
		pollerv1.LedgerState_LEDGER_STATE_HELD:    "is on its way already: held (session_holds); it is looked at now",
		pollerv1.LedgerState_LEDGER_STATE_SETTLED: "",
	} {
		t.Run(state.String(), func(t *testing.T) {
			d := newDesk(t)
			poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", State: state, Budget: 3,
				Reason: "session_holds"}}}
			d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
			err := d.run(t, "retry", "--by", "ann", "--reason", "mended", "daaaa1111")
			if (want == "") != errors.Is(err, fault.Conflict) || !strings.Contains(d.out.String(), want) {
				t.Errorf("%v\n%s", err, d.out)
			}
			if r := poller.retried[0]; r.GetWho() != "ann" || r.GetReason() != "mended" {
				t.Errorf("%v", r)
			}
			if err := d.run(t, "retry", "dunknown1"); !errors.Is(err, fault.NotFound) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestRetry_WaitFollowsItToItsEnd(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", State: pollerv1.LedgerState_LEDGER_STATE_DROPPED}}}
	poller.looked = func(e *pollerv1.LedgerEntry) { e.State = pollerv1.LedgerState_LEDGER_STATE_DELIVERED }
	d.both(t, poller, &fakeDispatcher{delivery: &dispatcherv1.Delivery{DeliveryId: "daaaa1111", How: dispatcherv1.How_HOW_PASTED}})
	if err := d.run(t, "retry", "--wait", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "delivered by paste") {
		t.Errorf("%v\n%s", err, d.out)
	}
	poller.entries[0].State = pollerv1.LedgerState_LEDGER_STATE_DROPPED
	poller.looked = func(e *pollerv1.LedgerEntry) { e.State = pollerv1.LedgerState_LEDGER_STATE_GAVE_UP }
	if err := d.run(t, "retry", "--wait", "daaaa1111"); err == nil || !strings.Contains(err.Error(), "gave_up") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestItem_IsReadFromTheAddressOfItsPage(t *testing.T) {
	for text, want := range map[string]string{
		"https://github.com/Octo/Widget/issues/7":                  "github:octo/widget#7",
		"https://github.com/octo/widget/pull/12/files":             "github:octo/widget#12",
		"https://github.com/octo/widget/issues/7#issuecomment-123": "github:octo/widget#7",
		"http://ghe.example.com/o/r/issues/1?x=y":                  "github:ghe.example.com/o/r#1",
		"GitHub:Octo/Widget#7":                                     "github:octo/widget#7",
	} {
		if ref, err := parseItem(text); err != nil || ref.String() != want {
			t.Errorf("%s: %v, %v", text, ref, err)
		}
	}
	for _, text := range []string{"https://github.com/octo/widget", "https://github.com/o/r/wiki/7", "https://github.com/o/r/issues/x", "https://[", "o/r#1"} {
		if _, err := parseItem(text); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestExplain_OfAnItemIsItsLatestEventAndWhatItWaitsBehind(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "dbbbb2222", WorkItem: "github:o/r#1", NextLook: at(10 * time.Second),
		State: pollerv1.LedgerState_LEDGER_STATE_PENDING, WaitsBehind: &pollerv1.Ahead{DeliveryId: "daaaa1111", Detail: "the composer holds a draft",
			State: pollerv1.LedgerState_LEDGER_STATE_HELD}}}}
	d.both(t, poller, &fakeDispatcher{})
	const behind = "waits behind daaaa1111 (held: the composer holds a draft)"
	for _, line := range [][]string{{"explain", "https://github.com/o/r/issues/1"}, {"explain", "github:o/r#1"}, {"ledger"}} {
		if err := d.run(t, line...); err != nil || !strings.Contains(d.out.String(), behind) || strings.Contains(d.out.String(), "ago; looked") ||
			strings.Contains(d.out.String(), "due now") {
			t.Errorf("%v: %v\n%s", line, err, d.out)
		}
	}
	poller.counts = []*pollerv1.StateCount{{State: pollerv1.LedgerState_LEDGER_STATE_PENDING, Count: 1}}
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || !strings.Contains(d.out.String(), behind) {
		t.Errorf("%v\n%s", err, d.out)
	}
	poller.entries[0].WaitsBehind = nil
	for _, line := range [][]string{{"explain", "dbbbb2222"}, {"ledger"}} {
		if err := d.run(t, line...); err != nil || !strings.Contains(d.out.String(), "due now") {
			t.Errorf("%v: %v\n%s", line, err, d.out)
		}
	}
	poller.entries = nil
	if err := d.run(t, "explain", "github:o/r#1"); !errors.Is(err, fault.NotFound) {
		t.Errorf("no event: %v", err)
	}
}

func TestEvents_AreThoseOfBothServicesByTime(t *testing.T) {
	d := newDesk(t)
	event := func(sequence int64, name string, before time.Duration) *dispatcherv1.Event {
		return &dispatcherv1.Event{Sequence: sequence, Type: name, Time: at(before)}
	}
	polled := &pollerv1.PollEvent{Sequence: 1, Type: "poll.rearmed", Time: at(2 * time.Minute), Source: "gh"}
	poller := &fakePoller{events: []*pollerv1.PollEvent{polled}}
	dispatcher := &fakeDispatcher{events: []*dispatcherv1.Event{event(4, "dispatch.queued", 3*time.Minute), event(5, "session.spawned", time.Minute)}}
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, dispatcher) })
	if err := d.run(t, "events"); !errors.Is(err, fault.Unavailable) || !strings.Contains(d.out.String(), "dispatch.queued") {
		t.Errorf("the poller is away: %v\n%s", err, d.out)
	}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	if err := d.run(t, "events"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, word := range strings.Fields(d.out.String()) {
		if strings.Contains(word, "poll.") || strings.Contains(word, "dispatch.") || strings.Contains(word, "session.") {
			got = append(got, word)
		}
	}
	if want := []string{"dispatch.queued", "poll.rearmed", "session.spawned"}; !slices.Equal(got, want) || !strings.Contains(d.out.String(), "source=gh") {
		t.Errorf("%v\n%s", got, d.out)
	}
	if err := d.run(t, "events", "-n", "1", "--json"); err != nil || !strings.Contains(d.out.String(), "session.spawned") ||
		strings.Contains(d.out.String(), "poll.rearmed") {
		t.Errorf("the newest: %v\n%s", err, d.out)
	}
}

func TestVersion_IsAFlagToo(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "version"); err != nil {
		t.Fatal(err)
	}
	want := d.out.String()
	if err := d.run(t, "--version"); err != nil || d.out.String() != want {
		t.Errorf("%v: %q, want %q", err, d.out, want)
	}
}

func TestExplain_ShowsWhatALongWayAnEventCame(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("a long remedy ", 60)
	row := &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", State: pollerv1.LedgerState_LEDGER_STATE_GAVE_UP,
		Reason: "harness_exited", HeldSince: at(time.Hour), GaveUpVersions: []string{"poller v1", "poller v2"}, DeleteTime: at(time.Minute),
		UpdateTime: timestamppb.New(now)}
	d.both(t, &fakePoller{entries: []*pollerv1.LedgerEntry{row}}, &fakeDispatcher{
		delivery: &dispatcherv1.Delivery{DeliveryId: "daaaa1111", Remedy: long, Reason: "harness_exited"},
		deliveries: []*dispatcherv1.Delivery{{DeliveryId: "daaaa1111", Outcome: dispatcherv1.Outcome_OUTCOME_FAILED, Remedy: long,
			Reason: "harness_exited", Detail: "x"}}})
	if err := d.run(t, "explain", "daaaa1111"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"held back since", "tried under poller v1; poller v2", "deleted upstream", long + "; then muxpost retry daaaa1111"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
	// What is read by a program, or kept in a file, is not cut.
	if err := d.run(t, "attention"); err == nil || !strings.Contains(d.out.String(), "then muxpost retry daaaa1111") {
		t.Errorf("%v\n%s", err, d.out)
	}
}
