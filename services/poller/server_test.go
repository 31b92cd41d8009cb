package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func message(item, text string) poll.Message { return poll.Message{WorkItem: item, Text: text} }

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is a poller that runs as in production.
type running struct {
	*world
	api  pollerv1.PollerServiceClient
	http string
	log  *logBuffer
	stop func() error
}

func start(t *testing.T, w *world) *running {
	t.Helper()
	r := &running{world: w, log: &logBuffer{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx, []string{"--config", w.config}, w.where(), io.Discard, r.log) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the poller did not stop in good order: %v", err)
		}
	})
	address := ""
	eventually(t, "the poller listens", func() bool {
		for line := range strings.Lines(r.log.String()) {
			var record struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "poller started" {
				address = record.Address
			}
		}
		return address != ""
	})
	r.http = "http://" + address
	r.api = pollerv1.NewPollerServiceClient(rpctest.Dial(t, address, rpc.DialOptions{}))
	return r
}

// eventually waits for what another goroutine or process will make true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 30*time.Second, what, ok)
}

// within is eventually with a patience of its own.
func within(t *testing.T, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// post calls an RPC as JSON over HTTP, as curl would.
func (r *running) post(t *testing.T, method, body string) (int, string) {
	t.Helper()
	response, err := http.Post(r.http+"/muxpost.poller.v1.PollerService/"+method, "application/json", strings.NewReader(body))
	must(t, err)
	defer response.Body.Close() //nolint:errcheck // It was read to its end.
	data, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(data)
}

func TestServe_AnEventGoesFromGitHubToTheDispatcherByItself(t *testing.T) {
	w := newWorld(t, standard)
	r := start(t, w)
	n := w.labelled(t, "alice")
	eventually(t, "the opening event arrives", func() bool { return len(w.dispatcher.requests()) == 1 })
	w.comment(t, n, "alice", "the secret words")
	eventually(t, "the comment arrives", func() bool { return len(w.dispatcher.requests()) == 2 })
	opened, comment := w.dispatcher.requests()[0], w.dispatcher.requests()[1]
	equal(t, "kinds", []dispatcherv1.EventKind{opened.GetKind(), comment.GetKind()},
		[]dispatcherv1.EventKind{dispatcherv1.EventKind_EVENT_KIND_OPENED, dispatcherv1.EventKind_EVENT_KIND_COMMENT})
	equal(t, "item", comment.GetWorkItem(), "github:"+w.host+"/acme/widgets#1")
	if comment.GetNodeId() == "" || comment.GetNodeId() != opened.GetNodeId() {
		t.Errorf("node ids %q and %q", opened.GetNodeId(), comment.GetNodeId())
	}
	eventually(t, "both are delivered", func() bool {
		list, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED})
		must(t, err)
		return len(list.GetEntries()) == 2 && len(list.GetEntries()[0].GetTraceId()) == 32
	})
	must(t, r.stop())
	if strings.Contains(r.log.String(), "secret words") {
		t.Error("the log holds the event's text")
	}
	traces, err := filepath.Glob(filepath.Join(w.dir, "traces", "*"))
	must(t, err)
	all := ""
	for _, path := range traces {
		data, err := os.ReadFile(path)
		must(t, err)
		all += string(data)
	}
	if !strings.Contains(all, "forward.Deliver") || !strings.Contains(all, "poll.Event") || strings.Contains(all, "secret words") {
		t.Error("the traces lack the event, or hold its text")
	}
}

func TestServe_AMessageByHandIsAtTheDispatcherAtOnce(t *testing.T) {
	w := newWorld(t, strings.Replace(standard, "1s", "1h", 1))
	r := start(t, w)
	begun := time.Now()
	response, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: "github:Octo/Widget#7", Text: "hello", Harness: "codex"})
	must(t, err)
	eventually(t, "it arrives", func() bool { return len(w.dispatcher.requests()) == 1 })
	t.Logf("from Submit to the dispatcher in %v", time.Since(begun))
	got := w.dispatcher.requests()[0]
	equal(t, "request", []any{got.GetDeliveryId(), got.GetWorkItem(), got.GetKind(), got.GetHarness(), got.GetText()},
		[]any{response.GetEntry().GetDeliveryId(), "github:octo/widget#7", dispatcherv1.EventKind_EVENT_KIND_MESSAGE, "codex",
			"Message from your operator about github:octo/widget#7:\n\nhello"})
}

