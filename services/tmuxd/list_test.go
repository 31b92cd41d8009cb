package main

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
)

func TestListSessions_TwoHundredInPages(t *testing.T) {
	r := newRig(t, nil)
	r.sleepers()
	w := r.watched(0)
	const count = 200
	r.startMany(count)
	for n := range count {
		r.until("each is told as live", func() bool { return r.listed(itemNo(t, n+1)).State == session.Live })
	}
	client := r.overTheWire()
	var got []string
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := client.ListSessions(r.ctx(), &tmuxdv1.ListSessionsRequest{PageSize: 64, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.GetSessions() {
			got = append(got, s.GetTarget())
			if s.GetState() != tmuxdv1.State_STATE_LIVE || s.GetIncarnation().GetStamp() == "" || s.GetWorkItem() == "" || s.GetHarness() == "" ||
				s.GetSeenAt() == nil || s.GetStartedAt() == nil || s.GetSocketPath() != r.tmux.Socket(s.GetTarget()) || s.GetDetail() == "" {
				t.Errorf("%v", s)
			}
		}
		if token = page.GetNextPageToken(); (token == "") != (pages == 3) {
			t.Fatalf("page %d has the token %q", pages, token)
		}
	}
	if len(slices.Compact(slices.Clone(got))) != count || !slices.IsSorted(got) {
		t.Errorf("%d sessions: %q", len(got), got)
	}
	if info, err := client.Info(r.ctx(), &tmuxdv1.InfoRequest{}); err != nil || info.GetSessions().GetLive() != count {
		t.Errorf("%v, %v", info, err)
	}
	r.until("what is known is listed without asking tmux", func() bool {
		looks := w.looks.Load()
		page, err := client.ListSessions(r.ctx(), &tmuxdv1.ListSessionsRequest{})
		return err == nil && len(page.GetSessions()) == 100 && w.looks.Load() == looks
	})
}

func TestListSessions_RefusesWhatItDidNotGive(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	client := r.overTheWire()
	for name, req := range map[string]*tmuxdv1.ListSessionsRequest{
		"no base64":        {PageToken: "%%"},
		"another list's":   {PageToken: "czF8Z2l0aHViOm8vciMx"}, // s1|github:o/r#1
		"no target":        {PageToken: "dDF8PWE6"},             // t1|=a:
		"a negative size":  {PageSize: -1},
		"a very long page": {PageSize: 1001},
	} {
		if _, err := client.ListSessions(r.ctx(), req); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonBadArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err := client.ListSessions(r.ctx(), &tmuxdv1.ListSessionsRequest{PageSize: 1000}); err != nil || len(page.GetSessions()) != 0 {
		t.Errorf("%v, %v", page, err)
	}
}

// Anybody who reaches the server may write any bytes into an option: one session must not take the answers about all others along.
func TestListSessions_BytesThatAreNoTextSpoilNoAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watched(0)
	r.started("", "")
	w.settled(r.item, session.Live)
	client := r.overTheWire()
	for _, option := range []string{"@mux_stamp", "@mux_harness", "@mux_conversation"} {
		r.person("set-option", "-p", "-t", "="+r.item.Target()+":", option, "odd\xff\xfe")
	}
	now, err := client.SessionState(r.ctx(), &tmuxdv1.SessionStateRequest{WorkItem: r.item.String()})
	if err != nil || now.GetIncarnation().GetStamp() != "odd\uFFFD" {
		t.Fatalf("%v, %v", now, err)
	}
	r.until("it is listed so", func() bool {
		page, err := client.ListSessions(r.ctx(), &tmuxdv1.ListSessionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.GetSessions()) == 1 && page.GetSessions()[0].GetIncarnation().GetStamp() == "odd\uFFFD"
	})
}

func TestSessionState_MayBeAnsweredFromWhatWasSeenLately(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watched(0)
	r.started("", "")
	w.settled(r.item, session.Live)
	client := r.overTheWire()
	req := &tmuxdv1.SessionStateRequest{WorkItem: r.item.String(), MaxStaleness: durationpb.New(longAgo)}
	var lately *tmuxdv1.SessionStateResponse
	r.until("it is answered without a look", func() bool { // the host may be looking on its own account, at what the start was followed by
		looks := w.looks.Load()
		var err error
		if lately, err = client.SessionState(r.ctx(), req); err != nil || lately.GetState() != tmuxdv1.State_STATE_LIVE {
			t.Fatalf("%v, %v", lately, err)
		}
		return lately.GetAge().AsDuration() > 0 && w.looks.Load() == looks
	})
	for name, change := range map[string]func(*tmuxdv1.SessionStateRequest){
		"now":        func(q *tmuxdv1.SessionStateRequest) { q.MaxStaleness = nil },
		"too old":    func(q *tmuxdv1.SessionStateRequest) { q.MaxStaleness = durationpb.New(1) },
		"a delivery": func(q *tmuxdv1.SessionStateRequest) { q.DeliveryId = d1 },
	} {
		q := &tmuxdv1.SessionStateRequest{WorkItem: req.GetWorkItem(), MaxStaleness: req.GetMaxStaleness()}
		change(q)
		looks := w.looks.Load()
		now, err := client.SessionState(r.ctx(), q)
		if err != nil || now.GetState() != tmuxdv1.State_STATE_LIVE || now.GetAge() != nil || w.looks.Load() == looks {
			t.Errorf("%s: %v, %v", name, now, err)
		}
		if now.GetIncarnation().GetStamp() != lately.GetIncarnation().GetStamp() || now.GetDetail() != lately.GetDetail() {
			t.Errorf("%s: %v, and lately %v", name, now, lately)
		}
	}
	req.MaxStaleness = durationpb.New(-1)
	if _, err := client.SessionState(r.ctx(), req); fault.ReasonOf(err) != fault.ReasonBadArgument {
		t.Errorf("%v", err)
	}
}

// stream is a WatchSessions under way.
type stream struct {
	t      *testing.T
	cancel context.CancelFunc
	recv   func() (*tmuxdv1.WatchSessionsResponse, error)
	cursor string
}

func (r *rig) stream(client tmuxdv1.TmuxdServiceClient, cursor string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx())
	s, err := client.WatchSessions(ctx, &tmuxdv1.WatchSessionsRequest{Cursor: cursor})
	if err != nil {
		r.t.Fatal(err)
	}
	return &stream{t: r.t, cancel: cancel, recv: s.Recv}
}

