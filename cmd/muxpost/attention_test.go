package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func (f *fakeDispatcher) ListDeliveries(_ context.Context, r *dispatcherv1.ListDeliveriesRequest) (
	*dispatcherv1.ListDeliveriesResponse, error) {
	out := &dispatcherv1.ListDeliveriesResponse{}
	for _, d := range f.deliveries {
		if d.GetOutcome() == r.GetOutcome() {
			out.Deliveries = append(out.Deliveries, d)
		}
	}
	return out, nil
}

func (f *fakeDispatcher) ListPauses(context.Context, *dispatcherv1.ListPausesRequest) (*dispatcherv1.ListPausesResponse, error) {
	return &dispatcherv1.ListPausesResponse{Pauses: f.pauses, Shadow: f.shadow}, nil
}

func (f *fakeDispatcher) ListParks(context.Context, *dispatcherv1.ListParksRequest) (*dispatcherv1.ListParksResponse, error) {
	return &dispatcherv1.ListParksResponse{Parks: f.parks}, nil
}

func (f *fakeDispatcher) ListHosts(context.Context, *dispatcherv1.ListHostsRequest) (*dispatcherv1.ListHostsResponse, error) {
	return &dispatcherv1.ListHostsResponse{Hosts: f.hosts}, nil
}

func (f *fakeDispatcher) ListSuperseded(context.Context, *dispatcherv1.ListSupersededRequest) (*dispatcherv1.ListSupersededResponse, error) {
	return &dispatcherv1.ListSupersededResponse{}, nil
}

func (f *fakeDispatcher) ListOrphans(context.Context, *dispatcherv1.ListOrphansRequest) (*dispatcherv1.ListOrphansResponse, error) {
	return &dispatcherv1.ListOrphansResponse{Orphans: f.orphans}, nil
}

func (f *fakeDispatcher) AdoptSession(_ context.Context, r *dispatcherv1.AdoptSessionRequest) (*dispatcherv1.AdoptSessionResponse, error) {
	already := len(f.orphans) == 0
	f.orphans = nil
	return &dispatcherv1.AdoptSessionResponse{Session: &dispatcherv1.Session{WorkItem: r.GetWorkItem(), Host: "here"}, Already: already}, nil
}

func (f *fakeDispatcher) Unpark(_ context.Context, r *dispatcherv1.UnparkRequest) (*dispatcherv1.UnparkResponse, error) {
	out := &dispatcherv1.UnparkResponse{}
	f.parks = slices.DeleteFunc(f.parks, func(p *dispatcherv1.Park) bool {
		if p.GetWorkItem() != r.GetWorkItem() {
			return false
		}
		out.Park = p
		return true
	})
	return out, nil
}

func (f *fakeDispatcher) Pause(_ context.Context, r *dispatcherv1.PauseRequest) (*dispatcherv1.PauseResponse, error) {
	for _, p := range f.pauses {
		if p.GetWorkItem() == r.GetWorkItem() {
			return &dispatcherv1.PauseResponse{Pause: p, Existed: true}, nil
		}
	}
	p := &dispatcherv1.Pause{WorkItem: r.GetWorkItem(), Reason: r.GetReason(), Who: r.GetWho(), CreateTime: at(time.Minute)}
	f.pauses = append(f.pauses, p)
	return &dispatcherv1.PauseResponse{Pause: p}, nil
}

func (f *fakeDispatcher) Unpause(_ context.Context, r *dispatcherv1.UnpauseRequest) (*dispatcherv1.UnpauseResponse, error) {
	out := &dispatcherv1.UnpauseResponse{}
	f.pauses = slices.DeleteFunc(f.pauses, func(p *dispatcherv1.Pause) bool {
		if p.GetWorkItem() != r.GetWorkItem() {
			return false
		}
		out.Pause = p
		return true
	})
	return out, nil
}