func TestServe_EveryOutcomeOfTheDispatcherHasItsPlaceInTheLedger(t *testing.T) {
	w := newWorld(t, standard)
	type want struct {
		State  pollerv1.LedgerState
		Reason string
		Tries  int32
	}
	script := map[string]struct {
		outcome dispatcherv1.Outcome
		err     error
		want    want
	}{
		"github:o/r#1": {dispatcherv1.Outcome_OUTCOME_DELIVERED, nil, want{pollerv1.LedgerState_LEDGER_STATE_DELIVERED, "", 0}},
		"github:o/r#2": {dispatcherv1.Outcome_OUTCOME_IN_PROGRESS, nil, want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "why", 0}},
		"github:o/r#3": {dispatcherv1.Outcome_OUTCOME_HELD, nil, want{pollerv1.LedgerState_LEDGER_STATE_HELD, "why", 0}},
		"github:o/r#4": {dispatcherv1.Outcome_OUTCOME_WAITING, nil, want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "why", 0}},
		"github:o/r#5": {dispatcherv1.Outcome_OUTCOME_FAILED, nil, want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "why", 1}},
		"github:o/r#6": {dispatcherv1.Outcome_OUTCOME_DROPPED, nil, want{pollerv1.LedgerState_LEDGER_STATE_DROPPED, "why", 0}},
		"github:o/r#7": {dispatcherv1.Outcome_OUTCOME_UNCONFIRMED, nil, want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "why", 0}},
		"github:o/r#8": {0, fault.New(fault.Unavailable, fault.ReasonDatabase, "away"),
			want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "dispatcher_unreachable", 0}},
		"github:o/r#9": {0, fault.New(fault.Conflict, fault.ReasonTargetCollision, "collides"),
			want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "target_collision", 1}},
		"github:o/r#10": {dispatcherv1.Outcome_OUTCOME_UNSPECIFIED, nil, want{pollerv1.LedgerState_LEDGER_STATE_PENDING, "internal", 0}},
	}
	w.dispatcher.answer = func(r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		line := script[r.GetWorkItem()]
		if line.err != nil {
			return nil, line.err
		}
		reason := "why"
		if line.outcome == dispatcherv1.Outcome_OUTCOME_DELIVERED {
			reason = ""
		}
		return outcome(line.outcome, reason, time.Hour), nil
	}
	r := start(t, w)
	for item := range script {
		_, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: item, Text: "hello"})
		must(t, err)
	}
	for item, line := range script {
		var entry *pollerv1.LedgerEntry
		eventually(t, item+" is answered", func() bool {
			list, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{WorkItem: item})
			must(t, err)
			entry = list.GetEntries()[0]
			return entry.GetDetail() != ""
		})
		equal(t, item, want{entry.GetState(), entry.GetReason(), entry.GetTries()}, line.want)
		if line.outcome == dispatcherv1.Outcome_OUTCOME_DROPPED && entry.GetDetail() != "explained (do this)" {
			t.Errorf("the detail is %q", entry.GetDetail())
		}
		waits := line.want.State == pollerv1.LedgerState_LEDGER_STATE_PENDING || line.want.State == pollerv1.LedgerState_LEDGER_STATE_HELD
		equal(t, item+" has a next look", entry.GetNextLook() != nil, waits)
	}
}

func TestServe_ADispatcherThatIsAwayCostsNoTryAndIsToldWhenItIsBack(t *testing.T) {
	w := newWorld(t, standard)
	server := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(server, w.dispatcher)
	address, stop := rpctest.ServeUntil(t, server)
	stop() // nobody listens there now
	w.address = address
	w.configure(t, standard)
	r := start(t, w)
	_, err := r.api.Submit(t.Context(), &pollerv1.SubmitRequest{WorkItem: "github:o/r#1", Text: "hello"})
	must(t, err)
	var entry *pollerv1.LedgerEntry
	eventually(t, "the silence is on the record", func() bool {
		list, err := r.api.ListLedger(t.Context(), &pollerv1.ListLedgerRequest{})
		must(t, err)
		entry = list.GetEntries()[0]
		return entry.GetReason() == "dispatcher_unreachable"
	})
	equal(t, "tries", entry.GetTries(), int32(0))
	if !strings.Contains(entry.GetDetail(), "cannot reach the dispatcher at "+address+": connection refused") {
		t.Errorf("the detail is %q", entry.GetDetail())
	}
	listener, err := rpc.Listen(address)
	must(t, err)
	again := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(again, w.dispatcher)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- again.Serve(ctx, listener) }()
	eventually(t, "it arrives", func() bool { return len(w.dispatcher.requests()) == 1 })
	must(t, r.stop())
	cancel()
	must(t, <-served)
}

func TestServe_AStopIsSoonAndLeavesNothingRunning(t *testing.T) {
	w := newWorld(t, standard)
	_, _, err := once(t, w) // with it everything around the poller has started
	must(t, err)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w.labelled(t, "alice")
	log := &logBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx, []string{"--config", w.config}, w.where(), io.Discard, log) }()
	eventually(t, "the opening event arrives", func() bool { return len(w.dispatcher.requests()) == 1 })
	begun := time.Now()
	cancel()
	must(t, <-ended)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, `"level":"WARN"`) {
			t.Errorf("said: %s", line)
		}
	}
}

func TestServe_SaysWhetherItServes(t *testing.T) {
	w := newWorld(t, standard)
	r := start(t, w)
	eventually(t, "it serves", func() bool {
		response, err := http.Get(r.http + "/healthz")
		must(t, err)
		must(t, response.Body.Close())
		return response.StatusCode == http.StatusOK
	})
}

func TestServe_OneTraceFollowsAnEventToTheDispatcher(t *testing.T) {
	w := newWorld(t, standard)
	w.labelled(t, "alice")
	var seen string
	server := rpc.NewServer(rpc.Options{TracerProvider: tracing(t)})
	dispatcherv1.RegisterDispatcherServiceServer(server, tracingDispatcher{seen: &seen})
	w.address = rpctest.Serve(t, server)
	w.configure(t, standard)
	p := w.open(t)
	look(t, p)
	must(t, p.forwarder.Drain(t.Context(), 0))
	equal(t, "trace at the dispatcher", seen, entries(t, p)[0].TraceID)
}

// tracingDispatcher notes the trace that it is called in.
type tracingDispatcher struct {
	dispatcherv1.UnimplementedDispatcherServiceServer
	seen *string
}

func (d tracingDispatcher) Deliver(ctx context.Context, _ *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	*d.seen = obs.TraceID(ctx)
	return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
}

var (
	_ grpc.ServiceRegistrar = (*rpc.Server)(nil)
	_ slog.Handler          = atLeast{}
)
