package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/channel"
	"muxpost.dev/muxpost/services/tmuxd/internal/disk"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
	"muxpost.dev/muxpost/services/tmuxd/internal/trees"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// rig is a host with everything real: tmux, the wrapper, the bundled agent, files.
type rig struct {
	*host.Host
	t   *testing.T
	dir string
	// program is the tmux of this rig, a copy of its own.
	program string
	item    workitem.Ref
	tmux    *tmux.Client
	disk    *disk.Dir
	env     map[string]string
	entry   settings.Harness
	home    string // of the bundled agent
	trees   *trees.Trees
	kinds   []settings.Tree
	execs   string
	// now is the clock that its tmuxd reads.
	now    func() time.Time
	tokens int64
	// capacity is how many agents the host may have.
	capacity int
}

// wrapperBinary builds muxpost-exec once a test run.
var wrapperBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "muxbin")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "muxpost-exec")
	out, err := exec.Command("go", "build", "-o", path, "muxpost.dev/muxpost/cmd/muxpost-exec").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cannot build the wrapper: %w\n%s", err, out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serveWord {
		serveSocket(os.Args[2])
	}
	code := m.Run()
	if path, err := wrapperBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func newRig(t *testing.T, env map[string]string) *rig {
	t.Helper()
	installed := needs.Program(t, "tmux")
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	item, err := workitem.Parse("github:octo/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	execs, err := wrapperBinary()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, program: filepath.Join(dir, "tmux"), item: item, env: env, entry: settings.BuiltinHarnesses()["fakeagent"],
		execs: execs, now: time.Now, home: filepath.Join(dir, "state", "harness", "fakeagent")}
	r.install(installed)
	r.entry.Binary = agenttest.Build(t)
	t.Cleanup(func() {
		r.endServers()
		os.RemoveAll(dir)
	})
	r.open()
	return r
}

// install puts a copy of a tmux in the place of the rig's, as an upgrade does.
func (r *rig) install(program string) {
	r.t.Helper()
	// Not written by this process: a child that another test is starting would hold it open for a moment, and it could not be run.
	if out, err := exec.Command("cp", program, r.program+".new").CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(r.program+".new", r.program); err != nil {
		r.t.Fatal(err)
	}
}