// both serves a poller and a dispatcher.
func (d *desk) both(t *testing.T, poller *fakePoller, dispatcher *fakeDispatcher) {
	d.serve(t, "p", func(s *rpc.Server) {
		pollerv1.RegisterPollerServiceServer(s, poller)
		s.Health().Set("", true)
	})
	d.serve(t, "d", func(s *rpc.Server) {
		dispatcherv1.RegisterDispatcherServiceServer(s, dispatcher)
		s.Health().Set("", true)
	})
}

func TestPause_SaysWhatStandsAndHowToEndIt(t *testing.T) {
	d := newDesk(t)
	d.where.Getenv = func(name string) string { return map[string]string{"USER": "ann"}[name] }
	dispatcher := &fakeDispatcher{}
	d.both(t, &fakePoller{}, dispatcher)
	for _, step := range []struct {
		line []string
		want []string
	}{
		{[]string{"pause", "--all", "--reason", "an upgrade"},
			[]string{"all work items are paused since", "by ann: an upgrade", "muxpost unpause --all"}},
		{[]string{"pause", "--all"}, []string{"was paused already", "an upgrade"}},
		{[]string{"pause", "GitHub:O/R#1", "--by", "bob"},
			[]string{"github:o/r#1 is paused since", "by bob", "muxpost unpause 'github:o/r#1'"}},
		{[]string{"status"}, []string{"PAUSED  all work items are paused since", "PAUSED  github:o/r#1 is paused", "(muxpost unpause --all)"}},
		{[]string{"status", "--json"}, []string{`"work_item": "github:o/r#1"`, `"who": "bob"`, `"shadow": false`}},
		{[]string{"unpause", "github:o/r#1"}, []string{"ended: the pause of github:o/r#1, which stood since", "still: all work items are paused"}},
		{[]string{"unpause", "github:o/r#1"}, []string{"it was not paused", "still: all work items"}},
		{[]string{"unpause", "--all"}, []string{"ended: the pause of all work items, which stood since", "by ann: an upgrade\n  what waited goes in"}},
		{[]string{"pause", "--all", "--json"}, []string{`"existed": false`}},
	} {
		// A status says besides that nobody else serves here.
		if err := d.run(t, step.line...); err != nil && (step.line[0] != "status" || !errors.Is(err, fault.Unavailable)) {
			t.Errorf("%v: %v", step.line, err)
		}
		for _, want := range step.want {
			if !strings.Contains(d.out.String(), want) {
				t.Errorf("%v: %q is not in\n%s", step.line, want, d.out)
			}
		}
	}
	for _, command := range []string{"pause", "unpause"} {
		if err := d.run(t, command); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "muxpost "+command+" --all") {
			t.Errorf("%s of nothing: %v", command, err)
		}
	}
	dispatcher.shadow = true
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || !strings.Contains(d.out.String(), "SHADOW") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestUnpark_EndsWhatAttentionLists(t *testing.T) {
	d := newDesk(t)
	dispatcher := &fakeDispatcher{parks: []*dispatcherv1.Park{{WorkItem: "github:o/r#1", Deaths: 5, Within: durationpb.New(10 * time.Minute),
		Detail: "exit code 1", CreateTime: at(time.Minute)}}}
	d.both(t, &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", CreateTime: at(3 * time.Hour),
		State: pollerv1.LedgerState_LEDGER_STATE_PENDING, Reason: "session_parked"}}}, dispatcher)
	if err := d.run(t, "attention"); err == nil || !strings.Contains(err.Error(), "1 thing needs a person") {
		t.Errorf("%v\n%s", err, d.out)
	}
	for _, want := range []string{"parked  github:o/r#1", "died 5 times within 10m", "exit code 1", "1 event waits", "muxpost unpark 'github:o/r#1'"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
	for _, want := range []string{"is not parked any more, after 5 deaths", "was not parked"} {
		if err := d.run(t, "unpark", "github:O/R#1"); err != nil || !strings.Contains(d.out.String(), want) {
			t.Errorf("%v\n%s", err, d.out)
		}
	}
	if err := d.run(t, "attention"); err != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "unpark", "--all"); err != nil || !strings.Contains(d.out.String(), "nothing is parked") {
		t.Errorf("%v\n%s", err, d.out)
	}
	dispatcher.parks = []*dispatcherv1.Park{{WorkItem: "github:o/r#1", Deaths: 5}, {WorkItem: "github:o/r#2", Deaths: 1}}
	if err := d.run(t, "unpark", "--all"); err != nil || !strings.Contains(d.out.String(), "github:o/r#2 is not parked any more, after 1 death of") || len(dispatcher.parks) != 0 {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "unpark"); !errors.Is(err, fault.Invalid) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestAdopt_TakesInWhatAttentionLists(t *testing.T) {
	d := newDesk(t)
	d.both(t, &fakePoller{}, &fakeDispatcher{orphans: []*dispatcherv1.Orphan{
		{Kind: dispatcherv1.OrphanKind_ORPHAN_KIND_UNRECORDED, WorkItem: "github:o/r#1", Host: "here"},
		{Kind: dispatcherv1.OrphanKind_ORPHAN_KIND_ELSEWHERE, WorkItem: "github:o/r#2", Host: "here", RecordedOn: "there", SocketPath: "/s", Target: "t"},
		{Kind: dispatcherv1.OrphanKind_ORPHAN_KIND_GONE, WorkItem: "github:o/r#3", Host: "here", RecordedOn: "here"},
	}})
	if err := d.run(t, "attention"); err == nil || !strings.Contains(err.Error(), "2 things need") {
		t.Errorf("%v\n%s", err, d.out)
	}
	for _, want := range []string{"orphan  github:o/r#1", "muxpost adopt 'github:o/r#1'", "recorded on host there", "tmux -N -S /s attach"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
	for _, step := range []struct {
		line []string
		want string
	}{
		{[]string{"sessions", "--orphans"}, "elsewhere"}, {[]string{"adopt", "github:O/R#1"}, "of github:o/r#1 on host here is recorded now"},
		{[]string{"adopt", "github:o/r#1"}, "was recorded already"}, {[]string{"sessions", "--orphans"}, "every living session is recorded"},
	} {
		if err := d.run(t, step.line...); err != nil || !strings.Contains(d.out.String(), step.want) {
			t.Errorf("%v: %v\n%s", step.line, err, d.out)
		}
	}
}

// Cron and containers set no variable that names the user.
func TestOperator_IsTheUserOfTheProcessWhereNothingNamesHim(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t)
	d.both(t, &fakePoller{}, &fakeDispatcher{})
	if err := d.run(t, "pause", "--all"); err != nil || !strings.Contains(d.out.String(), " by "+me.Username+";") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestAttention_NothingIsExitCodeZero(t *testing.T) {
	d := newDesk(t)
	d.both(t, &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", CreateTime: at(time.Minute),
		State: pollerv1.LedgerState_LEDGER_STATE_PENDING}}}, &fakeDispatcher{})
	if err := d.run(t, "attention"); err != nil || d.out.String() != "nothing needs a person\n" {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "attention", "--json"); err != nil || !strings.Contains(d.out.String(), `"entries": []`) {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestAttention_ListsWhatNeedsAPerson(t *testing.T) {
	d := newDesk(t)
	row := func(id string, state pollerv1.LedgerState, reason string) *pollerv1.LedgerEntry {
		return &pollerv1.LedgerEntry{DeliveryId: id, WorkItem: "github:o/r#1", State: state, Reason: reason, CreateTime: at(3 * time.Hour),
			UpdateTime: at(2 * time.Hour)}
	}
	dispatcher := &fakeDispatcher{
		deliveries: []*dispatcherv1.Delivery{
			{DeliveryId: "daaaa1111", Outcome: dispatcherv1.Outcome_OUTCOME_DROPPED, Reason: "session-occupied", Detail: "not ours",
				Remedy: "free it"},
			{DeliveryId: "dbbbb2222", Outcome: dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, Reason: "no_evidence", UpdateTime: at(2 * time.Hour)},
		},
		session: &dispatcherv1.Session{WorkItem: "github:o/r#1", Host: "here", Flags: []dispatcherv1.SessionFlag{
			dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED}},
		pauses: []*dispatcherv1.Pause{{CreateTime: at(30 * time.Hour)}},
	}
	poller := &fakePoller{
		entries: []*pollerv1.LedgerEntry{
			row("daaaa1111", pollerv1.LedgerState_LEDGER_STATE_DROPPED, "session-occupied"),
			row("dbbbb2222", pollerv1.LedgerState_LEDGER_STATE_SETTLED, "unconfirmed"),
			row("dcccc3333", pollerv1.LedgerState_LEDGER_STATE_GAVE_UP, "harness_exited"),
			row("ddddd4444", pollerv1.LedgerState_LEDGER_STATE_SETTLED, "unauthorised"),
			row("deeee5555", pollerv1.LedgerState_LEDGER_STATE_PENDING, "host_unreachable"),
		},
		sources: []*pollerv1.Source{{Name: "github", LastError: "wrong token", LastErrorTime: at(time.Minute)}},
	}
	d.both(t, poller, dispatcher)
	err := d.run(t, "attention", "--json")
	if err == nil || fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.Invalid ||
		!strings.Contains(err.Error(), "7 things need a person") {
		t.Errorf("%v", err)
	}
	var got attentionReport
	if err := json.Unmarshal(d.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range got.Entries {
		kinds = append(kinds, string(e.Kind))
		if e.Why == "" || e.Remedy == "" || e.Look == "" || e.Subject == "" {
			t.Errorf("%+v", e)
		}
	}
	if text := strings.Join(kinds, " "); text != "dropped gave_up unconfirmed waiting detached source paused" || len(got.Problems) != 0 {
		t.Errorf("%s, %q", text, got.Problems)
	}
	if err := d.run(t, "attention", "--ended-within", "1h"); err == nil || strings.Contains(d.out.String(), "daaaa1111") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

// TestAttention_WithAServiceAwayTellsWhatIsKnown has one service away: what the other knows is told, and the exit code is 3.
func TestAttention_WithAServiceAwayTellsWhatIsKnown(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", UpdateTime: at(time.Hour),
		State: pollerv1.LedgerState_LEDGER_STATE_DROPPED, Reason: "session-occupied"}}}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	if err := d.run(t, "attention"); !errors.Is(err, fault.Unavailable) || !strings.Contains(d.out.String(), "daaaa1111") ||
		!strings.Contains(d.out.String(), "not known: dispatcher") {
		t.Errorf("%v\n%s", err, d.out)
	}
	poller.entries = nil
	if err := d.run(t, "attention"); !errors.Is(err, fault.Unavailable) || strings.Contains(d.out.String(), "nothing needs") {
		t.Errorf("%v\n%s", err, d.out)
	}
}

func TestAttention_ReadsAsItShould(t *testing.T) {
	since := now.Add(-3 * time.Hour)
	r := attentionReport{Problems: []string{"sessions: the dispatcher did not answer"}, Entries: []attention.Entry{
		{ID: "daaaa1111", Kind: attention.Dropped, Subject: "github:octo/widget#7", DeliveryID: "daaaa1111", Since: &since, Why: "the name \x1b[31mis taken",
			Remedy: "free it; then muxpost retry daaaa1111", Look: "muxpost explain daaaa1111"},
		{ID: "dbbbb2222", Kind: attention.GaveUp, Subject: "github:octo/widget#8", DeliveryID: "dbbbb2222", Why: "its tries are spent", Remedy: "see the log",
			Look: "muxpost explain dbbbb2222"},
	}}
	var out bytes.Buffer
	r.print(view.Printer{Out: &out, Now: now}, true)
	golden(t, "attention", out.String())
}
