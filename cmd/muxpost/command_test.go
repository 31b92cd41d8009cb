package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// desk is a command with surroundings of its own and a data directory, whose services listen on sockets in it.
type desk struct {
	*app
	dir      string
	out, err *bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := strings.ReplaceAll(`tmuxd: {listen: 'unix:DIR/t', host: here}
dispatcher: {listen: 'unix:DIR/d', harness: fakeagent, host: {address: 'unix:DIR/t'}}
poller: {listen: 'unix:DIR/p', dispatcher: 'unix:DIR/d'}
`, "DIR", dir)
	if err := os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &desk{dir: dir, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	d.app = &app{stdin: strings.NewReader(""), stdout: d.out, stderr: d.err, now: func() time.Time { return now },
		where: settings.Where{DataDir: dir, BinDir: dir, Getenv: func(string) string { return "" }}}
	return d
}

// run runs a command line and returns its error; output is what it wrote.
func (d *desk) run(t *testing.T, line ...string) error {
	t.Helper()
	d.out.Reset()
	d.err.Reset()
	d.json, d.limit = false, 0
	root := newRoot(d.app)
	root.SetArgs(append([]string{"--data-dir", d.dir}, line...))
	return root.ExecuteContext(t.Context())
}

// fakePoller answers by what it holds.
type fakePoller struct {
	pollerv1.UnimplementedPollerServiceServer
	mu        sync.Mutex
	submitted []*pollerv1.SubmitRequest
	entries   []*pollerv1.LedgerEntry
	sources   []*pollerv1.Source
	counts    []*pollerv1.StateCount
	reasons   []*pollerv1.ReasonCount
	cancelled []*pollerv1.CancelRequest
	listed    []*pollerv1.ListLedgerRequest
	events    []*pollerv1.PollEvent
	retried   []*pollerv1.RetryRequest
	acks      []*pollerv1.Acknowledgement
	// looked is called before each answer to a question about one delivery.
	looked func(*pollerv1.LedgerEntry)
}

func (f *fakePoller) Submit(_ context.Context, r *pollerv1.SubmitRequest) (*pollerv1.SubmitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submitted = append(f.submitted, r)
	return &pollerv1.SubmitResponse{Entry: &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", WorkItem: r.GetWorkItem(),
		State: pollerv1.LedgerState_LEDGER_STATE_PENDING, Budget: 3}}, nil
}

