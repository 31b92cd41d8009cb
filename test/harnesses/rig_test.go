package harnesses

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakemodel"
)

const (
	item   = "github:octo/widget#7"
	target = "loop-octo-widget-7"
	// startTime is how long a program may take until its composer is there, on a machine that is busy with other tests.
	startTime = 5 * time.Minute
)

// rig is a tmuxd with a program's entry, the program with a home of its own, and the model that it asks.
type rig struct {
	program
	t     *testing.T
	dir   string
	model *fakemodel.Server
	tmuxd tmuxdv1.TmuxdServiceClient
	conn  *grpc.ClientConn
	// process is tmuxd's.
	process *exec.Cmd
	// sent counts what was asked for, for tokens and names.
	sent int
	// directory is where the program runs, and conversation the one that it goes on with; empty when not known.
	directory, conversation string
	tally
}

// built builds tmuxd and its wrapper once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "muxbin")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"muxpost-exec": "cmd/muxpost-exec", "muxpost-tmuxd": "services/tmuxd"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "muxpost.dev/muxpost/"+pkg).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%w: %s", err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func newRig(t *testing.T, p program) *rig {
	t.Helper()
	path := p.path(t)
	needs.Program(t, "tmux")
	bin, err := built()
	must(t, err)
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	must(t, err)
	r := &rig{program: p, t: t, dir: dir}
	t.Cleanup(func() { r.end(); os.RemoveAll(dir) })
	r.model, err = fakemodel.Start(fakemodel.Config{})
	must(t, err)
	home := filepath.Join(dir, "home")
	must(t, fakemodel.CodexHome(filepath.Join(home, ".codex"), r.model.URL()))
	must(t, fakemodel.OpencodeConfig(filepath.Join(home, ".config", "opencode"), r.model.URL()))
	must(t, fakemodel.QwenSettings(filepath.Join(home, ".qwen")))
	env := []string{fakemodel.KeyVariable + "=x"}
	if p.name == "qwen" {
		env = fakemodel.QwenEnviron(r.model.URL())
	}
	var pass []string
	for _, variable := range env {
		key, _, _ := strings.Cut(variable, "=")
		pass = append(pass, key)
	}
	channel := ""
	if p.channel != "" {
		channel = ", channel: " + p.channel
	}
	config := fmt.Sprintf("tmuxd:\n  listen: unix:%[1]s/t.sock\n  host: a\n  data_dir: %[1]s/data\n  harnesses:\n    %[2]s: {binary: %[3]s, pass_env: [%[4]s]%[5]s}\n",
		dir, p.name, path, strings.Join(pass, ", "), channel)
	must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte(config), 0o600))
	r.process = exec.Command(filepath.Join(bin, "muxpost-tmuxd"), "--config", filepath.Join(dir, "muxpost.yaml"))
	r.process.Env = append(env, "HOME="+home, "PATH="+os.Getenv("PATH"), "LANG=C.UTF-8")
	log, err := os.Create(filepath.Join(dir, "tmuxd.log"))
	must(t, err)
	r.process.Stderr = log
	must(t, r.process.Start())
	conn, err := rpc.Dial("unix:"+filepath.Join(dir, "t.sock"), rpc.DialOptions{Name: "tmuxd"})
	must(t, err)
	r.conn, r.tmuxd = conn, tmuxdv1.NewTmuxdServiceClient(conn)
	r.until(20*time.Second, "tmuxd answers", func() bool {
		_, err := r.tmuxd.Info(t.Context(), &tmuxdv1.InfoRequest{})
		return err == nil
	})
	return r
}

// end ends what the rig started, by the pids that tmuxd and its sessions name.
func (r *rig) end() {
	if r.tmuxd != nil {
		if st := r.state(); st.GetIncarnation().GetServerPid() > 0 && st.GetState() != tmuxdv1.State_STATE_ABSENT {
			_, err := r.tmuxd.Terminate(context.Background(), &tmuxdv1.TerminateRequest{WorkItem: item, IncarnationStamp: st.GetIncarnation().GetStamp(), FencingToken: 1 << 40, Reason: "the test is over"})
			if err != nil {
				r.t.Log(err)
			}
			_ = syscall.Kill(int(st.GetIncarnation().GetServerPid()), syscall.SIGTERM)
		}
		_ = r.conn.Close()
	}
	if r.process != nil && r.process.Process != nil {
		_ = r.process.Process.Signal(syscall.SIGTERM)
		_ = r.process.Wait()
	}
	if r.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(r.dir, "tmuxd.log"))
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		r.t.Logf("the last of tmuxd's log:\n%s", strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	if r.model != nil {
		_ = r.model.Close()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls, because nobody tells when a program's screen changed.
func (r *rig) until(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain until %s; %v; screen:\n%s", what, r.state(), r.screen())
		}
	}
}