// until reads to a step, and returns it.
func (s *stream) until(what string, found func(*tmuxdv1.WatchSessionsResponse) bool) *tmuxdv1.WatchSessionsResponse {
	s.t.Helper()
	for {
		step, err := s.recv()
		if err != nil {
			s.t.Fatalf("waited in vain for %s: %v", what, err)
		}
		s.cursor = step.GetCursor()
		if step.GetStep() == nil || s.cursor == "" {
			s.t.Errorf("a step without a word or a cursor: %v", step)
		}
		if found(step) {
			return step
		}
	}
}

func toldCaughtUp(s *tmuxdv1.WatchSessionsResponse) bool { return s.GetCaughtUp() != nil }

func told(r *rig, state tmuxdv1.State) func(*tmuxdv1.WatchSessionsResponse) bool {
	return func(s *tmuxdv1.WatchSessionsResponse) bool {
		return s.GetSession().GetTarget() == r.item.Target() && s.GetSession().GetState() == state
	}
}

func TestWatchSessions_TellsLivesAndDeathsAndResumesByCursor(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watched(0)
	client := r.overTheWire()
	first := r.stream(client, "")
	first.until("an empty beginning", toldCaughtUp)
	of := r.started("", "").Incarnation
	live := first.until("the start", told(r, tmuxdv1.State_STATE_LIVE)).GetSession()
	if live.GetIncarnation().GetStamp() != of.Stamp || live.GetWorkItem() != r.item.String() {
		t.Errorf("%v", live)
	}
	w.settled(r.item, session.Live)
	first.cancel()

	r.signal(r.agentPid(), syscall.SIGKILL)
	second := r.stream(client, first.cursor)
	dead := second.until("what was missed meanwhile", told(r, tmuxdv1.State_STATE_DEAD)).GetSession()
	if dead.GetExit().GetEnd() == nil {
		dead = second.until("how it ended", func(s *tmuxdv1.WatchSessionsResponse) bool { return s.GetSession().GetExit().GetEnd() != nil }).GetSession()
	}
	if dead.GetIncarnation().GetStamp() != of.Stamp {
		t.Errorf("%v", dead)
	}
	second.cancel()

	// A cursor of another life begins at the beginning.
	w.stop()
	r.restart()
	r.watched(0)
	client = r.overTheWire()
	third := r.stream(client, second.cursor)
	begins := 0
	third.until("the end of the beginning", func(s *tmuxdv1.WatchSessionsResponse) bool {
		if s.GetSession().GetTarget() == r.item.Target() {
			begins++
		}
		return toldCaughtUp(s)
	})
	if begins == 0 {
		t.Error("the session is not told to who begins anew")
	}
	third.cancel()
	bad := r.stream(client, "nonsense")
	if _, err := bad.recv(); !errors.Is(err, fault.Invalid) && !strings.Contains(err.Error(), "InvalidArgument") {
		t.Errorf("%v", err)
	}
}

