package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
	"muxpost.dev/muxpost/test/stack"
)

// second is another tmuxd, as one on another machine, with directories of its own.
type second struct {
	dir    string
	cmd    *exec.Cmd
	client tmuxdv1.TmuxdServiceClient
}

func (s *second) socket() string { return filepath.Join(s.dir, "t.sock") }

// startSecond starts one under a name and ends it with the test, with its agents.
func startSecond(w *world, name string) *second {
	w.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		w.t.Fatal(err)
	}
	s := &second{dir: dir}
	config := fmt.Sprintf("tmuxd: {host: %s, data_dir: %s, listen: 'unix:%s', make_directory: true}\n", name, dir, s.socket())
	file := filepath.Join(dir, "m.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	s.cmd = exec.Command(filepath.Join(w.Bin, "muxpost-tmuxd"), "--config", file)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
		(&stack.Stack{Dir: dir}).EndAgents()
		_ = os.RemoveAll(dir)
	})
	conn, err := rpc.Dial("unix:"+s.socket(), rpc.DialOptions{Name: "the second host"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	s.client = tmuxdv1.NewTmuxdServiceClient(conn)
	return s
}

// says waits until a command prints what a pattern matches.
func (w *world) says(want string, args ...string) {
	w.t.Helper()
	var out string
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		if out, _ = w.Run(w.ctx, args...); regexp.MustCompile(want).MatchString(out) {
			return
		}
	}
	w.t.Fatalf("muxpost %s does not say %q:\n%s", strings.Join(args, " "), want, out)
}

// The story of a host that is given up: an item stays on it as long as it may come back, and begins anew elsewhere by a person's order alone. The
// agent that was left behind lives on and gets nothing more, until a person ends it.
func TestHosts_AHostIsAddedDrainedGivenUpAndComesBack(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	first, spawned := w.delivered(0)
	if spawned.GetHost() != "laptop" {
		t.Fatalf("%v", spawned)
	}
	other := startSecond(w, "attic")
	if out, err := w.Run(w.ctx, "hosts", "add", "attic", "unix:"+other.socket()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.says("attic +reached", "hosts")

	// Drained: the living agent goes on, and a new item starts on the other host.
	if out, err := w.Run(w.ctx, "hosts", "drain", "laptop", "--by", "ann", "--reason", "new disks"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.says("draining by ann: new disks", "hosts")
	w.comment(stack.Author, "Still there?")
	second, _ := w.delivered(1)
	w.took(spawned.GetConversationId(), first.GetDeliveryId(), second.GetDeliveryId())
	if out, err := w.Run(w.ctx, "send", "--wait", stack.Item(8), "a new item"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s, err := w.Session(w.ctx, stack.Item(8)); err != nil || s.GetHost() != "attic" {
		t.Fatalf("%v, %v", s, err)
	}

	// Gone: what is for its agent waits, and nothing starts elsewhere.
	pid := w.pid("tmuxd")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw := func() {
		if frozen {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			frozen = false
		}
	}
	t.Cleanup(thaw)
	w.comment(stack.Author, "Are you there?")
	w.says("host_unreachable", "explain", item)
	if out, err := w.Run(w.ctx, "hosts", "forget", "laptop"); err == nil || !strings.Contains(out, "evacuate") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "hosts", "evacuate", "laptop"); err == nil || !strings.Contains(out, "--yes") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "hosts", "evacuate", "laptop", "--yes", "--reason", "it burned"); err != nil || !strings.Contains(out, "moved    "+item) {
		t.Fatalf("%v\n%s", err, out)
	}
	third, anew := w.delivered(2)
	if anew.GetHost() != "attic" || anew.GetHow() != dispatcherv1.How_HOW_RESPAWNED_FRESH || anew.GetConversationId() == spawned.GetConversationId() {
		t.Errorf("%v", anew)
	}
	texts, err := agenttest.Conversation{Home: filepath.Join(other.dir, "tmuxd", "harness", "fakeagent"), Session: anew.GetConversationId()}.Texts("user")
	if err != nil || len(texts) != 1 || !strings.Contains(texts[0], "Are you there?") {
		t.Errorf("%q, %v; it is delivery %s", texts, err, third.GetDeliveryId())
	}

	// Back: its agent is nobody's. It lives, and gets nothing more.
	thaw()
	w.says("laptop +draining", "hosts")
	w.comment(stack.Author, "And now?")
	if _, d := w.delivered(3); d.GetHost() != "attic" {
		t.Errorf("%v", d)
	}
	w.took(spawned.GetConversationId(), first.GetDeliveryId(), second.GetDeliveryId())
	if st := w.state(); st.GetState() != tmuxdv1.State_STATE_LIVE {
		t.Errorf("%v", st)
	}
	w.says(item, "hosts", "superseded")
	if out, err := w.Run(w.ctx, "stop", item, "--superseded-on", "laptop"); err != nil || !strings.Contains(out, "is over") {
		t.Errorf("%v\n%s", err, out)
	}
	if st := w.state(); st.GetState() != tmuxdv1.State_STATE_DEAD {
		t.Errorf("%v", st)
	}
	if s, err := w.Session(w.ctx, item); err != nil || s.GetHost() != "attic" || s.GetState() != dispatcherv1.SessionState_SESSION_STATE_LIVE {
		t.Errorf("its own session was touched: %v, %v", s, err)
	}
	w.says("no session was left behind", "hosts", "superseded")
	if out, err := w.Run(w.ctx, "hosts", "undrain", "laptop"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	w.says("laptop +reached", "hosts")
}
