package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

func TestMain(m *testing.M) {
	code := dbtest.Main(m)
	if crewPrograms != "" {
		_ = os.RemoveAll(crewPrograms)
	}
	os.Exit(code)
}

const item = "github:octo/widget#7"

// agent is a tmuxd with one session, in memory: it is absent until it is started, and takes every delivery once.
type agent struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	mu     sync.Mutex
	token  int64
	live   bool
	texts  map[string]string
	starts int
}

func (a *agent) Info(context.Context, *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &tmuxdv1.InfoResponse{
		Host: "a", HighestFencingToken: a.token, Harnesses: []*tmuxdv1.HarnessInfo{{Name: "fake", Resumes: true}},
	}, nil
}

func (a *agent) SessionState(_ context.Context, r *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &tmuxdv1.SessionStateResponse{State: tmuxdv1.State_STATE_ABSENT, Detail: "no session"}
	if a.live {
		out.State, out.Detail, out.Harness = tmuxdv1.State_STATE_LIVE, "the agent's pane is alive", "fake"
		out.Incarnation, out.ConversationId = &tmuxdv1.Incarnation{Stamp: "st1"}, "c1"
	}
	if _, ok := a.texts[r.GetDeliveryId()]; ok {
		out.DeliveryPhase = tmuxdv1.Phase_PHASE_TAKEN
	}
	return out, nil
}

func (a *agent) fence(token int64) error {
	if token <= a.token {
		return fault.New(fault.Fenced, fault.ReasonOlderToken, "the token is older than one seen here")
	}
	a.token = token - 1 // one lease may act more than once
	return nil
}

func (a *agent) Spawn(_ context.Context, r *tmuxdv1.SpawnRequest) (*tmuxdv1.SpawnResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.GetHarness() != "fake" {
		return nil, fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the harness %q is not in the table", r.GetHarness()).
			WithRemedy("name fake")
	}
	if err := a.fence(r.GetFencingToken()); err != nil {
		return nil, err
	}
	a.live = true
	a.starts++
	a.texts[r.GetPrompt().GetDeliveryId()] = r.GetPrompt().GetText()
	return &tmuxdv1.SpawnResponse{Outcome: &tmuxdv1.SpawnResponse_Started{Started: &tmuxdv1.Started{
		Incarnation: &tmuxdv1.Incarnation{Stamp: "st1"}, ConversationId: "c1", PromptPhase: tmuxdv1.Phase_PHASE_TAKEN, SocketPath: "/s.sock",
	}}}, nil
}

func (a *agent) Paste(_ context.Context, r *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.fence(r.GetFencingToken()); err != nil {
		return nil, err
	}
	if _, ok := a.texts[r.GetDeliveryId()]; ok {
		return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_AlreadyDelivered{AlreadyDelivered: &tmuxdv1.AlreadyDelivered{}}}, nil
	}
	a.texts[r.GetDeliveryId()] = r.GetText()
	return &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Submitted{
		Submitted: &tmuxdv1.Submitted{Evidence: tmuxdv1.Evidence_EVIDENCE_TRANSCRIPT},
	}}, nil
}

func (a *agent) text(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.texts[id]
}

// service is a running dispatcher.
type service struct {
	addr   string
	agent  *agent
	client dispatcherv1.DispatcherServiceClient
	conn   *grpc.ClientConn
	log    *logLines
	data   string
	url    string
	// stop ends the service and waits until it has ended.
	stop func()
}

// logLines keeps a log and tells where the service listens.
type logLines struct {
	mu    sync.Mutex
	all   bytes.Buffer
	ready chan string
}

