package tmux

import (
	"context"
	"errors"
	"fmt"
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

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// conn is the connection as it stands.
func (r *rig) conn() *conn {
	l := r.lines.get(target)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

func (r *rig) say(ctx context.Context, n, list string) (reply, error) {
	return r.ask(ctx, "Test", target, n, list)
}

func TestAsk_EveryRequestGetsItsOwnAnswer(t *testing.T) {
	r := newRig(t, "sleep 300")
	var wg sync.WaitGroup
	for i := range maxPending {
		wg.Go(func() {
			n := Nonce()
			list := fmt.Sprintf("display-message -p 'A|%s|%d' ; display-message -p 'END|%s'", n, i, n)
			if i%5 == 1 {
				list = fmt.Sprintf("display-message -p 'A|%s|%d' ; paste-buffer -b nosuch ; display-message -p 'END|%s'", n, i, n)
			}
			got, err := r.say(r.ctx(), n, list)
			if err != nil {
				t.Error(err)
				return
			}
			f, ok := got.find("A", n)
			_, whole := got.find(tagEnd, n)
			if !ok || f[0] != fmt.Sprint(i) || len(got.lines) != len(f)+map[bool]int{true: 0, false: 1}[i%5 == 1] || whole == (i%5 == 1) {
				t.Errorf("%d got %+v", i, got)
			}
		})
	}
	wg.Wait()
}

func TestAsk_WhatTmuxCannotReadEndsOnlyItself(t *testing.T) {
	r := newRig(t, "sleep 300")
	for _, list := range []string{"nosuch-command", "if-shell -F {", "display-message -p -t %99 x -Z"} {
		if got, err := r.say(r.ctx(), Nonce(), list); err != nil || got.stderr == "" {
			t.Errorf("%s: %+v %v", list, got, err)
		}
	}
	if r.view().Server.Pid != r.made.Server.Pid {
		t.Error("the answers came out of step")
	}
}

func TestCapture_AScreenFullOfAnswersIsText(t *testing.T) {
	r := newRig(t, `printf '%%end 1 1 1\nOK|n1\n%%exit\nEND|n0\n%%begin 1 2 1\n'; sleep 300`)
	r.until("it shows", func() bool { return strings.Contains(r.screen(), "%begin 1 2 1") })
	for _, want := range []string{"%end 1 1 1", "OK|n1", "%exit", "END|n0"} {
		if !strings.Contains(r.screen(), want) {
			t.Errorf("%q is missing:\n%s", want, r.screen())
		}
	}
}

// A stopped server answers nobody, keeps nobody waiting beyond his deadline, and answers nobody with another's answer afterwards.
func TestAsk_AStoppedServerIsSilentAndNothingGetsOutOfStep(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range maxPending + 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := r.say(ctx, Nonce(), fmt.Sprintf("display-message -p 'late %d %s'", i, strings.Repeat("x", 20000)))
		cancel()
		if !errors.Is(err, host.ErrNoAnswer) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.until("it answers again", func() bool {
		v, err := r.Observe(r.ctx(), target)
		return err == nil && v.Server.Pid == r.made.Server.Pid && len(v.Panes) == 1
	})
}

func TestAsk_AServerThatDiesIsNoticedAtOnce(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := r.say(r.ctx(), Nonce(), "display-message -p x")
		failed <- err
	}()
	r.until("the request waits", func() bool { c := r.conn(); c.mu.Lock(); defer c.mu.Unlock(); return len(c.pending) == 1 })
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if _, err := r.Observe(r.ctx(), target); !errors.Is(err, host.ErrNoAnswer) {
		t.Fatalf("a dead server answered: %v", err)
	}
}

func TestAsk_ALostClientIsReplaced(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	first := r.conn()
	if err := syscall.Kill(first.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("a look is answered over another", func() bool {
		_, err := r.Observe(r.ctx(), target)
		return err == nil && r.conn() != first
	})
}

func TestAsk_ASessionThatSomebodyRenamedIsReached(t *testing.T) {
	var hints atomic.Int32
	r := newRig(t, "sleep 300")
	r.hint = func(string) { hints.Add(1) }
	r.view()
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "rename-session", "-t", "="+target+":", "mine").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	r.until("the server tells of it", func() bool { return hints.Load() > 0 })
	if v := r.view(); v.Sessions[0] != "mine" {
		t.Fatalf("%+v", v)
	}
	r.lines.closeIdle(-1)
	if v := r.view(); v.Sessions[0] != "mine" || v.Panes[0].Stamp != stamp {
		t.Fatalf("over a new connection: %+v", v)
	}
}

func TestCloseIdle_ClosesOnlyWhatNobodyUses(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	first := r.conn()
	if !r.lines.closeIdle(time.Hour) || r.conn() != first {
		t.Fatal("one that was just used was closed")
	}
	if r.lines.closeIdle(-1) || first.usable() {
		t.Fatal("an idle one stayed open")
	}
	if r.view().Server.Pid != r.made.Server.Pid || r.conn() == first {
		t.Fatal("it was not opened again")
	}
}

// Every target that was ever spoken to has a line; what a client that is gone took must not stay there.
func TestConn_NothingIsKeptOfOneThatIsGone(t *testing.T) {
	r := newRig(t, "sleep 300")
	for name, end := range map[string]func(){
		"idle":   func() { r.lines.closeIdle(-1) },
		"killed": func() { _ = syscall.Kill(r.conn().cmd.Process.Pid, syscall.SIGKILL) },
	} {
		r.view()
		if r.conn() == nil {
			t.Fatalf("%s: there was none", name)
		}
		end()
		r.until(name+": it is let go", func() bool { return r.conn() == nil })
		if r.view().Server.Pid != r.made.Server.Pid {
			t.Fatalf("%s: the server is another one", name)
		}
	}
}

// A control client that is on its way in while the server has news for its clients (one left, a session was made) ends the server, and with
// it every agent there. A server that was stopped meets all of it at once.
func TestOpen_NeverMeetsNewsOfTheServer(t *testing.T) {
	r := newRig(t, "sleep 300")
	for i := range 8 {
		r.view()
		client := r.conn().cmd.Process.Pid
		if err := syscall.Kill(r.made.Server.Pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(client, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		person := exec.Command("tmux", "-N", "-S", r.Socket(target), "new-session", "-d", "-s", fmt.Sprint("person", i), "sleep", "300")
		if err := person.Start(); err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				defer cancel()
				_, _ = r.Observe(ctx, target)
				_, _ = r.Create(ctx, r.session("sleep 300"))
			})
		}
		asking.Wait()
		if err := syscall.Kill(r.made.Server.Pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		_ = person.Wait()
		r.until("the server answers", func() bool {
			v, err := r.Observe(r.ctx(), target)
			if zombie(r.made.Server.Pid) || errors.Is(syscall.Kill(r.made.Server.Pid, 0), syscall.ESRCH) {
				t.Fatal("the server has crashed")
			}
			return err == nil && v.Server.Pid == r.made.Server.Pid
		})
	}
}

// People set this on their own servers; ours must outlive the last client that leaves.
func TestCloseIdle_LeavesTheSessionThereWhateverAPersonSet(t *testing.T) {
	r := newRig(t, "sleep 300")
	if out, err := exec.Command("tmux", "-S", r.Socket(target), "set-option", "-g", "destroy-unattached", "on").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	r.view()
	r.lines.closeIdle(-1)
	r.until("the client has left", func() bool {
		out, err := exec.Command("tmux", "-S", r.Socket(target), "list-clients").Output()
		return err == nil && len(out) == 0
	})
	if len(r.view().Panes) != 1 {
		t.Fatal("the session is gone")
	}
}

func TestConn_TheSizeOfThePaneStays(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.view()
	if size := r.raw().must("display-message", "-p", "-t", "="+target+":", "#{pane_width}x#{pane_height}"); size != "200x50" {
		t.Errorf("it is %s", size)
	}
}

// askedFor is the environment of a process that stands for a tmuxd: the directory of the sockets that it asks.
const askedFor = "MUXPOST_TEST_ASKS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(askedFor); dir != "" {
		standIn(dir)
	}
	os.Exit(m.Run())
}

