package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
)

// sink is a program that takes everything and shows nothing.
const sink = "stty raw -echo; exec cat >/dev/null"

// configuration adds the sink to the bundled agent: it is for everything in which the agent itself is not measured.
const configuration = `tmuxd:
  data_dir: %[1]s/data
  log_level: ERROR
  harnesses:
    sink:
      binary: /bin/sh
      fresh: ["-c", %[2]q]
      prompt: "^(nothing)$"
      survival: 1ns
`

// agents is how many bundled agents take whole deliveries.
const agents = 4

// theHost is a tmuxd with its sessions.
type theHost struct {
	tmuxdv1.TmuxdServiceClient
	cmd   *exec.Cmd
	conn  *grpc.ClientConn
	tmux  *tmux.Client
	data  string
	count int
	token int64
	ids   int
	// stamps are the incarnations, by item.
	stamps map[int]string
}

func startHost(ctx context.Context, dir string) (*theHost, error) {
	bin := filepath.Join(dir, "bin")
	progress("building")
	for _, pkg := range []string{"services/tmuxd", "cmd/muxpost-exec", "test/fakeagent"} {
		name := map[string]string{"services/tmuxd": "muxpost-tmuxd"}[pkg]
		if name == "" {
			name = filepath.Base(pkg)
		}
		out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, name), "muxpost.dev/muxpost/"+pkg).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
		}
	}
	file := filepath.Join(dir, "muxpost.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, dir, sink), 0o600); err != nil {
		return nil, err
	}
	h := &theHost{data: filepath.Join(dir, "data"), stamps: map[int]string{}, token: 1}
	h.cmd = exec.Command(filepath.Join(bin, "muxpost-tmuxd"), "--config", file) //nolint:noctx // it is ended in order
	h.cmd.Stderr = os.Stderr
	h.cmd.Env = append(os.Environ(), "FAKEAGENT_TURN=1ms", "FAKEAGENT_READY_AFTER=1ms", "FAKEAGENT_PASTE_SETTLE=0s")
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	var err error
	if h.conn, err = rpc.Dial("unix:"+filepath.Join(h.data, "run", "tmuxd.sock"), rpc.DialOptions{Name: "tmuxd"}); err != nil {
		return nil, err
	}
	h.TmuxdServiceClient = tmuxdv1.NewTmuxdServiceClient(h.conn)
	if _, err := h.Info(ctx, &tmuxdv1.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	// A second way to the same servers, for the measure of a list alone.
	h.tmux, err = tmux.New(tmux.Config{Bin: "tmux", Dir: filepath.Join(h.data, "tmuxd"), Tracer: noop.NewTracerProvider().Tracer("")})
	return h, err
}

// end ends tmuxd, and then the agents' servers, which it leaves alone.
func (h *theHost) end() {
	h.tmux.Close()
	pids := map[int]bool{}
	for i := range h.stamps {
		if m, err := h.state(context.Background(), i, 0); err == nil {
			pids[int(m.GetIncarnation().GetServerPid())] = true
		}
	}
	_ = h.conn.Close()
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	_ = h.cmd.Wait()
	for pid := range pids {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

func item(i int) string { return "github:octo/widget#" + strconv.Itoa(i+1) }

func (h *theHost) nextToken() int64 { h.token++; return h.token }

func (h *theHost) nextID() string { h.ids++; return fmt.Sprintf("bench-delivery-%06d", h.ids) }

// spawn starts a session: the first few are agents, the rest sinks.
func (h *theHost) spawn(ctx context.Context) error {
	harness := "sink"
	if h.count < agents {
		harness = "fakeagent"
	}
	i := h.count
	r, err := h.Spawn(ctx, &tmuxdv1.SpawnRequest{WorkItem: item(i), Harness: harness, FencingToken: h.nextToken(),
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}})
	if err != nil {
		return err
	}
	started := r.GetStarted()
	if started == nil {
		return fmt.Errorf("not started: %v", r)
	}
	h.stamps[i] = started.GetIncarnation().GetStamp()
	h.count++
	return nil
}

func (h *theHost) grow(ctx context.Context, n int) error {
	for h.count < n {
		if err := h.spawn(ctx); err != nil {
			return err
		}
		if h.count%100 == 0 {
			progress("%d started", h.count)
		}
	}
	return nil
}

// terminate ends the newest session.
func (h *theHost) terminate(ctx context.Context) error {
	i := h.count - 1
	r, err := h.Terminate(ctx, &tmuxdv1.TerminateRequest{WorkItem: item(i), IncarnationStamp: h.stamps[i], FencingToken: h.nextToken(), Reason: "bench"})
	if err != nil {
		return err
	}
	if r.GetTerminated() == nil {
		return fmt.Errorf("not terminated: %v", r)
	}
	return nil
}

// drop removes what is retained of the newest session.
func (h *theHost) drop(ctx context.Context) error {
	i := h.count - 1
	r, err := h.Kill(ctx, &tmuxdv1.KillRequest{WorkItem: item(i), IncarnationStamp: h.stamps[i], FencingToken: h.nextToken(), Reason: "bench"})
	if err != nil {
		return err
	}
	if r.GetKilled() == nil {
		return fmt.Errorf("not removed: %v", r)
	}
	delete(h.stamps, i)
	h.count--
	return nil
}

func (h *theHost) state(ctx context.Context, i int, staleness time.Duration) (*tmuxdv1.SessionStateResponse, error) {
	req := &tmuxdv1.SessionStateRequest{WorkItem: item(i)}
	if staleness > 0 {
		req.MaxStaleness = durationpb.New(staleness)
	}
	return h.SessionState(ctx, req)
}

// maxHeld is how often a delivery may be held, by an agent whose turn lasts a millisecond.
const maxHeld = 1000

// deliver is a whole delivery into an agent, asked again while the agent is at work.
func (h *theHost) deliver(ctx context.Context, i int, text string) error {
	id := h.nextID()
	for held := 1; ; held++ {
		r, err := h.Paste(ctx, &tmuxdv1.PasteRequest{WorkItem: item(i), DeliveryId: id, Text: text, FencingToken: h.nextToken()})
		switch {
		case err != nil:
			return err
		case r.GetSubmitted() != nil || r.GetAlreadyDelivered() != nil:
			return nil
		case r.GetHeld() == nil:
			return fmt.Errorf("not delivered: %v", r)
		case held == maxHeld:
			return fmt.Errorf("held %d times: %v", held, r)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// aim makes the guard for a list into a session, as tmuxd would.
func (h *theHost) aim(ctx context.Context, i int) (target string, g host.Guard, err error) {
	ref, err := workitem.Parse(item(i))
	if err != nil {
		return "", g, err
	}
	target = ref.Target()
	v, err := h.tmux.Observe(ctx, target)
	if err != nil {
		return "", g, err
	}
	if len(v.Panes) != 1 {
		return "", g, errors.New("the session has not one pane")
	}
	p := v.Panes[0]
	return target, host.Guard{Stamp: p.Stamp, Pane: p.ID, Pid: p.Pid, Session: p.SessionID, Generation: v.Generation, Token: 1 << 40,
		NotAfter: time.Now().Add(time.Hour)}, nil
}

// list is the guarded list of a paste alone.
func (h *theHost) list(ctx context.Context, target string, g host.Guard, text string) error {
	id := h.nextID()
	r, err := h.tmux.Paste(ctx, target, g, host.Text{ID: id, Typed: text, Ring: session.Ring{}.With(id, session.Pasted)})
	if err != nil {
		return err
	}
	if r != host.Done {
		return fmt.Errorf("the guard refused: %d", r)
	}
	return nil
}
