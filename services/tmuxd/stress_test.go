package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// stress is a real tmuxd under load, and somebody who breaks things at random: agents and servers are killed, servers stopped, sockets
// removed, tmuxd itself killed and started again, windows split and scrolled.
type stress struct {
	t        *testing.T
	dir, bin string
	sessions int
	tokens   atomic.Int64

	client tmuxdv1.TmuxdServiceClient
	mu     sync.Mutex
	tmuxd  *exec.Cmd
	// ended are the agents' wrappers that were ended on purpose, directly or with their server.
	ended map[int]bool
	// started are all wrappers that were ever reported, by target.
	started map[int]string
	servers map[int]bool
}

// stressSessions is how many sessions there are unless the environment says otherwise (make stress).
const stressSessions, stressDeliveries = 30, 10

func newStress(t *testing.T, sessions int) *stress {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a minute or two")
	}
	needs.Program(t, "tmux")
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	s := &stress{t: t, dir: dir, bin: filepath.Join(dir, "bin"), sessions: sessions, ended: map[int]bool{}, started: map[int]string{}, servers: map[int]bool{}}
	for pkg, name := range map[string]string{"services/tmuxd": "muxpost-tmuxd", "cmd/muxpost-exec": "muxpost-exec"} {
		args := []string{"build", "-o", filepath.Join(s.bin, name), "muxpost.dev/muxpost/" + pkg}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", pkg, err, out)
		}
	}
	if err := os.Symlink(agenttest.Build(t), filepath.Join(s.bin, "fakeagent")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "muxpost.yaml"), fmt.Appendf(nil, "tmuxd:\n  data_dir: %s/data\n  log_level: ERROR\n", dir), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	s.startTmuxd()
	conn, err := rpc.Dial("unix:"+filepath.Join(dir, "data", "run", "tmuxd.sock"), rpc.DialOptions{Name: "tmuxd", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.client = tmuxdv1.NewTmuxdServiceClient(conn)
	return s
}

// startTmuxd starts a tmuxd; s.mu is held, or nobody else runs yet.
func (s *stress) startTmuxd() {
	s.tmuxd = exec.Command(filepath.Join(s.bin, "muxpost-tmuxd"), "--config", filepath.Join(s.dir, "muxpost.yaml"))
	s.tmuxd.Env = append(os.Environ(), "FAKEAGENT_TURN=20ms", "FAKEAGENT_READY_AFTER=50ms")
	s.tmuxd.Stderr = os.Stderr
	if err := s.tmuxd.Start(); err != nil {
		s.t.Error(err)
	}
}

func (s *stress) killTmuxd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.tmuxd.Process.Kill()
	_ = s.tmuxd.Wait()
	s.startTmuxd()
}