func (r *rig) state() *tmuxdv1.SessionStateResponse {
	st, err := r.tmuxd.SessionState(context.Background(), &tmuxdv1.SessionStateRequest{WorkItem: item})
	if err != nil {
		return nil
	}
	return st
}

func (r *rig) tmux(args ...string) string {
	out, _ := exec.Command("tmux", append([]string{"-N", "-S", r.state().GetSocketPath()}, args...)...).CombinedOutput()
	return string(out)
}

func (r *rig) pane() string { return r.state().GetIncarnation().GetPaneId() }

func (r *rig) screen() string {
	return strings.TrimRight(r.tmux("capture-pane", "-p", "-t", r.pane()), "\n")
}

func (r *rig) shows(text string) bool { return strings.Contains(r.screen(), text) }

// start starts the program, with its earlier conversation if resume names one.
func (r *rig) start(resume string) *tmuxdv1.SpawnResponse {
	r.t.Helper()
	r.sent++
	req := &tmuxdv1.SpawnRequest{WorkItem: item, Harness: r.name, FencingToken: int64(r.sent), Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}}
	if resume != "" {
		req.Conversation = &tmuxdv1.SpawnRequest_Resume{Resume: &tmuxdv1.Resume{ConversationId: resume}}
	}
	res, err := r.tmuxd.Spawn(r.t.Context(), req)
	must(r.t, err)
	return res
}

// started starts the program, which has to succeed.
func (r *rig) started(resume string) {
	r.t.Helper()
	res := r.start(resume)
	if res.GetStarted() == nil || res.GetStarted().GetConversationId() != resume && resume != "" {
		r.t.Fatal(res)
	}
	r.directory = res.GetStarted().GetDirectory()
	must(r.t, os.WriteFile(filepath.Join(r.directory, known), nil, 0o600))
}

// paste asks once for a delivery.
func (r *rig) paste(d delivery) *tmuxdv1.PasteResponse {
	r.t.Helper()
	r.sent++
	res, err := r.tmuxd.Paste(r.t.Context(), &tmuxdv1.PasteRequest{WorkItem: item, DeliveryId: d.id, Text: d.text, FencingToken: int64(r.sent)})
	must(r.t, err)
	return res
}

func submitted(res *tmuxdv1.PasteResponse) bool {
	return res.GetSubmitted() != nil || res.GetAlreadyDelivered() != nil
}

// deliver asks for a delivery until it is submitted, and waits until it arrived.
func (r *rig) deliver(d delivery) {
	r.t.Helper()
	r.submits(d)
	r.arrives(d)
}

// submits asks for a delivery until it is submitted, as the dispatcher does.
func (r *rig) submits(d delivery) {
	r.t.Helper()
	var last *tmuxdv1.PasteResponse
	r.until(startTime, d.id+" is submitted", func() bool {
		res := r.paste(d)
		if got := fmt.Sprint(res); got != fmt.Sprint(last) {
			r.t.Log(d.id, strings.TrimPrefix(got, fmt.Sprintf("target:%q", target)))
		}
		last = res
		return submitted(res)
	})
}

// victim is what is killed.
type victim uint8

const (
	theProgram   victim = iota
	theWrapper          // what runs it
	theCompanion        // what serves it
)

func (v victim) String() string {
	return [...]string{theProgram: "the program", theWrapper: "the wrapper", theCompanion: "the companion"}[v]
}

// kill kills behind tmuxd's back.
func (r *rig) kill(v victim) {
	r.t.Helper()
	pid := int(r.state().GetIncarnation().GetPanePid())
	switch v {
	case theProgram:
		// It has the terminal.
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(r.t, err)
		_, err = fmt.Sscanf(string(data[strings.LastIndexByte(string(data), ')')+1:]), " %s %d %d %d %d %d", new(string), new(int), new(int), new(int), new(int), &pid)
		must(r.t, err)
	case theCompanion:
		// It is the first that the wrapper starts.
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		must(r.t, err)
		pid, err = strconv.Atoi(strings.Fields(string(children))[0])
		must(r.t, err)
	case theWrapper:
	}
	must(r.t, syscall.Kill(pid, syscall.SIGKILL))
	r.until(20*time.Second, "it is dead", r.dead)
}

func (r *rig) dead() bool {
	return slices.Contains([]tmuxdv1.State{tmuxdv1.State_STATE_DEAD, tmuxdv1.State_STATE_ABSENT}, r.state().GetState())
}