// open makes the host, as a start of tmuxd does.
func (r *rig) open() {
	r.t.Helper()
	var err error
	// A child that another test is starting may hold a copy of the lock for a moment.
	for range 200 {
		if r.disk, err = disk.Open(filepath.Join(r.dir, "state"), r.execs); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	getenv := func(key string) (string, bool) {
		if v, ok := r.env[key]; ok {
			return v, true
		}
		return os.LookupEnv(key)
	}
	table, err := harness.New(map[string]settings.Harness{"fakeagent": r.entry}, r.disk.HarnessRoot(), r.dir, exec.LookPath)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.tmux, err = tmux.New(tmux.Config{Bin: r.program, Dir: filepath.Join(r.dir, "state"), Tracer: noop.NewTracerProvider().Tracer(""),
		Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"}}); err != nil {
		r.t.Fatal(err)
	}
	if r.trees != nil {
		r.trees.Close()
	}
	r.trees = trees.New(trees.Config{Trees: r.kinds, Directory: filepath.Join(r.dir, "work", "{target}"), Make: true,
		StateDir: filepath.Join(r.dir, "state"), Env: os.Environ(), Logger: slog.New(slog.DiscardHandler)})
	channels, err := channel.New(filepath.Join(r.dir, "state"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.Host = host.New(host.Config{Roots: []string{filepath.Join(r.dir, "work")}, Width: 200, Height: 50, Capacity: r.capacity},
		host.Deps{Tmux: r.tmux, Disk: r.disk, Trees: r.trees, Table: table, Channels: channels, Logger: slog.New(slog.DiscardHandler), Now: r.now,
			Getenv: getenv})
}

// restart is a kill -9 of tmuxd and a new start: nothing in memory survives.
func (r *rig) restart() {
	r.t.Helper()
	r.tmux.Close()
	r.disk.Close()
	r.open()
}

// endServers ends the tmux servers that this test started, by the pids that their own answers give.
func (r *rig) endServers() {
	files, _ := filepath.Glob(filepath.Join(r.dir, "state", "sessions", "*.json"))
	for _, file := range files {
		if m, known, err := r.disk.Recall(strings.TrimSuffix(filepath.Base(file), ".json")); err == nil && known && m.Server.Pid > 0 {
			_ = syscall.Kill(m.Server.Pid, syscall.SIGCONT)
			_ = syscall.Kill(m.Server.Pid, syscall.SIGTERM)
			// The agent writes until it ends: only then can its directory be removed.
			for range 500 {
				ran, err := r.disk.Ran(m.Target, m.Stamp)
				if err == nil && ran.Process != session.ProcessAlive && r.disk.ServerLives(m) != session.ProcessAlive {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	r.removeGroups()
	r.tmux.Close()
	r.disk.Close()
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) ctxFor(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) token() int64 { r.tokens++; return r.tokens }

func (r *rig) spawn(id, text string) host.SpawnResult {
	r.t.Helper()
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: id, Text: text, Token: r.token()})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// started spawns and expects a living agent.
func (r *rig) started(id, text string) host.SpawnResult {
	r.t.Helper()
	res := r.spawn(id, text)
	if res.Outcome != host.SpawnStarted {
		r.t.Fatalf("not started: %+v", res)
	}
	return res
}

func (r *rig) paste(id, text string) host.PasteResult {
	r.t.Helper()
	res, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: id, Text: text, Token: r.token()})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// goesIn asks for a delivery once more, and says whether it is in: a busy machine may have shown the evidence only after it was asked last.
func (r *rig) goesIn(id, text string) bool {
	r.t.Helper()
	got := r.paste(id, text).Verdict
	return got == host.Submitted || got == host.AlreadyDelivered
}

// ready waits until the agent's composer is there, by pasting nothing: it looks at the screen as a person would.
func (r *rig) ready() {
	r.t.Helper()
	r.until("the composer shows", func() bool { return strings.Contains(r.screen(), "› Ask fakeagent to do anything") })
}

func (r *rig) screen() string {
	out, _ := r.cmd("capture-pane", "-p", "-t", "%0")
	return out
}

// shown is what a pane shows, which must be there.
func (r *rig) shown(pane string) string {
	r.t.Helper()
	out, err := r.cmd("capture-pane", "-p", "-t", pane)
	if err != nil {
		r.t.Fatalf("%s: %v: %s", pane, err, out)
	}
	return out
}

// cmd runs tmux on the session's server, as a person would.
func (r *rig) cmd(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-N", "-S", r.tmux.Socket(r.item.Target())}, args...)...).CombinedOutput()
	return string(out), err
}

func (r *rig) person(args ...string) {
	r.t.Helper()
	if out, err := r.cmd(args...); err != nil {
		r.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
}

func (r *rig) state() host.Status {
	r.t.Helper()
	st, err := r.State(r.ctx(), r.item, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r *rig) becomes(want session.State) host.Status {
	r.t.Helper()
	var st host.Status
	r.until("the state is "+want.String(), func() bool { st = r.state(); return st.State == want })
	return st
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain until %s; state %+v; screen:\n%s", what, r.state(), r.screen())
		}
	}
}

func (r *rig) conversation(id string) agenttest.Conversation {
	return agenttest.Conversation{Home: r.home, Session: id}
}

// took expects the agent's own record to hold exactly these deliveries, each once, in order.
func (r *rig) took(conversation string, want ...string) {
	r.t.Helper()
	r.conversation(conversation).WaitUser(r.t, 10*time.Second, want...)
}

// agentPid is the harness's process, the wrapper's child.
func (r *rig) agentPid() int {
	r.t.Helper()
	wrapper := r.state().Incarnation.PanePid
	data, err := os.ReadFile("/proc/" + strconv.Itoa(wrapper) + "/task/" + strconv.Itoa(wrapper) + "/children")
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		r.t.Fatalf("the wrapper's children: %q", data)
	}
	return pid
}

func (r *rig) signal(pid int, sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Fatal(err)
	}
}

func typed(id, text string) string { return prompt.Typed(id, text) }

// leftPasted leaves what a tmuxd leaves that dies between the paste and the submit: the text in the composer, the ring, the journal.
func (r *rig) leftPasted(id, text string) {
	r.t.Helper()
	st := r.state()
	if err := r.tmux.Advance(r.ctx(), r.item.Target(), "g0"); err != nil {
		r.t.Fatal(err)
	}
	g := host.Guard{Stamp: st.Incarnation.Stamp, Pane: st.Incarnation.PaneID, Pid: st.Incarnation.PanePid, Session: st.Incarnation.SessionID,
		Token: r.token(), NotAfter: time.Now().Add(time.Minute), Generation: "g0"}
	screen, ok, err := r.tmux.Capture(r.ctx(), r.item.Target(), g)
	if err != nil || !ok {
		r.t.Fatalf("%v %v", ok, err)
	}
	for _, phase := range []session.Phase{session.Pasting, session.Pasted} {
		if err := r.disk.Append(r.item.Target(), host.Entry{Time: time.Now(), ID: id, Phase: phase, Stamp: st.Incarnation.Stamp,
			Harness: "fakeagent", Conversation: st.Conversation, Directory: st.Directory}, false); err != nil {
			r.t.Fatal(err)
		}
	}
	done, err := r.tmux.Paste(r.ctx(), r.item.Target(), g, host.Text{ID: id, Typed: typed(id, text),
		Look: host.Look{Cursor: host.Cursor{X: screen.CursorX, Y: screen.CursorY}}, Ring: session.Ring{}.With(id, session.Pasted)})
	if err != nil || done != host.Done {
		r.t.Fatalf("%v %v", done, err)
	}
	r.until("the text shows", func() bool { return !strings.Contains(r.screen(), "› Ask fakeagent to do anything") })
	r.restart()
}

// shelled puts the agent below a shell: tmux and the wrapper continue their own children when these stop.
func (r *rig) shelled() {
	r.entry.Fresh = append([]string{"-c", `"$0" "$@"; exit $?`, r.entry.Binary}, r.entry.Fresh...)
	r.entry.Binary = "/bin/sh"
	r.restart()
}

// grandchild is the agent below its shell.
func (r *rig) grandchild() int {
	r.t.Helper()
	shell := r.agentPid()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}