func (s *stress) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.tmuxd.Process.Kill()
	_ = s.tmuxd.Wait()
	for pid := range s.servers {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	for pid := range s.started {
		for deadline := time.Now().Add(10 * time.Second); running(pid) && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	_ = os.RemoveAll(s.dir)
}

func running(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func stressItem(i int) string { return "github:octo/widget#" + strconv.Itoa(i+1) }

func stressText(i, n int) string { return fmt.Sprintf("for item %d: message %d", i, n) }

func stressID(i, n int) string { return fmt.Sprintf("stress-%04d-%04d", i, n) }

// carry does what a dispatcher does with the events of one item: in order, asked again until each arrived.
func (s *stress) carry(ctx context.Context, i int) error {
	conversation := ""
	for n := range stressDeliveries {
		for ask := 0; ; ask++ {
			done, err := s.deliver(ctx, i, n, &conversation)
			if err != nil {
				return err
			}
			if done {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("item %d: message %d did not arrive within the time", i, n)
			case <-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond):
			}
		}
	}
	return nil
}

// deliver brings one delivery on by one step.
func (s *stress) deliver(ctx context.Context, i, n int, conversation *string) (bool, error) {
	item, id := stressItem(i), stressID(i, n)
	r, err := s.client.Paste(ctx, &tmuxdv1.PasteRequest{WorkItem: item, DeliveryId: id, Text: stressText(i, n), FencingToken: s.tokens.Add(1)},
		grpc.WaitForReady(true))
	if err != nil {
		return false, nil //nolint:nilerr // nobody knows what happened: it is asked about again
	}
	s.saw(r.GetTarget(), r.GetIncarnation())
	switch v := r.GetVerdict().(type) {
	case *tmuxdv1.PasteResponse_Submitted, *tmuxdv1.PasteResponse_AlreadyDelivered:
		return true, nil
	case *tmuxdv1.PasteResponse_Refused:
		if v.Refused.GetReason() != tmuxdv1.RefusalReason_REFUSAL_REASON_ABSENT && v.Refused.GetReason() != tmuxdv1.RefusalReason_REFUSAL_REASON_DEAD {
			return false, fmt.Errorf("item %d was refused: %v", i, v.Refused)
		}
		return false, s.respawn(ctx, item, conversation)
	}
	return false, nil
}

func (s *stress) respawn(ctx context.Context, item string, conversation *string) error {
	req := &tmuxdv1.SpawnRequest{WorkItem: item, Harness: "fakeagent", FencingToken: s.tokens.Add(1),
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}}
	if *conversation != "" {
		req.Conversation = &tmuxdv1.SpawnRequest_Resume{Resume: &tmuxdv1.Resume{ConversationId: *conversation}}
	}
	r, err := s.client.Spawn(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	if started := r.GetStarted(); started != nil {
		*conversation = started.GetConversationId()
		s.saw(r.GetTarget(), started.GetIncarnation())
	}
	if r.GetNotStarted() != nil {
		*conversation = "" // the resume failed: a fresh one, as a dispatcher would
	}
	return nil
}

func (s *stress) saw(target string, in *tmuxdv1.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid := int(in.GetPanePid()); pid > 0 {
		s.started[pid] = target
	}
	if pid := int(in.GetServerPid()); pid > 0 {
		s.servers[pid] = true
	}
}

// breakThings does harm at random until ctx ends. What it kills it writes down first.
func (s *stress) breakThings(ctx context.Context) (acts int) {
	for ; ; acts++ {
		select {
		case <-ctx.Done():
			return acts
		case <-time.After(time.Duration(50+rand.IntN(150)) * time.Millisecond):
		}
		if acts%40 == 39 {
			s.killTmuxd()
			continue
		}
		st, err := s.client.SessionState(ctx, &tmuxdv1.SessionStateRequest{WorkItem: stressItem(rand.IntN(s.sessions))})
		in := st.GetIncarnation()
		if err != nil || st.GetState() != tmuxdv1.State_STATE_LIVE || in.GetServerPid() == 0 || in.GetPanePid() == 0 {
			continue
		}
		s.saw(st.GetTarget(), in)
		server, wrapper := int(in.GetServerPid()), int(in.GetPanePid())
		switch rand.IntN(6) {
		case 0: // the agent dies
			s.mark(wrapper)
			if child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", wrapper, wrapper)); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(child))); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		case 1: // the server dies, with its agent
			s.mark(wrapper)
			_ = syscall.Kill(server, syscall.SIGKILL)
		case 2, 3: // the server hangs for a while
			_ = syscall.Kill(server, syscall.SIGSTOP)
			time.AfterFunc(time.Duration(rand.IntN(4000))*time.Millisecond, func() { _ = syscall.Kill(server, syscall.SIGCONT) })
		case 4: // somebody cleans up temporary files
			_ = os.Remove(st.GetSocketPath())
		case 5: // a person looks around
			for _, args := range [][]string{{"split-window", "-d", "-t", in.GetPaneId(), "sleep", "20"}, {"copy-mode", "-t", in.GetPaneId()}} {
				actCtx, cancel := context.WithTimeout(ctx, time.Second)
				_ = exec.CommandContext(actCtx, "tmux", append([]string{"-N", "-S", st.GetSocketPath()}, args...)...).Run()
				cancel()
			}
		}
	}
}

func (s *stress) mark(wrapper int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[wrapper] = true
}

// judge counts from what the agents themselves recorded.
func (s *stress) judge() (lost, doubled, crossed, harmed int) {
	got := map[string]int{}
	home := filepath.Join(s.dir, "data", "tmuxd", "harness", "fakeagent")
	err := filepath.WalkDir(filepath.Join(home, "sessions"), func(path string, d fs.DirEntry, err error) error {
		id, isTranscript := strings.CutSuffix(d.Name(), ".jsonl")
		if err != nil || !isTranscript {
			return err
		}
		lines, err := agenttest.Conversation{Home: home, Session: id}.Lines()
		if err != nil {
			return err
		}
		cwd := ""
		for _, l := range lines {
			if l.CWD != "" {
				cwd = filepath.Base(l.CWD)
			}
			if l.Type == "user" {
				got[cwd+"\n"+l.Text]++
			}
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
	for i := range s.sessions {
		ref, err := workitem.Parse(stressItem(i))
		if err != nil {
			s.t.Fatal(err)
		}
		for n := range stressDeliveries {
			key := ref.Target() + "\n" + typed(stressID(i, n), stressText(i, n))
			switch got[key] {
			case 0:
				lost++
			case 1:
			default:
				doubled++
			}
			delete(got, key)
		}
	}
	for key, n := range got {
		s.t.Logf("nobody sent this there: %q", key)
		crossed += n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range s.started {
		if !s.ended[pid] && !running(pid) {
			s.t.Logf("the agent of %s under wrapper %d ended, and nobody ended it", s.started[pid], pid)
			harmed++
		}
	}
	return lost, doubled, crossed, harmed
}

func TestStress_DeliveriesArriveOnceWhileThingsBreak(t *testing.T) {
	sessions := stressSessions
	if n, err := strconv.Atoi(os.Getenv("STRESS_SESSIONS")); err == nil && n > 0 {
		sessions = n
	}
	s := newStress(t, sessions)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	breaking, stop := context.WithCancel(ctx)
	acts := make(chan int, 1)
	go func() { acts <- s.breakThings(breaking) }()
	var carriers sync.WaitGroup
	for i := range s.sessions {
		carriers.Go(func() {
			if err := s.carry(ctx, i); err != nil {
				t.Error(err)
			}
		})
	}
	carriers.Wait()
	stop()
	broken := <-acts
	lost, doubled, crossed, harmed := s.judge()
	t.Logf("stress: sessions=%d deliveries=%d acts=%d lost=%d doubled=%d crossed=%d harmed=%d", s.sessions, s.sessions*stressDeliveries, broken,
		lost, doubled, crossed, harmed)
	if lost+doubled+crossed+harmed > 0 {
		t.Fail()
	}
}