func (l *logLines) read(r io.Reader) {
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		l.mu.Lock()
		l.all.Write(append(scanner.Bytes(), '\n'))
		l.mu.Unlock()
		var record struct{ Msg, Address string }
		if json.Unmarshal(scanner.Bytes(), &record) == nil && record.Msg == "the dispatcher is ready" {
			l.ready <- record.Address
		}
	}
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// startService runs the whole service on a database and a fake tmuxd of its own, until the test ends.
func startService(t *testing.T) *service {
	t.Helper()
	s := &service{agent: &agent{token: 1000, texts: map[string]string{}}, log: &logLines{ready: make(chan string, 1)}, data: t.TempDir()}
	host := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(host, s.agent)
	file := filepath.Join(t.TempDir(), "muxpost.yaml")
	text := "dispatcher:\n  listen: 127.0.0.1:0\n  harness: fake\n  host:\n    name: a\n    address: " + rpctest.Serve(t, host) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.url = dbtest.NewURL(t)
	reader, writer := io.Pipe()
	go s.log.read(reader)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- start(ctx, []string{"--config", file, "--data-dir", s.data}, at("", "MUXPOST_DATABASE_URL", s.url), io.Discard, writer)
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service ended with %v", err)
		}
		_ = writer.Close()
	})
	t.Cleanup(s.stop)
	select {
	case s.addr = <-s.log.ready:
	case err := <-done:
		done <- err
		t.Fatalf("the service did not start: %v", err)
	}
	s.conn = rpctest.Dial(t, s.addr, rpc.DialOptions{Name: "the dispatcher"})
	s.client = dispatcherv1.NewDispatcherServiceClient(s.conn)
	return s
}

// post calls a method with JSON over plain HTTP.
func (s *service) post(t *testing.T, method, body string) (status int, answer string) {
	t.Helper()
	url := "http://" + s.addr + "/muxpost.dispatcher.v1.DispatcherService/" + method
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestService_DeliversOverJSONAndGRPC goes the whole way: first spawn by JSON, paste by gRPC, then every list.
func TestService_DeliversOverJSONAndGRPC(t *testing.T) {
	s := startService(t)
	status, answer := s.post(t, "Deliver",
		`{"deliveryId":"delivery-1","workItem":"github:Octo/Widget#7","kind":"EVENT_KIND_OPENED","text":"please begin"}`)
	var first dispatcherv1.DeliverResponse
	if err := protojson.Unmarshal([]byte(answer), &first); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	d := first.GetDelivery()
	if d.GetOutcome() != dispatcherv1.Outcome_OUTCOME_DELIVERED || d.GetHow() != dispatcherv1.How_HOW_SPAWNED || d.GetHost() != "a" ||
		d.GetTarget() != "loop-octo-widget-7" || d.GetConversationId() != "c1" || d.GetTraceId() == "" || d.GetWorkItem() != item {
		t.Errorf("first delivery %v", d)
	}
	second, err := s.client.Deliver(t.Context(), &dispatcherv1.DeliverRequest{
		DeliveryId: "delivery-2", WorkItem: item, Kind: dispatcherv1.EventKind_EVENT_KIND_COMMENT, Text: "and then?",
	})
	if err != nil || second.GetDelivery().GetHow() != dispatcherv1.How_HOW_PASTED || second.GetLookAgain().AsDuration() != 0 {
		t.Errorf("second delivery %v, %v", second, err)
	}
	if s.agent.text("delivery-1") != "please begin" || s.agent.text("delivery-2") != "and then?" || s.agent.starts != 1 {
		t.Errorf("the agent has %v after %d starts", s.agent.texts, s.agent.starts)
	}
	got, err := s.client.GetDelivery(t.Context(), &dispatcherv1.GetDeliveryRequest{DeliveryId: "delivery-2"})
	if err != nil || !proto.Equal(got.GetDelivery(), second.GetDelivery()) {
		t.Errorf("stored   %v, %v\nanswered %v", got.GetDelivery(), err, second.GetDelivery())
	}
	s.checkLists(t)
	s.checkQuiet(t, "please begin", "and then?")
}

func (s *service) checkLists(t *testing.T) {
	t.Helper()
	page, err := s.client.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{PageSize: 1, WorkItem: "github:OCTO/widget#7"})
	if err != nil || len(page.GetDeliveries()) != 1 || page.GetDeliveries()[0].GetDeliveryId() != "delivery-2" ||
		page.GetNextPageToken() == "" {
		t.Fatalf("first page %v, %v", page, err)
	}
	page, err = s.client.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{PageSize: 1, PageToken: page.GetNextPageToken()})
	if err != nil || len(page.GetDeliveries()) != 1 || page.GetDeliveries()[0].GetDeliveryId() != "delivery-1" ||
		page.GetNextPageToken() != "" {
		t.Errorf("second page %v, %v", page, err)
	}
	sessions, err := s.client.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{})
	if err != nil || len(sessions.GetSessions()) != 1 ||
		sessions.GetSessions()[0].GetState() != dispatcherv1.SessionState_SESSION_STATE_LIVE ||
		sessions.GetSessions()[0].GetIncarnationStamp() != "st1" {
		t.Errorf("sessions %v, %v", sessions, err)
	}
	events, err := s.client.ListEvents(t.Context(), &dispatcherv1.ListEventsRequest{WorkItem: item})
	var types []string
	for _, e := range events.GetEvents() {
		types = append(types, e.GetType())
	}
	const want = "dispatch.queued session.spawned dispatch.succeeded dispatch.queued dispatch.succeeded"
	if err != nil || strings.Join(types, " ") != want {
		t.Errorf("events %v, %v", types, err)
	}
	status, answer := s.post(t, "ListEvents", `{"latest":true,"pageSize":1,"deliveryId":"delivery-2"}`)
	if status != http.StatusOK || !strings.Contains(answer, "dispatch.succeeded") || strings.Contains(answer, "queued") {
		t.Errorf("the newest event: %d %s", status, answer)
	}
}

