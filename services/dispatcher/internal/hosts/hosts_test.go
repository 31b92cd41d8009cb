package hosts

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const item = "github:octo/widget#7"

// tmuxd answers by its state.
type tmuxd struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	mu     sync.Mutex
	info   *tmuxdv1.InfoResponse
	state  *tmuxdv1.SessionStateResponse
	spawn  *tmuxdv1.SpawnResponse
	paste  *tmuxdv1.PasteResponse
	list   []*tmuxdv1.SessionSummary
	err    error
	hang   bool
	asked  []proto.Message
	infoed int
	// steps are told to each that watches; watched counts them, and stop ends every stream.
	steps   []*tmuxdv1.WatchSessionsResponse
	watched int
	stop    chan struct{}
}

func (d *tmuxd) set(change func(*tmuxd)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// answer keeps the request and returns the error that the state calls for.
func (d *tmuxd) answer(ctx context.Context, request proto.Message) error {
	d.mu.Lock()
	d.asked = append(d.asked, request)
	hang, err := d.hang, d.err
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (d *tmuxd) Info(ctx context.Context, _ *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	d.mu.Lock()
	d.infoed++
	info, hang := d.info, d.hang
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return info, nil
}

func (d *tmuxd) SessionState(ctx context.Context, r *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	return d.state, d.answer(ctx, r)
}

func (d *tmuxd) Spawn(ctx context.Context, r *tmuxdv1.SpawnRequest) (*tmuxdv1.SpawnResponse, error) {
	return d.spawn, d.answer(ctx, r)
}

func (d *tmuxd) Paste(ctx context.Context, r *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	return d.paste, d.answer(ctx, r)
}

// tokens is a sequence that remembers what it was raised above.
type tokens struct {
	mu   sync.Mutex
	last int64
	got  []int64
	err  error
}

func (s *tokens) RaiseToken(_ context.Context, above int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got, s.last = append(s.got, above), max(s.last, above)+1
	return s.last, s.err
}

// set makes the sequence end at a token, as a restored database does.
func (s *tokens) set(last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

func (s *tokens) raised() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// registry keeps records of hosts in memory.
type registry struct {
	mu  sync.Mutex
	all map[string]deliver.HostRecord
}

func (r *registry) put(record deliver.HostRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]deliver.HostRecord{}
	}
	r.all[record.Name] = record
}

func (r *registry) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, name)
}

func (r *registry) MeetHost(_ context.Context, name, instance string) (deliver.HostRecord, error) {
	r.mu.Lock()
	record := r.all[name]
	r.mu.Unlock()
	if record.Name = name; record.Instance == "" {
		record.Instance = instance
	}
	r.put(record)
	return record, nil
}

func (r *registry) Hosts(context.Context) (out []deliver.HostRecord, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.all {
		out = append(out, record)
	}
	return out, nil
}

func newTmuxd() *tmuxd {
	return &tmuxd{
		info: &tmuxdv1.InfoResponse{
			Host: "a", HighestFencingToken: 41, Harnesses: []*tmuxdv1.HarnessInfo{{Name: "claude", Resumes: true}, {Name: "cursor"}},
		},
		state: &tmuxdv1.SessionStateResponse{State: tmuxdv1.State_STATE_ABSENT},
	}
}

func serve(t *testing.T, d tmuxdv1.TmuxdServiceServer) (addr string, stop func()) {
	server := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(server, d)
	return rpctest.ServeUntil(t, server)
}

