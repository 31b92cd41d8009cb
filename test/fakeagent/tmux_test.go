package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// asAgent is set in the environment of a test binary that is to be the agent itself, so that no build is needed.
const asAgent = "FAKEAGENT_TEST_AS_AGENT"

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

// pane is an agent in a pane of a tmux server of its own.
type pane struct {
	agenttest.Conversation
	t      *testing.T
	socket string
	env    []string
}

// newPane prepares a private tmux server; start starts the agent in it.
func newPane(t *testing.T) *pane {
	t.Helper()
	needs.Program(t, "tmux")
	// The path of a socket has room for about 100 bytes, which the directory of a test with a long name would exceed.
	dir, err := os.MkdirTemp("", "fa")
	if err != nil {
		t.Fatal(err)
	}
	p := &pane{t: t, socket: filepath.Join(dir, "s")}
	p.Home, p.Session = filepath.Join(dir, "home"), uuid.NewString()
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TERM=xterm-256color", "LANG=C.UTF-8", "SHELL=/bin/sh"}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = p.command(ctx, "kill-server").Run() // it may have ended with its only pane
		_ = os.RemoveAll(dir)
	})
	return p
}

func (p *pane) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", p.socket, "-f", "/dev/null"}, args...)...)
	c.Env = p.env
	return c
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := p.command(p.t.Context(), args...).Output()
	if err != nil {
		p.t.Fatalf("tmux %v: %v", args, err)
	}
	return strings.TrimRight(string(out), "\n")
}

// end ends the server, and waits until nobody listens any more: a new-session sent into its last moments is lost with it.
func (p *pane) end() {
	p.t.Helper()
	p.tmux("kill-server")
	p.until("the end of the server", func() bool {
		conn, err := net.Dial("unix", p.socket)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// start starts the agent and does not wait for it. Its status goes to the file rc.
func (p *pane) start(args ...string) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	script := `"$@"; echo $? >"$0".tmp; mv "$0".tmp "$0"`
	run := []string{"new-session", "-d", "-s", "a", "-x", "100", "-y", "30", "-e", asAgent + "=1", "-e", "FAKEAGENT_HOME=" + p.Home,
		"sh", "-c", script, p.rc(), self}
	run = append(append(run, args...), ";", "set-option", "-w", "remain-on-exit", "on", ";",
		"set-option", "-w", "remain-on-exit-format", "")
	p.tmux(run...)
}

// fresh starts a new conversation and waits for its composer.
func (p *pane) fresh(args ...string) {
	p.t.Helper()
	p.start(append([]string{"--session-id", p.Session}, args...)...)
	p.ready()
}

func (p *pane) rc() string { return p.socket + ".rc" }

func (p *pane) ready() {
	p.t.Helper()
	p.until("the composer", func() bool { return p.show("#{cursor_flag}#{alternate_on}") == "11" && p.sees("› Ask fakeagent") })
}

func (p *pane) show(format string) string {
	p.t.Helper()
	return p.tmux("display-message", "-p", "-t", "=a:", format)
}

func (p *pane) screen() string {
	p.t.Helper()
	return p.tmux("capture-pane", "-p", "-t", "=a:")
}

func (p *pane) sees(text string) bool {
	p.t.Helper()
	return strings.Contains(p.screen(), text)
}

// until polls: the agent is a process of its own and says nothing but on its screen and in its files.
func (p *pane) until(want string, ok func() bool) {
	p.t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			p.t.Fatalf("not seen: %s; the screen is\n%s", want, p.screen())
		}
	}
}

// paste is one tmux invocation: load, bracketed paste, and more commands behind it without a pause. Since 3.7 control characters are
// made visible unless -S is given, which is not known before.
func (p *pane) paste(text string, more ...string) {
	p.t.Helper()
	flags := "-pr"
	if strings.Contains(p.tmux("list-commands", "-F", "#{command_list_usage}", "paste-buffer"), "[-dprS]") {
		flags = "-prS"
	}
	args := append([]string{"load-buffer", "-b", "b", "-", ";", "paste-buffer", flags, "-d", "-b", "b", "-t", "=a:"}, more...)
	c := p.command(p.t.Context(), args...)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("paste: %v\n%s", err, out)
	}
}

func (p *pane) keys(keys ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys", "-t", "=a:"}, keys...)...)
}

func (p *pane) status() string {
	p.t.Helper()
	p.until("the end of the agent", func() bool { _, err := os.Stat(p.rc()); return err == nil })
	b, err := os.ReadFile(p.rc())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Remove(p.rc()); err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// signal sends a signal to the agent, which is the child of the pane's shell.
func (p *pane) signal(s syscall.Signal) {
	p.t.Helper()
	parent := p.show("#{pane_pid}")
	b, err := os.ReadFile("/proc/" + parent + "/task/" + parent + "/children")
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := syscall.Kill(pid, s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pane) approvals() []string {
	p.t.Helper()
	got, err := p.Approvals()
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// users is the prompts so far, for the places where there must be none.
func (p *pane) users() []string {
	p.t.Helper()
	got, err := p.Texts("user")
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}