// checkQuiet holds that no text of an event stands in a log or a span.
func (s *service) checkQuiet(t *testing.T, texts ...string) {
	t.Helper()
	told := s.log.String()
	files, err := filepath.Glob(filepath.Join(s.data, "traces", "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("span files %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		told += string(data)
	}
	for _, text := range texts {
		if strings.Contains(told, text) {
			t.Errorf("%q stands in a log or a span", text)
		}
	}
	if !strings.Contains(told, "deliver.Deliver") || !strings.Contains(told, `"outcome":"delivered"`) {
		t.Errorf("neither spans nor decisions are told:\n%s", told)
	}
}

func TestService_SaysWhatIsWrongWithARequest(t *testing.T) {
	s := startService(t)
	good := func(change func(*dispatcherv1.DeliverRequest)) *dispatcherv1.DeliverRequest {
		r := &dispatcherv1.DeliverRequest{
			DeliveryId: "delivery-1", WorkItem: item, Kind: dispatcherv1.EventKind_EVENT_KIND_COMMENT, Text: "hello",
		}
		change(r)
		return r
	}
	for name, row := range map[string]struct {
		request *dispatcherv1.DeliverRequest
		want    fault.Reason
	}{
		"malformed item": {good(func(r *dispatcherv1.DeliverRequest) { r.WorkItem = "octo#7" }), fault.ReasonBadWorkItem},
		"no kind":        {good(func(r *dispatcherv1.DeliverRequest) { r.Kind = 0 }), fault.ReasonBadArgument},
		"empty text":     {good(func(r *dispatcherv1.DeliverRequest) { r.Text = "\n" }), fault.ReasonTextEmpty},
		"5 MiB of text":  {good(func(r *dispatcherv1.DeliverRequest) { r.Text = strings.Repeat("x", 5<<20) }), fault.ReasonTextTooLarge},
		"bad id":         {good(func(r *dispatcherv1.DeliverRequest) { r.DeliveryId = "UPPER-CASE" }), fault.ReasonBadDeliveryID},
	} {
		_, err := s.client.Deliver(t.Context(), row.request)
		if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != row.want {
			t.Errorf("%s: %v, want %s", name, err, row.want)
		}
	}
	for name, body := range map[string]string{
		"invalid UTF-8": `{"deliveryId":"delivery-1","workItem":"github:octo/widget#7","kind":"EVENT_KIND_COMMENT","text":"a` + "\xff" + `"}`,
		"not JSON":      `{`,
		"unknown field": `{"deliveryId":"delivery-1","workItem":"github:octo/widget#7","kind":"EVENT_KIND_COMMENT","text":"a","harnes":"fake"}`,
	} {
		if status, answer := s.post(t, "Deliver", body); status != http.StatusBadRequest || !strings.Contains(answer, "invalid_argument") {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	large := strings.Repeat("x", 1<<20)
	got, err := s.client.Deliver(t.Context(), good(func(r *dispatcherv1.DeliverRequest) { r.Text = large }))
	if err != nil || got.GetDelivery().GetOutcome() != dispatcherv1.Outcome_OUTCOME_DELIVERED || s.agent.text("delivery-1") != large {
		t.Errorf("1 MiB of text: %v, %v", got.GetDelivery(), err)
	}
	_, err = s.client.Deliver(t.Context(), good(func(*dispatcherv1.DeliverRequest) {}))
	if fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
		t.Errorf("another text under the id: %v", err)
	}
}

func TestService_AnUnknownHarnessIsAnOutcome(t *testing.T) {
	s := startService(t)
	got, err := s.client.Deliver(t.Context(), &dispatcherv1.DeliverRequest{
		DeliveryId: "delivery-1", WorkItem: item, Kind: dispatcherv1.EventKind_EVENT_KIND_MESSAGE, Text: "hello", Harness: "nobody",
	})
	d := got.GetDelivery()
	if err != nil || d.GetOutcome() != dispatcherv1.Outcome_OUTCOME_FAILED || d.GetReason() != "spawn_refused" ||
		!strings.Contains(d.GetDetail(), `the harness "nobody" is not in the table`) || d.GetRemedy() != "name fake" {
		t.Errorf("%v, %v", d, err)
	}
}

func TestService_IsHealthyAndAnswersReflection(t *testing.T) {
	s := startService(t)
	answer, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", answer, err)
	}
}

// gone is a database that answers or does not.
type gone struct {
	mu  sync.Mutex
	err error
}

func (g *gone) Ping(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func TestHealth_FollowsTheDatabase(t *testing.T) {
	api, err := rpc.NewConnectServer(rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	database := &gone{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watchHealth(ctx, database, api.Health(), discard(), time.Millisecond) }()
	for _, err := range []error{fault.New(fault.Unavailable, fault.ReasonDatabase, "gone"), nil} {
		database.mu.Lock()
		database.err = err
		database.mu.Unlock()
		for limit := time.Now().Add(10 * time.Second); api.Health().Serving() != (err == nil); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("with %v it serves: %v", err, api.Health().Serving())
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPause_HoldsBackUntilItIsEnded(t *testing.T) {
	s := startService(t)
	deliver := `{"delivery_id": "delivery-1", "work_item": "` + item + `", "kind": "EVENT_KIND_MESSAGE", "text": "hello"}`
	for _, step := range []struct{ method, body, want string }{
		{"Pause", `{"all": true, "reason": "an upgrade", "who": "ann"}`, `"who":"ann"`},
		{"Pause", `{"all": true}`, `"existed":true`},
		{"Pause", `{}`, "either a work item or all"},
		{"ListPauses", `{}`, `"reason":"an upgrade"`},
		{"Deliver", deliver, `"reason":"paused"`},
		{"GetDelivery", `{"delivery_id": "delivery-1"}`, "by ann (an upgrade)"},
		{"ListDeliveries", `{"outcome": "OUTCOME_WAITING"}`, "delivery-1"},
		{"Reopen", `{"delivery_id": "delivery-1"}`, `"OUTCOME_WAITING"`},
		{"Unpause", `{"all": true}`, `"reason":"an upgrade"`},
		{"Deliver", deliver, `"OUTCOME_DELIVERED"`},
		{"Reopen", `{"delivery_id": "delivery-1"}`, "is in its conversation"},
		{"ListEvents", `{}`, `"dispatch.unpaused"`},
	} {
		if _, answer := s.post(t, step.method, step.body); !strings.Contains(strings.ReplaceAll(answer, `": "`, `":"`), step.want) {
			t.Errorf("%s %s: %s lacks %s", step.method, step.body, answer, step.want)
		}
	}
	if s.agent.text("delivery-1") == "" || s.agent.starts != 1 {
		t.Errorf("started %d times", s.agent.starts)
	}
}