func dial(t *testing.T, name, addr string, s *tokens) *Host {
	h, err := Dial(Config{Name: name, Address: addr, Tokens: s, Registry: &registry{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// reach returns a host that is served by d until the test ends.
func reach(t *testing.T, d *tmuxd) *Host {
	addr, stop := serve(t, d)
	t.Cleanup(stop)
	return dial(t, "a", addr, &tokens{})
}

func TestProbe_TranslatesWhatTheHostSays(t *testing.T) {
	d := newTmuxd()
	started := time.Unix(1_700_000_000, 0).UTC()
	d.state = &tmuxdv1.SessionStateResponse{
		State: tmuxdv1.State_STATE_DEAD, Harness: "claude", ConversationId: "c1", Detail: "the agent's pane\n is dead", SocketPath: "/s.sock",
		Exit: &tmuxdv1.Exit{End: &tmuxdv1.Exit_Code{Code: 137}}, DeliveryPhase: tmuxdv1.Phase_PHASE_SUBMITTED,
		JournalUnreadable: true, Directory: "/d",
		Incarnation: &tmuxdv1.Incarnation{
			Stamp: "st", SessionId: "$1", PaneId: "%2", PanePid: 3, ServerPid: 4, ServerStarted: timestamppb.New(started),
		},
	}
	h := reach(t, d)
	want := deliver.Sight{
		Host: "a", Probe: dispatch.ProbeDead, Harness: "claude", ConversationID: "c1", SocketPath: "/s.sock", Directory: "/d",
		Phase: session.Submitted, JournalUnreadable: true, Detail: "the agent's pane is dead, exit code 137",
		Incarnation: deliver.Incarnation{Stamp: "st", SessionID: "$1", PaneID: "%2", PanePID: 3, ServerPID: 4, ServerStarted: started},
	}
	if got := h.Probe(t.Context(), item, "delivery-1"); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if r, ok := d.asked[0].(*tmuxdv1.SessionStateRequest); !ok || r.GetWorkItem() != item || r.GetDeliveryId() != "delivery-1" {
		t.Errorf("asked %v", d.asked)
	}
}

func TestProbe_EveryState(t *testing.T) {
	for _, row := range []struct {
		state tmuxdv1.State
		flags []tmuxdv1.Flag
		want  dispatch.Probe
	}{
		{tmuxdv1.State_STATE_UNSPECIFIED, nil, dispatch.ProbeUnknown},
		{tmuxdv1.State_STATE_UNKNOWN, nil, dispatch.ProbeUnknown},
		{tmuxdv1.State(99), nil, dispatch.ProbeUnknown},
		{tmuxdv1.State_STATE_LIVE, nil, dispatch.ProbeLive},
		{tmuxdv1.State_STATE_LIVE, []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_MOVED}, dispatch.ProbeLive},
		{tmuxdv1.State_STATE_LIVE, []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_FOREIGN}, dispatch.ProbeForeign},
		{tmuxdv1.State_STATE_LIVE, []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_DETACHED}, dispatch.ProbeDetached},
		{tmuxdv1.State_STATE_DEAD, nil, dispatch.ProbeDead},
		{tmuxdv1.State_STATE_DEAD, []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_GUESTS}, dispatch.ProbeGuests},
		{tmuxdv1.State_STATE_ABSENT, []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_UNSPECIFIED}, dispatch.ProbeAbsent},
	} {
		if got := sightOf(&tmuxdv1.SessionStateResponse{State: row.state, Flags: row.flags}).Probe; got != row.want {
			t.Errorf("%v %v is %v, want %v", row.state, row.flags, got, row.want)
		}
	}
}

func TestPhases_AreTheSameOnBothSides(t *testing.T) {
	want := map[string]bool{}
	for _, p := range session.Phases() {
		want[p.String()] = true
	}
	for number := range tmuxdv1.Phase_name {
		delete(want, phaseOf(tmuxdv1.Phase(number)).String())
	}
	if len(want) != 0 {
		t.Errorf("phases that no value stands for: %v", want)
	}
}

