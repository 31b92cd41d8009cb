package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
)

// reading is the rig's tmux, with a count of the questions that go to a server.
type reading struct {
	host.Tmux
	names, views atomic.Int32
	// unread has the server answer without its panes.
	unread bool
}

func (r *reading) Names(ctx context.Context, target string) ([]string, error) {
	r.names.Add(1)
	return r.Tmux.Names(ctx, target)
}

func (r *reading) Observe(ctx context.Context, target string) (host.View, error) {
	r.views.Add(1)
	v, err := r.Tmux.Observe(ctx, target)
	if r.unread {
		v.Panes, v.PanesRead = nil, false
	}
	return v, err
}

// readersRow is a session in some state, and what the two readers say of it.
type readersRow struct {
	// has brings the session there.
	has    func(*rig)
	exists session.Existence
	talk   bool
	state  session.State
	flags  session.Flags
	// says is in the line that Exists gives.
	says string
}

// withAgent has a living agent, and returns its server's process.
func (r *rig) withAgent() (server int) {
	r.t.Helper()
	server = r.started("", "").Incarnation.Server.Pid
	r.ready()
	return server
}

// withoutServer kills the server, and waits until the agent is gone with it.
func (r *rig) withoutServer() {
	r.t.Helper()
	r.signal(r.withAgent(), syscall.SIGKILL)
	r.becomes(session.Absent)
}

// withoutSocket removes the address of a living server.
func (r *rig) withoutSocket() {
	r.t.Helper()
	if err := os.Remove(r.tmux.Socket(r.item.Target())); err != nil {
		r.t.Fatal(err)
	}
}

// outlived has an agent that lives on without its session: its server was killed, and its wrapper is stopped before it can end it.
func (r *rig) outlived() {
	r.t.Helper()
	r.entry.Binary, r.entry.Fresh = "/bin/sh", []string{"-c", "trap '' HUP TERM; while :; do sleep 0.1; done", "{conversation_id}"}
	r.restart()
	of := r.started("", "").Incarnation
	r.signal(of.Server.Pid, syscall.SIGKILL)
	r.signal(of.PanePid, syscall.SIGSTOP)
	r.t.Cleanup(func() { _ = syscall.Kill(of.PanePid, syscall.SIGCONT) })
	r.until("the server is gone", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
	// Its socket is closed a moment before its process has ended.
	r.until("its process too", func() bool { return r.state().State != session.Unknown })
}

func readersRows() map[string]readersRow {
	target := func(r *rig) string { return "=" + r.item.Target() + ":" }
	return map[string]readersRow{
		"no session ever": {func(*rig) {}, session.Gone, false, session.Absent, 0, "ever started"},
		"alive":           {func(r *rig) { r.withAgent() }, session.Exists, true, session.Live, 0, ""},
		"alive, with a person's pane": {func(r *rig) {
			r.withAgent()
			r.person("split-window", "-d", "-t", target(r), "cat")
		}, session.Exists, true, session.Live, 0, ""},
		"dead, its remains retained": {func(r *rig) {
			r.withAgent()
			r.signal(r.agentPid(), syscall.SIGKILL)
			r.becomes(session.Dead)
		}, session.Exists, false, session.Dead, 0, ""},
		"dead, with a guest": {func(r *rig) {
			r.withAgent()
			r.person("split-window", "-d", "-t", target(r), "cat")
			r.signal(r.agentPid(), syscall.SIGKILL)
			r.becomes(session.Dead)
		}, session.Exists, false, session.Dead, session.Guests, ""},
		"foreign": {func(r *rig) {
			r.withAgent()
			r.person("set-option", "-u", "-t", target(r), "@mux_stamp")
			r.person("set-option", "-pu", "-t", target(r), "@mux_stamp")
		}, session.Exists, true, session.Live, session.Foreign, ""},
		"moved to another name": {func(r *rig) {
			r.withAgent()
			r.person("rename-session", "-t", target(r), r.item.Target()+"-mine")
		}, session.Exists, true, session.Live, session.Moved, "lives on"},
		"detached": {func(r *rig) { r.outlived() }, session.Exists, true, session.Live, session.Detached, "lives on"},
		"ended, and names that are like it stay": {func(r *rig) {
			r.withAgent()
			for _, name := range []string{r.item.Target() + "0", "x" + r.item.Target(), "loop-*"} {
				r.person("new-session", "-d", "-s", name, "cat")
			}
			r.person("kill-session", "-t", target(r))
			r.becomes(session.Absent)
		}, session.Gone, false, session.Absent, 0, "no session of this name"},
		"the server is gone": {func(r *rig) { r.withoutServer() }, session.Gone, false, session.Absent, 0, "is gone"},
		"the server is stopped": {func(r *rig) { r.signal(r.withAgent(), syscall.SIGSTOP) },
			session.CannotTell, true, session.Unknown, 0, "did not answer"},
		"the socket was deleted, and the server makes it again": {func(r *rig) {
			r.withAgent()
			r.withoutSocket()
		}, session.Exists, true, session.Live, 0, ""},
		"the socket was deleted, and the server is stopped": {func(r *rig) {
			r.signal(r.withAgent(), syscall.SIGSTOP)
			r.withoutSocket()
		}, session.CannotTell, true, session.Unknown, 0, "process lives"},
		"the socket cannot be reached": {func(r *rig) {
			r.withAgent()
			socket := r.tmux.Socket(r.item.Target())
			if err := errors.Join(os.Rename(socket, socket+".away"), os.Symlink(socket, socket)); err != nil {
				r.t.Fatal(err)
			}
		}, session.CannotTell, true, session.Unknown, 0, "did not answer"},
		"the server is gone, and what is remembered of it cannot be read": {func(r *rig) {
			r.withoutServer()
			file := filepath.Join(r.dir, "state", "sessions", r.item.Target()+".json")
			if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
				r.t.Fatal(err)
			}
		}, session.CannotTell, true, session.Unknown, 0, "cannot be read"},
	}
}