func (f *fakePoller) ListLedger(_ context.Context, r *pollerv1.ListLedgerRequest) (*pollerv1.ListLedgerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &pollerv1.ListLedgerResponse{}
	f.listed = append(f.listed, r)
	for _, e := range f.entries {
		if r.GetDeliveryId() != "" && e.GetDeliveryId() != r.GetDeliveryId() || r.GetState() != 0 && e.GetState() != r.GetState() {
			continue
		}
		if f.looked != nil {
			f.looked(e)
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

func (f *fakePoller) ListPollEvents(_ context.Context, r *pollerv1.ListPollEventsRequest) (*pollerv1.ListPollEventsResponse, error) {
	out := &pollerv1.ListPollEventsResponse{}
	for _, e := range f.events {
		if e.GetSequence() > r.GetAfterSequence() {
			out.Events = append(out.Events, e)
		}
	}
	return out, nil
}

func (f *fakePoller) Settle(_ context.Context, r *pollerv1.SettleRequest) (*pollerv1.SettleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		if e.GetDeliveryId() == r.GetDeliveryId() {
			settled := e.GetReason() != "done"
			e.State, e.Reason, e.Detail = pollerv1.LedgerState_LEDGER_STATE_SETTLED, "done", "it was settled by "+r.GetWho()
			return &pollerv1.SettleResponse{Entry: e, Settled: settled}, nil
		}
	}
	return nil, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no such event")
}

func (f *fakePoller) Acknowledge(_ context.Context, r *pollerv1.AcknowledgeRequest) (*pollerv1.AcknowledgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := &pollerv1.Acknowledgement{EntryId: r.GetEntryId(), State: r.GetState(), DeliveryId: r.GetDeliveryId(), Who: r.GetWho(),
		Reason: r.GetReason(), CreateTime: at(time.Minute)}
	f.acks = append(f.acks, a)
	return &pollerv1.AcknowledgeResponse{Acknowledgement: a}, nil
}

func (f *fakePoller) ListAcknowledgements(context.Context, *pollerv1.ListAcknowledgementsRequest) (
	*pollerv1.ListAcknowledgementsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pollerv1.ListAcknowledgementsResponse{Acknowledgements: f.acks}, nil
}

func (f *fakePoller) Retry(_ context.Context, r *pollerv1.RetryRequest) (*pollerv1.RetryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retried = append(f.retried, r)
	for _, e := range f.entries {
		switch {
		case e.GetDeliveryId() != r.GetDeliveryId():
		case view.Waits(e.GetState()):
			return &pollerv1.RetryResponse{Entry: e}, nil
		case e.GetReason() == "unconfirmed" && r.GetTypeAgain():
			return &pollerv1.RetryResponse{Entry: &pollerv1.LedgerEntry{DeliveryId: "dagain111", WorkItem: e.GetWorkItem()}, Retried: true}, nil
		case e.GetReason() == "unconfirmed":
			return &pollerv1.RetryResponse{Entry: e, Retried: true, EvidenceOnly: true}, nil
		case e.GetState() == pollerv1.LedgerState_LEDGER_STATE_DROPPED:
			e.State = pollerv1.LedgerState_LEDGER_STATE_PENDING
			return &pollerv1.RetryResponse{Entry: e, Retried: true}, nil
		default:
			return nil, fault.New(fault.Conflict, "", "it was settled by policy")
		}
	}
	return nil, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no such event")
}

func (f *fakePoller) ListSources(context.Context, *pollerv1.ListSourcesRequest) (*pollerv1.ListSourcesResponse, error) {
	return &pollerv1.ListSourcesResponse{Sources: f.sources}, nil
}

func (f *fakePoller) CountLedger(context.Context, *pollerv1.CountLedgerRequest) (*pollerv1.CountLedgerResponse, error) {
	return &pollerv1.CountLedgerResponse{Counts: f.counts, Reasons: f.reasons}, nil
}

// fakeDispatcher answers by what it holds.
type fakeDispatcher struct {
	hosts []*dispatcherv1.Host
	dispatcherv1.UnimplementedDispatcherServiceServer
	delivery *dispatcherv1.Delivery
	session  *dispatcherv1.Session

	deliveries []*dispatcherv1.Delivery
	pauses     []*dispatcherv1.Pause
	parks      []*dispatcherv1.Park
	orphans    []*dispatcherv1.Orphan
	events     []*dispatcherv1.Event
	shadow     bool
	stopped    []*dispatcherv1.StopSessionRequest
	closed     []*dispatcherv1.CloseSessionRequest
}

func (f *fakeDispatcher) GetDelivery(_ context.Context, r *dispatcherv1.GetDeliveryRequest) (*dispatcherv1.GetDeliveryResponse, error) {
	if f.delivery.GetDeliveryId() != r.GetDeliveryId() {
		return nil, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no such delivery")
	}
	return &dispatcherv1.GetDeliveryResponse{Delivery: f.delivery}, nil
}

func (f *fakeDispatcher) ListSessions(context.Context, *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	out := &dispatcherv1.ListSessionsResponse{}
	if f.session != nil {
		out.Sessions = append(out.Sessions, f.session)
	}
	return out, nil
}

// serve serves on a socket of the desk until the test ends.
func (d *desk) serve(t *testing.T, name string, register func(*rpc.Server)) {
	t.Helper()
	server := rpc.NewServer(rpc.Options{})
	register(server)
	listener, err := rpc.Listen("unix:" + filepath.Join(d.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSend_RefusesWhatCannotBeDeliveredAndSendsNothing(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	d.serve(t, "t", func(s *rpc.Server) { tmuxdv1.RegisterTmuxdServiceServer(s, fakeTmuxd{}) })
	for _, tt := range []struct {
		name  string
		line  []string
		stdin string
	}{
		{"no item", []string{"send"}, ""},
		{"no text", []string{"send", "github:o/r#1"}, ""},
		{"bad item", []string{"send", "octo/widget#7", "hi"}, ""},
		{"empty", []string{"send", "github:o/r#1", " \n\t"}, ""},
		{"empty input", []string{"send", "github:o/r#1", "-"}, ""},
		{"too large", []string{"send", "github:o/r#1", "-"}, strings.Repeat("a", 5<<20)},
		{"not UTF-8", []string{"send", "github:o/r#1", "-"}, "\xff\xfe"},
		{"two texts", []string{"send", "github:o/r#1", "a", "b"}, ""},
		{"bad flag", []string{"send", "--nope", "github:o/r#1", "a"}, ""},
		{"unknown harness", []string{"send", "--harness", "nosuch", "github:o/r#1", "a"}, ""},
		{"harness that is not installed", []string{"send", "--dry-run", "--harness", "other", "github:o/r#1", "a"}, ""},
		{"bad timeout", []string{"send", "--wait", "--timeout", "0s", "github:o/r#1", "a"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.stdin = strings.NewReader(tt.stdin)
			if err := d.run(t, tt.line...); !errors.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
		})
	}
	if len(poller.submitted) != 0 {
		t.Errorf("sent: %v", poller.submitted)
	}
}

func TestSend_PassesOnWhatWasAsked(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	d.stdin = strings.NewReader("from a file\n")
	if err := d.run(t, "send", "--key", "k", "--harness", "h", "--dry-run", "GitHub:Octo/Widget#7", "-"); err != nil {
		t.Fatal(err)
	}
	got := poller.submitted[0]
	if got.GetWorkItem() != "github:octo/widget#7" || got.GetText() != "from a file\n" || got.GetIdempotencyKey() != "k" ||
		got.GetHarness() != "h" || !got.GetDryRun() {
		t.Errorf("%v", got)
	}
	if !strings.Contains(d.out.String(), "nothing was sent") || !strings.Contains(d.out.String(), "loop-octo-widget-7") {
		t.Errorf("%s", d.out)
	}
}

func TestSend_WaitSucceedsOnlyForADelivery(t *testing.T) {
	for state, ok := range map[pollerv1.LedgerState]bool{
		pollerv1.LedgerState_LEDGER_STATE_DELIVERED: true, pollerv1.LedgerState_LEDGER_STATE_DROPPED: false,
		pollerv1.LedgerState_LEDGER_STATE_GAVE_UP: false, pollerv1.LedgerState_LEDGER_STATE_SETTLED: false,
		pollerv1.LedgerState_LEDGER_STATE_CANCELLED: false,
	} {
		t.Run(state.String(), func(t *testing.T) {
			d := newDesk(t)
			looks := 0
			poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", Reason: "session_holds"}}}
			poller.looked = func(e *pollerv1.LedgerEntry) {
				if looks++; looks > 1 {
					e.State = state
					return
				}
				e.State = pollerv1.LedgerState_LEDGER_STATE_HELD
			}
			d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
			err := d.run(t, "send", "--wait", "github:o/r#1", "hi")
			if (err == nil) != ok {
				t.Errorf("%v", err)
			}
			if !strings.Contains(d.err.String(), "held (session_holds)") {
				t.Errorf("nothing was said of the wait: %s", d.err)
			}
		})
	}
}

func TestSend_WaitEndsAtItsTimeout(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", State: pollerv1.LedgerState_LEDGER_STATE_HELD}}}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	err := d.run(t, "send", "--wait", "--timeout", "300ms", "github:o/r#1", "hi")
	if err == nil || !strings.Contains(err.Error(), "stays in the ledger") {
		t.Errorf("%v", err)
	}
}

func TestCommands_WhatIsNotOneLeadsToOneThatIs(t *testing.T) {
	d := newDesk(t)
	for _, row := range []struct{ line, want string }{
		{"sesions", "did you mean muxpost sessions?"},
		{"ack daaaa1111", "did you mean muxpost attention?"},
		{"attention ak daaaa1111", "muxpost attention ack ID"},
		{"nothing-like-it", "muxpost --help lists the commands"},
		{"help sesions", "did you mean muxpost sessions?"},
		{"help attention ak", "muxpost attention ack ID"},
	} {
		if err := d.run(t, strings.Fields(row.line)...); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.line, err)
		}
	}
}

func TestCommands_SayWhoIsAwayAndWhatToDo(t *testing.T) {
	d := newDesk(t)
	for _, line := range [][]string{
		{"send", "github:o/r#1", "hi"}, {"ledger"}, {"deliveries"}, {"sessions"}, {"harnesses"}, {"events"}, {"poll"}, {"explain", "daaaa1111"},
		{"attention"}, {"pause", "--all"}, {"unpause", "github:o/r#1"}, {"retry", "daaaa1111"}, {"done", "daaaa1111"}, {"attention", "ack", "x"},
	} {
		err := d.run(t, line...)
		if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "muxpost up") {
			t.Errorf("%v: %v", line, err)
		}
	}
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || strings.Count(d.out.String(), " down ") < 4 {
		t.Errorf("status: %v\n%s", err, d.out)
	}
	if err := d.run(t, "down"); err != nil || !strings.Contains(d.out.String(), "nothing runs") {
		t.Errorf("down: %v\n%s", err, d.out)
	}
}

func TestStatus_TellsWhatThePollerKnows(t *testing.T) {
	d := newDesk(t)
	file, err := os.ReadFile(filepath.Join(d.dir, "muxpost.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(file), "dispatcher: 'unix:"+d.dir+"/d'}", "dispatcher: 'unix:"+d.dir+
		"/d', sources: [{name: later, kind: github, repositories: [a/b], label: x}]}", 1)
	if err := os.WriteFile(filepath.Join(d.dir, "muxpost.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || !strings.Contains(d.out.String(), "later (a/b): not known: the poller does not answer") {
		t.Errorf("with all down: %v\n%s", err, d.out)
	}
	pending := pollerv1.LedgerState_LEDGER_STATE_PENDING
	poller := &fakePoller{
		sources: []*pollerv1.Source{
			{Name: "good", Repositories: []string{"o/r"}, LastLookTime: at(time.Minute), LastSuccessTime: at(time.Minute), KnownItems: 2},
			{Name: "bad", LastLookTime: at(time.Minute), LastSuccessTime: at(time.Hour), LastError: "wrong token", LastErrorTime: at(time.Minute)},
			{Name: "limited", LastLookTime: at(time.Minute), LastError: "too many requests", NotBefore: at(-time.Minute)},
			{Name: "fresh"},
			{Name: "hooked", LastLookTime: at(time.Minute), LastSuccessTime: at(time.Minute), Webhook: &pollerv1.WebhookState{
				LastReceivedTime: at(time.Minute), Waiting: 3, Failed: 1, LastError: "cannot be read",
				LastGap: &pollerv1.WebhookGap{Events: 5, FindTime: at(time.Hour)},
			}},
			{Name: "unhooked", LastLookTime: at(time.Minute), LastSuccessTime: at(time.Minute), Webhook: &pollerv1.WebhookState{}},
		},
		counts: []*pollerv1.StateCount{
			{State: pending, Count: 12}, {State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED, Count: 70000},
			{State: pollerv1.LedgerState_LEDGER_STATE_HELD},
		},
		entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", State: pending}},
	}
	d.serve(t, "p", func(s *rpc.Server) {
		pollerv1.RegisterPollerServiceServer(s, poller)
		s.Health().Set("", true)
	})
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "poller") {
		t.Errorf("the others are away: %v", err)
	}
	for _, want := range []string{
		"good (o/r): read 1m ago, 2 open work items", "bad (): failed 1m ago: wrong token; last read 1h", "limited (): failed: too many requests; it asked",
		"fresh (): not looked at yet",
		"latest webhook 1m ago, 3 wait, 1 failed: cannot be read, webhooks missed 5 events 1h", "no webhook has come yet", "later (a/b): not known to the poller that runs", "12 pending", "70000 delivered", "and 11 more",
	} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
}

func TestRoot_RefusesWhatItDoesNotKnow(t *testing.T) {
	d := newDesk(t)
	for _, line := range [][]string{
		{"stauts"}, {"--nope"}, {"status", "x"}, {"ledger", "--state", "nope"}, {"trace", "x"}, {"events", "--delivery", "X"},
		{"pause"}, {"pause", "--all", "github:o/r#1"}, {"unpause"}, {"pause", "octo#7"}, {"retry"}, {"retry", "X"}, {"done"}, {"done", "X"}, {"attention", "x"}, {"attention", "ack"},
		{"attention", "--ended-within", "-1s"},
	} {
		if err := d.run(t, line...); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", line, err)
		}
	}
	for _, line := range []string{"help", "help send", "help attention ack"} {
		if err := d.run(t, strings.Fields(line)...); err != nil || d.out.Len() == 0 {
			t.Errorf("%s: %v, wrote %q", line, err, d.out)
		}
	}
	if err := d.run(t, "stauts"); !strings.Contains(err.Error(), "muxpost status") {
		t.Errorf("%v", err)
	}
}

func at(before time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-before)) }