func TestWatchSessions_ASlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watched(0)
	r.started("", "")
	w.settled(r.item, session.Live)
	hang, goOn := make(chan struct{}), make(chan struct{})
	var after []host.Step
	done := make(chan error, 1)
	enough := errors.New("enough")
	go func() {
		done <- w.Follow(r.ctx(), "", func(s host.Step) error {
			if s.CaughtUp {
				close(hang)
				<-goOn // it reads no further
				return nil
			}
			if after = append(after, s); s.Session != nil && s.Session.State == session.Dead {
				return enough
			}
			return nil
		})
	}()
	<-hang
	target := r.item.Target()
	for range 3 {
		r.person("rename-session", "-t", "="+target+":", "mine")
		r.until("the move is told", func() bool { return r.listed(r.item).Flags.Has(session.Moved) })
		r.person("rename-session", "-t", "=mine:", target)
		r.until("it is told to be back", func() bool { return r.listed(r.item).Flags == 0 })
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.until("its end is told", func() bool { s := r.listed(r.item); return s.State == session.Dead && s.Exit.Known })
	close(goOn)
	if err := <-done; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	// The first is what began the stream.
	if len(after) != 3 || after[1].Missed < 6 || after[2].Session == nil {
		t.Errorf("%+v", after)
	}
}

func TestWatchSessions_EndsWithTheService(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	s := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(s, server.New(r.Host, r.Logger, server.Facts{}, r.tmux.Socket))
	addr, stop := rpctest.ServeUntil(t, s)
	client := tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(t, addr, rpc.DialOptions{Name: "tmuxd"}))
	reading := r.stream(client, "")
	reading.until("the beginning", toldCaughtUp)
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > rpc.DefaultStopTimeout/2 {
		t.Errorf("the stop took %v", took)
	}
	if _, err := reading.recv(); err == nil {
		t.Error("the stream goes on")
	}
}