func TestReaders_SayOfEveryStateWhatTheTableSays(t *testing.T) {
	t.Parallel()
	for name, row := range readersRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			row.has(r)
			asked := &reading{Tmux: r.Tmux}
			r.Tmux = asked
			p := r.Exists(r.ctx(), r.item)
			if p.Existence != row.exists || !strings.Contains(p.Detail, row.says) || p.Detail == "" || p.Target != r.item.Target() {
				t.Errorf("exists: %+v", p)
			}
			if names, views := asked.names.Load(), asked.views.Load(); names > 1 || views != 0 {
				t.Errorf("exists asked %d times for names and %d times for panes", names, views)
			}
			// What is changing is looked at again; then one question is enough.
			r.until("it is quiet", func() bool {
				asked.views.Store(0)
				st, may, err := r.MayTalk(r.ctx(), r.item)
				if err != nil || may != row.talk || st.State != row.state || st.Flags != row.flags || st.Detail == "" {
					t.Fatalf("may talk: %v, %+v, %v", may, st, err)
				}
				return asked.views.Load() <= 1
			})
		})
	}
}

func TestReaders_ASessionWhosePanesCannotBeReadIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.withAgent()
	r.Tmux = &reading{Tmux: r.Tmux, unread: true}
	if p := r.Exists(r.ctx(), r.item); p.Existence != session.Exists {
		t.Errorf("%+v", p)
	}
	if st, may, err := r.MayTalk(r.ctx(), r.item); err != nil || !may || st.State != session.Unknown {
		t.Errorf("%v, %+v, %v", may, st, err)
	}
}

// overTheWire serves the rig's host as tmuxd does.
func (r *rig) overTheWire() tmuxdv1.TmuxdServiceClient {
	s := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(s, server.New(r.Host, r.Logger, server.Facts{
		Host: "a", StateDir: r.dir, Storage: r.disk.Writable,
	}, r.tmux.Socket))
	return tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(r.t, rpctest.Serve(r.t, s), rpc.DialOptions{Name: "tmuxd"}))
}

func TestReaders_OverTheWire(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	pid := r.withAgent()
	client := r.overTheWire()
	item := "github:Octo/Widget#7"
	exists, err := client.SessionExists(r.ctx(), &tmuxdv1.SessionExistsRequest{WorkItem: item})
	if err != nil || exists.GetExistence() != tmuxdv1.Existence_EXISTENCE_YES || exists.GetTarget() != r.item.Target() ||
		exists.GetSocketPath() != r.tmux.Socket(r.item.Target()) || exists.GetDetail() == "" {
		t.Errorf("%v, %v", exists, err)
	}
	talk, err := client.SessionMayTalk(r.ctx(), &tmuxdv1.SessionMayTalkRequest{WorkItem: item})
	if err != nil || !talk.GetMayTalk() || talk.GetState() != tmuxdv1.State_STATE_LIVE || len(talk.GetFlags()) != 0 {
		t.Errorf("%v, %v", talk, err)
	}
	r.signal(pid, syscall.SIGSTOP)
	if exists, err = client.SessionExists(r.ctx(), &tmuxdv1.SessionExistsRequest{WorkItem: item}); err != nil ||
		exists.GetExistence() != tmuxdv1.Existence_EXISTENCE_CANNOT_TELL {
		t.Errorf("%v, %v", exists, err)
	}
	if exists, err = client.SessionExists(r.ctx(), &tmuxdv1.SessionExistsRequest{WorkItem: "github:octo/widget#8"}); err != nil ||
		exists.GetExistence() != tmuxdv1.Existence_EXISTENCE_NO {
		t.Errorf("%v, %v", exists, err)
	}
	for _, bad := range []string{"", "octo#7"} {
		_, existsErr := client.SessionExists(r.ctx(), &tmuxdv1.SessionExistsRequest{WorkItem: bad})
		_, talkErr := client.SessionMayTalk(r.ctx(), &tmuxdv1.SessionMayTalkRequest{WorkItem: bad})
		for _, err := range []error{existsErr, talkErr} {
			if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonBadWorkItem {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func TestFence_OverTheWire(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	client := r.overTheWire()
	got, err := client.RaiseFence(r.ctx(), &tmuxdv1.RaiseFenceRequest{Floor: 50})
	if err != nil || got.GetFloor() != 50 || got.GetHighestFencingToken() != 50 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = client.RaiseFence(r.ctx(), &tmuxdv1.RaiseFenceRequest{Floor: 7}); err != nil || got.GetFloor() != 50 {
		t.Errorf("a lower one: %v, %v", got, err)
	}
	// The reason tells a floor that is refused from a tmuxd that knows no floors.
	if _, err := client.RaiseFence(r.ctx(), &tmuxdv1.RaiseFenceRequest{}); fault.ReasonOf(err) != fault.ReasonBadArgument {
		t.Errorf("none: %v", err)
	}
	info, err := client.Info(r.ctx(), &tmuxdv1.InfoRequest{})
	if err != nil || info.GetFencingFloor() != 50 || info.GetHighestFencingToken() != 50 {
		t.Errorf("%v, %v", info, err)
	}
	_, err = client.Paste(r.ctx(), &tmuxdv1.PasteRequest{WorkItem: r.item.String(), DeliveryId: d1, Text: "hello there", FencingToken: 49})
	if !errors.Is(err, fault.Fenced) || !strings.Contains(err.Error(), "49 is older than 50, the floor of this host") {
		t.Errorf("paste: %v", err)
	}
}