func TestExplain_TellsTheStory(t *testing.T) {
	entry := &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Source: "github", Kind: "comment", Author: "ann",
		Url: "https://github.com/octo/widget/issues/7#issuecomment-1", Title: "Widget \x1b[31mbreaks",
		State: pollerv1.LedgerState_LEDGER_STATE_HELD, Reason: "session_holds", Tries: 1, Budget: 3,
		Detail: "the agent lives and cannot take it now: a draft", NextLook: at(-40 * time.Second),
		UpstreamTime: at(5 * time.Minute), CreateTime: at(4 * time.Minute), UpdateTime: at(time.Minute), TraceId: strings.Repeat("a", 32)}
	delivery := &dispatcherv1.Delivery{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Outcome: dispatcherv1.Outcome_OUTCOME_HELD,
		Reason: "session_holds", Detail: "the agent lives and cannot take it now: a draft",
		Remedy: "look at it with `muxpost attach github:octo/widget#7`",
		Asked:  4, UpdateTime: at(time.Minute), Steps: []string{"look up: recorded on here", "probe: live", "paste: held (draft)"}}
	session := &dispatcherv1.Session{WorkItem: "github:octo/widget#7", Target: "loop-octo-widget-7", Host: "here", Harness: "fakeagent",
		ConversationId: "c-2", SocketPath: "/s/loop-octo-widget-7.sock", State: dispatcherv1.SessionState_SESSION_STATE_LIVE}
	elsewhere := &dispatcherv1.Session{WorkItem: session.GetWorkItem(), Target: session.GetTarget(), Host: "there",
		SocketPath: session.GetSocketPath(), State: dispatcherv1.SessionState_SESSION_STATE_UNKNOWN}
	for name, st := range map[string]story{
		"explain-held": {id: "daaaa1111", entry: entry, delivery: delivery, session: session},
		"explain-delivered": {id: "dbbbb2222", session: session,
			entry: &pollerv1.LedgerEntry{DeliveryId: "dbbbb2222", WorkItem: "github:octo/widget#7", Source: "manual", Kind: "message",
				State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED, Budget: 3, CreateTime: at(time.Hour), UpdateTime: at(time.Hour)},
			delivery: &dispatcherv1.Delivery{DeliveryId: "dbbbb2222", WorkItem: "github:octo/widget#7", How: dispatcherv1.How_HOW_RESUMED,
				Outcome: dispatcherv1.Outcome_OUTCOME_DELIVERED, Asked: 1, UpdateTime: at(time.Hour), ConversationId: "c-1"}},
		"explain-done": {id: "daaaa1111",
			entry: &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Source: "manual", Kind: "message", Reason: "done",
				Detail: "it was settled by ann (it was gave_up, spawn_refused)", Tries: 3, Budget: 3, CreateTime: at(time.Hour), UpdateTime: at(time.Minute),
				State: pollerv1.LedgerState_LEDGER_STATE_SETTLED},
			delivery: &dispatcherv1.Delivery{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Outcome: dispatcherv1.Outcome_OUTCOME_FAILED,
				Reason: "spawn_refused", Remedy: "add it under tmuxd.harnesses", Asked: 3, UpdateTime: at(time.Hour)}},
		"explain-inline-comment": {id: "dcccc3333",
			entry: &pollerv1.LedgerEntry{DeliveryId: "dcccc3333", WorkItem: "github:octo/widget#7", Source: "github", Kind: "review_comment", Author: "ann",
				Url: "https://github.com/octo/widget/pull/8#discussion_r1", Pull: "github:octo/widget#8", About: "paint/blue.go, line 7",
				State: pollerv1.LedgerState_LEDGER_STATE_SETTLED, Reason: "editor", Detail: "edited by mallory, who is not among the source's authors",
				CreateTime: at(time.Hour), UpdateTime: at(time.Hour)}},
		"explain-check": {id: "ddddd4444",
			entry: &pollerv1.LedgerEntry{DeliveryId: "ddddd4444", WorkItem: "github:octo/widget#7", Source: "github", Kind: "check",
				Pull: "github:octo/widget#8", Commit: strings.Repeat("a", 40), About: "build (check_run 12)", Reason: "superseded",
				Detail: "its commit is not the head of the pull request any more; that is " + strings.Repeat("b", 40),
				State:  pollerv1.LedgerState_LEDGER_STATE_CANCELLED, CreateTime: at(time.Hour), UpdateTime: at(time.Hour)}},
		"explain-dispatcher-away": {id: "daaaa1111", entry: entry, problems: []error{errors.New("the dispatcher does not answer")}},
		"explain-other-host":      {id: "daaaa1111", delivery: delivery, session: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			st.print(view.Printer{Out: &out, Now: now}, "here")
			golden(t, name, out.String())
		})
	}
}