// A client that was given more than fits on its way, and reads nothing of it, is not waited for.
func TestWatchSessions_AClientThatNeverReadsDoesNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	long := strings.Repeat("c", 4096)
	for n := range 500 {
		if err := r.disk.Remember(host.Memory{Target: itemNo(t, n+1).Target(), WorkItem: itemNo(t, n+1).String(), Stamp: "s00000000",
			Conversation: long}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Adopt(r.ctx()); err != nil {
		t.Fatal(err)
	}
	s := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(s, server.New(r.Host, r.Logger, server.Facts{}, r.tmux.Socket))
	addr, stop := rpctest.ServeUntil(t, s)
	client := tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(t, addr, rpc.DialOptions{Name: "tmuxd"}))
	reading := r.stream(client, "")
	defer reading.cancel()
	if _, err := reading.recv(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > rpc.DefaultStopTimeout/2 {
		t.Errorf("the stop took %v", took)
	} else {
		t.Logf("the stop took %v", took)
	}
}

func TestInfo_TellsWhatTheHostHasAndWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := surroundings{tmuxVersion: "tmux 3.3a", stateDir: dir}.machine()
	if m.CPUs < 1 || m.MemoryAvailable < 1<<20 || m.StorageAvailable < 1<<20 || len(m.Warnings) < 1 {
		t.Errorf("%+v", m)
	}
	for version, old := range map[string]bool{"tmux 3.3a": true, "tmux 3.3": true, "tmux 2.9a": true, "tmux next-3.4": false, "tmux 3.4": false,
		"tmux 3.5a": false, "tmux 3.10": false, "tmux 4.0": false, "tmux openbsd-7.4": false, "tmux master": false, "": false} {
		if got := oldTmux(version); (got != "") != old {
			t.Errorf("%s: %q", version, got)
		}
	}
	linger := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	unit := "0::/user.slice/user-1000.slice/user@1000.service/app.slice/muxpost-tmuxd.service\n"
	if got := noLinger(unit, linger); !strings.Contains(got, "enable-linger") {
		t.Errorf("%q", got)
	}
	for _, cgroup := range []string{"0::/system.slice/muxpost-tmuxd.service\n", "0::/user.slice/user-1000.slice/session-3.scope\n", ""} {
		if got := noLinger(cgroup, linger); got != "" {
			t.Errorf("%s: %q", cgroup, got)
		}
	}
	if err := os.WriteFile(filepath.Join(linger, me.Username), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := noLinger(unit, linger); got != "" {
		t.Errorf("a user who lingers: %q", got)
	}
	for path, warned := range map[string]bool{"/tmp/x": true, "/var/tmp/x": true, "/dev/shm": true, "/tmpx": false, "/": false} {
		if got := fleeting(path); (got != "") != warned {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, row := range []struct {
		sockets, state string
		warned         bool
	}{
		{"/tmp/mux", "/var/lib/muxpost/tmuxd", true}, {"/var/tmp/mux", "/tmp/x/tmuxd", true}, {"/tmp/x/tmuxd", "/tmp/x/tmuxd", false},
		{"/tmp/x/tmuxd/s", "/tmp/x/tmuxd", false}, {"/tmp/xy", "/tmp/x", true}, {"/dev/shm/mux", "/var/lib/muxpost/tmuxd", false},
	} {
		if got := fleetingSockets(row.sockets, row.state); (got != "") != row.warned {
			t.Errorf("%+v: %q", row, got)
		}
	}
}

func TestWarnings_OfATmuxdThatAnAgentStarted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		stamp, launcher string
		warned          bool
	}{{"s1", "", true}, {"", "", false}, {"s1", "/run/muxpost-agents.sock", false}} {
		all := strings.Join(surroundings{stateDir: t.TempDir(), stamp: row.stamp, launcher: row.launcher}.warnings(), "\n")
		if strings.Contains(all, "inside an agent's session") != row.warned {
			t.Errorf("%+v: %q", row, all)
		}
	}
}

func TestWarnings_OfAServiceWhoseStopEndsTheAgents(t *testing.T) {
	const system, user = "0::/system.slice/muxpost.service\n", "4:memory:/x\n0::/user.slice/user-1000.slice/user@1000.service/app.slice/muxpost.service\n"
	for _, c := range []struct {
		group, launcher, mode, want string
	}{
		{system, "", "control-group", "KillMode=control-group"},
		{user, "", "mixed", "KillMode=mixed"},
		{"7:pids:/a.service\n1:name=systemd:/system.slice/old.service\n", "", "", "unless it says KillMode=process"},
		{system, "", "process", ""},
		{system, "/run/launcher", "control-group", ""},
		{"0::/user.slice/user-0.slice/session-3.scope\n", "", "control-group", ""},
		{"0::/\n", "", "control-group", ""},
	} {
		got := sharedUnit(c.group, c.launcher, func(unit string, ofUser bool) string {
			if !strings.HasSuffix(unit, ".service") || ofUser != (c.group == user) {
				t.Errorf("asked of %s, a user's: %v", unit, ofUser)
			}
			return c.mode
		})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := noLauncher(filepath.Join(t.TempDir(), "none")); !strings.Contains(got, "muxpost-agents.socket") {
		t.Errorf("no launcher: %q", got)
	}
	if got := noLauncher(t.TempDir()) + noLauncher(""); got != "" {
		t.Errorf("a launcher, and none wanted: %q", got)
	}
}