// standIn is the tmuxd that a test kills. It asks until then.
func standIn(dir string) {
	c, err := New(Config{Bin: "tmux", Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}, Tracer: noop.NewTracerProvider().Tracer("")})
	if err != nil {
		panic(err)
	}
	for {
		n := Nonce()
		_, _ = c.ask(context.Background(), "Test", target, n, "list-commands ; display-message -p 'END|"+n+"'")
	}
}

// A client that outlived its tmuxd, with an answer on its way to it, would keep the server from ending.
func TestConn_AServerEndsAlthoughItsTmuxdWasKilledInTheMiddleOfAnAnswer(t *testing.T) {
	r := newRig(t, "sleep 300")
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), askedFor+"="+filepath.Dir(r.Socket(target)))
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	clients := func() string {
		out, _ := exec.Command("tmux", "-N", "-S", r.Socket(target), "list-clients", "-F", "#{client_pid}").Output()
		return strings.TrimSpace(string(out))
	}
	r.until("it asks", func() bool { return clients() != "" })
	client, err := strconv.Atoi(strings.Fields(clients())[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = self.Wait()
	r.until("its client is gone", func() bool { return errors.Is(syscall.Kill(client, 0), syscall.ESRCH) || zombie(client) })
	r.until("the server tells nobody any more", func() bool { return clients() == "" })
}

// zombie says whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(data), ") Z ")
}