func TestErrors_SayWhoDidNotAnswer(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	say := func(kind fault.Kind, reason fault.Reason) error { return fault.New(kind, reason, "x") }
	for name, row := range map[string]struct {
		err   error
		probe dispatch.Probe
		spawn dispatch.Spawn
		paste dispatch.Paste
	}{
		"tmux":       {say(fault.Unavailable, fault.ReasonTmuxNoAnswer), dispatch.ProbeUnknown, dispatch.SpawnSilent, dispatch.PasteSilent},
		"storage":    {say(fault.Unavailable, fault.ReasonStorage), dispatch.ProbeUnknown, dispatch.SpawnSilent, dispatch.PasteSilent},
		"a proxy":    {say(fault.Unavailable, ""), dispatch.ProbeUnreachable, dispatch.SpawnSilent, dispatch.PasteSilent},
		"full":       {say(fault.Throttled, fault.ReasonNoCapacity), dispatch.ProbeUnknown, dispatch.SpawnNoCapacity, dispatch.PasteSilent},
		"throttled":  {say(fault.Throttled, fault.ReasonRateLimited), dispatch.ProbeUnknown, dispatch.SpawnSilent, dispatch.PasteSilent},
		"denied":     {say(fault.Denied, ""), dispatch.ProbeUnreachable, dispatch.SpawnRefused, dispatch.PasteFailed},
		"no resume":  {say(fault.Invalid, fault.ReasonCannotResume), dispatch.ProbeUnknown, dispatch.SpawnCannotResume, dispatch.PasteFailed},
		"no harness": {say(fault.Invalid, fault.ReasonUnknownHarness), dispatch.ProbeUnknown, dispatch.SpawnRefused, dispatch.PasteFailed},
		"no dir":     {say(fault.Invalid, fault.ReasonDirectoryMissing), dispatch.ProbeUnknown, dispatch.SpawnRefused, dispatch.PasteFailed},
		"other dir":  {say(fault.Invalid, fault.ReasonDirectoryOutside), dispatch.ProbeUnknown, dispatch.SpawnRefused, dispatch.PasteFailed},
		"a bug":      {say(fault.Internal, fault.ReasonPanic), dispatch.ProbeUnknown, dispatch.SpawnFailed, dispatch.PasteFailed},
	} {
		d.set(func(d *tmuxd) { d.err = row.err })
		probe := h.Probe(t.Context(), item, "")
		spawn, err := h.Spawn(t.Context(), deliver.SpawnOrder{Token: 1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		paste, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if probe.Probe != row.probe || spawn.Spawn != row.spawn || paste.Paste != row.paste {
			t.Errorf("%s: probe %v, spawn %v, paste %v", name, probe.Probe, spawn.Spawn, paste.Paste)
		}
		if probe.Detail == "" || spawn.Detail == "" || paste.Detail == "" {
			t.Errorf("%s: without words: %+v, %+v, %+v", name, probe, spawn, paste)
		}
	}
}

func TestErrors_AFenceIsAnErrorAndGreetsAgain(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	h.Probe(t.Context(), item, "")
	d.set(func(d *tmuxd) {
		d.err, d.info.HighestFencingToken = fault.New(fault.Fenced, fault.ReasonOlderToken, "older"), 99
	})
	if _, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 1}); fault.KindOf(err) != fault.Fenced {
		t.Errorf("paste: %v", err)
	}
	if _, err := h.Spawn(t.Context(), deliver.SpawnOrder{Token: 1}); fault.KindOf(err) != fault.Fenced {
		t.Errorf("spawn: %v", err)
	}
	raised := h.config.Tokens.(*tokens).raised()
	if len(raised) != 2 || raised[0] != 41 || raised[1] != 99 {
		t.Errorf("raised above %v", raised)
	}
}