func TestExplain_AsksBothServices(t *testing.T) {
	d := newDesk(t)
	poller := &fakePoller{entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:o/r#1", Reason: "harness_exited",
		State: pollerv1.LedgerState_LEDGER_STATE_GAVE_UP}}}
	dispatcher := &fakeDispatcher{delivery: &dispatcherv1.Delivery{DeliveryId: "daaaa1111", Steps: []string{"probe: absent"}}}
	d.serve(t, "p", func(s *rpc.Server) { pollerv1.RegisterPollerServiceServer(s, poller) })
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, dispatcher) })
	if err := d.run(t, "explain", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), "probe: absent") ||
		!strings.Contains(d.out.String(), "ended right after its start") {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "explain", "--json", "daaaa1111"); err != nil || !strings.Contains(d.out.String(), `"meaning"`) {
		t.Errorf("%v\n%s", err, d.out)
	}
	if err := d.run(t, "explain", "dunknown1"); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestAttach_FindsTheSessionWithAndWithoutTheDispatcher(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "attach", "--print", "github:octo/widget#7"); !errors.Is(err, fault.NotFound) {
		t.Errorf("no session: %v", err)
	}
	if err := os.Mkdir(filepath.Join(d.dir, "tmuxd"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(d.dir, "tmuxd", "loop-octo-widget-7.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want := "tmux -N -S " + socket + " attach -r -t '=loop-octo-widget-7:'\n"
	if err := d.run(t, "attach", "--print", "--read-only", "github:octo/widget#7"); err != nil || d.out.String() != want {
		t.Errorf("dispatcher away: %v, %q", err, d.out)
	}
	if err := d.run(t, "attach", "github:octo/widget#7"); !errors.Is(err, fault.Invalid) {
		t.Errorf("without a terminal: %v", err)
	}
	dispatcher := &fakeDispatcher{session: &dispatcherv1.Session{WorkItem: "github:octo/widget#7", Target: "loop-octo-widget-7",
		Host: "elsewhere", SocketPath: socket}}
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, dispatcher) })
	err = d.run(t, "attach", "--print", "github:octo/widget#7")
	if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("on another host: %v", err)
	}
	dispatcher.session.Host = "here"
	if err := d.run(t, "attach", "--print", "github:octo/widget#7"); err != nil || !strings.Contains(d.out.String(), socket) {
		t.Errorf("here: %v, %q", err, d.out)
	}
}

func (f *fakeDispatcher) StopSession(_ context.Context, r *dispatcherv1.StopSessionRequest) (*dispatcherv1.StopSessionResponse, error) {
	f.stopped = append(f.stopped, r)
	return &dispatcherv1.StopSessionResponse{Already: len(f.stopped) > 1, Detail: "ended by signal 15"}, nil
}

func (f *fakeDispatcher) CloseSession(_ context.Context, r *dispatcherv1.CloseSessionRequest) (*dispatcherv1.CloseSessionResponse, error) {
	f.closed = append(f.closed, r)
	return &dispatcherv1.CloseSessionResponse{Waits: len(f.closed) == 1, Already: len(f.closed) == 2, Detail: "so"}, nil
}

func (f *fakeDispatcher) CancelEnding(_ context.Context, r *dispatcherv1.CancelEndingRequest) (*dispatcherv1.CancelEndingResponse, error) {
	if len(f.closed) == 0 {
		return &dispatcherv1.CancelEndingResponse{}, nil
	}
	return &dispatcherv1.CancelEndingResponse{Ending: &dispatcherv1.Ending{WorkItem: r.GetWorkItem(), Verb: dispatcherv1.EndingVerb_ENDING_VERB_CLOSE}}, nil
}

func TestClose_SaysWhatStandsAndHowToTakeItBack(t *testing.T) {
	d, f := newDesk(t), &fakeDispatcher{}
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, f) })
	for _, step := range []struct{ flag, want string }{
		{"--cancel", "no order to end the agent of github:octo/widget#7 waits"},
		{"--by=ann", "muxpost close --cancel 'github:octo/widget#7'"},
		{"--cancel", "taken back: the order to close github:octo/widget#7"},
		{"--by=ann", "no agent of github:octo/widget#7 lives (so); the item is closed"},
		{"--by=ann", "has ended (so); the item is closed"},
	} {
		if err := d.run(t, "close", "github:octo/widget#7", step.flag); err != nil || !strings.Contains(d.out.String(), step.want) {
			t.Errorf("%v: %q is not in\n%s%s", err, step.want, d.out, d.err)
		}
	}
	if r := f.closed[0]; r.GetWho() != "ann" || r.GetGrace().AsDuration() != 5*time.Second {
		t.Errorf("%v", r)
	}
}