func TestHost_ThatHangsIsSilentWithinTheDeadline(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	h.Probe(t.Context(), item, "")
	d.set(func(d *tmuxd) { d.hang = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := h.Probe(ctx, item, ""); got.Probe != dispatch.ProbeUnreachable {
		t.Errorf("probe %+v", got)
	}
	if got, err := h.Spawn(ctx, deliver.SpawnOrder{}); err != nil || got.Spawn != dispatch.SpawnSilent {
		t.Errorf("spawn %+v, %v", got, err)
	}
	if got, err := h.Paste(ctx, deliver.PasteOrder{}); err != nil || got.Paste != dispatch.PasteSilent {
		t.Errorf("paste %+v, %v", got, err)
	}
}

// TestHost_IsGreetedAgainAfterItWasGone stops the host and starts another process on the same address, which has seen more.
func TestHost_IsGreetedAgainAfterItWasGone(t *testing.T) {
	d := newTmuxd()
	addr, stop := serve(t, d)
	sequence := &tokens{}
	h := dial(t, "", addr, sequence)
	if h.Name() != "" {
		t.Errorf("a name before the first answer: %s", h.Name())
	}
	if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeAbsent || h.Name() != "a" {
		t.Errorf("probe %+v by %s", got, h.Name())
	}
	h.Probe(t.Context(), item, "")
	if d.infoed != 1 {
		t.Errorf("greeted %d times on one connection", d.infoed)
	}
	stop()
	if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeUnreachable || got.Detail == "" {
		t.Errorf("probe of a host that is gone: %+v", got)
	}
	again := newTmuxd()
	again.info.HighestFencingToken = 77
	listener, err := rpc.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(server, again)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	defer func() { cancel(); <-served }()
	for limit := time.Now().Add(20 * time.Second); h.Probe(t.Context(), item, "").Probe != dispatch.ProbeAbsent; {
		if time.Now().After(limit) {
			t.Fatal("the host is not reached again")
		}
	}
	if raised := sequence.raised(); len(raised) != 2 || raised[0] != 41 || raised[1] != 77 {
		t.Errorf("raised above %v", raised)
	}
}

// A host that claims to have seen what was never drawn would leave no token for any other.
func TestHost_CannotUseUpTheTokens(t *testing.T) {
	for _, claimed := range []int64{math.MaxInt64, lease.MaxToken} {
		d := newTmuxd()
		d.info.HighestFencingToken = claimed
		h := reach(t, d)
		h.Probe(t.Context(), item, "")
		if raised := h.config.Tokens.(*tokens).raised(); len(raised) != 1 || raised[0] != 0 {
			t.Errorf("it claims %d: raised above %v", claimed, raised)
		}
	}
}

func TestHost_OfAnotherNameIsNotUsed(t *testing.T) {
	d := newTmuxd()
	addr, stop := serve(t, d)
	defer stop()
	h := dial(t, "b", addr, &tokens{})
	if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeUnreachable {
		t.Errorf("probe %+v", got)
	}
	if got, err := h.Spawn(t.Context(), deliver.SpawnOrder{}); err != nil || got.Spawn != dispatch.SpawnSilent {
		t.Errorf("spawn %+v, %v", got, err)
	}
	if len(d.asked) != 0 {
		t.Errorf("it was asked %v", d.asked)
	}
}

func TestHost_IsNotUsedWhileTokensCannotBeRaised(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	h.config.Tokens.(*tokens).err = fault.New(fault.Unavailable, fault.ReasonDatabase, "no database")
	if got, err := h.Paste(t.Context(), deliver.PasteOrder{}); err != nil || got.Paste != dispatch.PasteSilent {
		t.Errorf("paste %+v, %v", got, err)
	}
	if len(d.asked) != 0 {
		t.Errorf("it was asked %v", d.asked)
	}
}

// met says whether the host has been greeted.
func met(h *Host) bool {
	_, met := h.greeted()
	return met
}

func TestWatch_GreetsBeforeAnybodyAsks(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Watch(ctx) }()
	for limit := time.Now().Add(20 * time.Second); !met(h); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the host was not greeted")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if resumes, known := h.Resumes("claude"); !resumes || !known {
		t.Error("claude resumes")
	}
	if resumes, known := h.Resumes("cursor"); resumes || !known {
		t.Error("cursor does not")
	}
	if _, known := h.Resumes("other"); known {
		t.Error("nobody named other")
	}
}