func TestStop_OrdersTheEndOfOneAgent(t *testing.T) {
	d, f := newDesk(t), &fakeDispatcher{}
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, f) })
	for _, line := range [][]string{{"x"}, {}, {"github:octo/widget#7", "--grace", "0"}} {
		if err := d.run(t, append([]string{"stop"}, line...)...); !errors.Is(err, fault.Invalid) || f.stopped != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, want := range []string{"has ended (ended by signal 15)", "no agent of github:octo/widget#7 lives"} {
		if err := d.run(t, "stop", "github:octo/widget#7", "--by", "ann", "--reason", "stuck", "--grace", "2s"); err != nil || !strings.Contains(d.out.String()+d.err.String(), want) {
			t.Errorf("%v\n%s%s", err, d.out, d.err)
		}
	}
	if r := f.stopped[0]; r.GetWho() != "ann" || r.GetReason() != "stuck" || r.GetGrace().AsDuration() != 2*time.Second {
		t.Errorf("%v", r)
	}
}

func TestSources_ShowsLimitsAndRepositories(t *testing.T) {
	d := newDesk(t)
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	p := &fakePoller{sources: []*pollerv1.Source{{
		Name: "github", Kind: "github", Repositories: []string{"octo/widget", "octo/gone"}, LastLookTime: at(-10 * time.Second), KnownItems: 3,
		LastSuccessTime: at(-10 * time.Second), NextLookTime: at(20 * time.Second), Credential: "app 12345", ClockSkew: durationpb.New(-4 * time.Minute),
		Requests: &pollerv1.RequestCount{Total: 200, Unchanged: 190, Failed: 1},
		RateLimits: []*pollerv1.RateLimit{
			{Credential: "installation 7", Resource: "core", Limit: 5000, Remaining: 4990, ResetTime: at(time.Hour)},
			{Credential: "installation 7", Resource: "graphql", Limit: 5000, Remaining: 1, ResetTime: at(time.Hour)},
			{Credential: "installation 9", Resource: "core", Limit: 5000, Remaining: 480, ResetTime: at(time.Minute)},
		},
		RepositoryStates: []*pollerv1.SourceRepository{
			{Repository: "octo/widget", LastSuccessTime: at(-10 * time.Second), NextLookTime: at(3 * time.Minute), LastFullTime: at(-30 * time.Minute),
				Requests:    &pollerv1.RequestCount{Total: 10, Unchanged: 5},
				UnreadKinds: []*pollerv1.UnreadKind{{Kind: "check_run", Problem: "the token lacks a permission"}}},
			{Repository: "octo/gone", LastError: "there is nothing of that name", LastErrorTime: at(-time.Minute)},
		},
	}}}
	d.both(t, p, &fakeDispatcher{})
	if err := d.run(t, "sources"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"read 10s ago", "in 20s", "2, 1 failed", "app 12345", "480 of 5000", "200, 95% free, 1 failed", "clock is 4m ahead"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
	if err := d.run(t, "sources", "github"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"installation 7", "1 of 5000", "graphql", "in 3m", "30m ago", "check_run is not read", "there is nothing of that name", "10, 50% free"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
	if err := d.run(t, "sources", "gitlab"); !errors.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}
