package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// The harness sh runs the part of its prompt between the lines #! and #end as a shell script; PROMPT is a file with the whole.
const scriptHarness = `p=$(mktemp) && cat > "$p" && sed -n "/^#!/,/^#end/p;/^#end/q" "$p" | PROMPT=$p /bin/sh -s; s=$?; rm -f "$p"; exit $s`

// script is a prompt for it.
func script(lines string) string { return "#!\n" + lines + "\n#end" }

// says is a script for a verification's agent that gives a verdict.
func says(verdict string) string {
	return script(`w=$(grep -o "VERDICT-[0-9a-f]\{12\}" "$PROMPT" | tail -1); echo "$w: ` + verdict + `"`)
}

// crews are hosts with real tmuxds, a database, and dispatchers as processes that may be killed.
type crews struct {
	t     *testing.T
	bin   string
	dir   string
	work  string
	url   string
	pool  *pgxpool.Pool
	hosts []*crewHost
	team  teamv1.TeamServiceClient
	seen  dispatcherv1.DispatcherServiceClient
}

// crewHost is a tmuxd.
type crewHost struct {
	dir, config string
	client      tmuxdv1.TmuxdServiceClient
	process     *exec.Cmd
}

// crewPrograms is where builtCrew has put them, for TestMain to remove.
var crewPrograms string

var builtCrew = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "crew")
	if err != nil {
		return "", err
	}
	crewPrograms = dir
	for name, pkg := range map[string]string{"muxpost-tmuxd": "services/tmuxd", "muxpost-exec": "cmd/muxpost-exec", "muxpost-dispatcher": "services/dispatcher"} {
		if out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", filepath.Join(dir, name), "muxpost.dev/muxpost/"+pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

// crewTasks is how the hosts of a rig run attempts, beside their table.
const crewTable = `
  harnesses:
    sh: {binary: /bin/sh, task: ['-c', '%s']}
    good: {binary: /bin/sh, task: ['-c', 'test -e %s/good'], check: true}
    missing: {binary: /nowhere/to/be/found, task: [x]}
    cannot: {binary: /bin/sh, task: ['-c', 'exit 126']}
`

func newCrews(t *testing.T, hosts int, change ...func(c *crews, i int) string) *crews {
	t.Helper()
	return newCrewsOn(t, dbtest.NewURL(t), hosts, change...)
}

// newCrewsOn is newCrews on a database that is there.
func newCrewsOn(t *testing.T, url string, hosts int, change ...func(c *crews, i int) string) *crews {
	t.Helper()
	for _, needed := range []string{"tmux", "go"} {
		needs.Program(t, needed)
	}
	bin, err := builtCrew()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	c := &crews{t: t, bin: bin, dir: dir, work: filepath.Join(dir, "work"), url: url}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if c.pool, err = db.Open(t.Context(), db.Config{URL: c.url, AppName: t.Name()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	if err := os.Mkdir(c.work, 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i := range hosts {
		name := fmt.Sprint("h", i+1)
		h := &crewHost{dir: filepath.Join(dir, name), config: filepath.Join(dir, name+".yaml")}
		text := fmt.Sprintf("tmuxd:\n  listen: unix:%[1]s/s\n  host: %[2]s\n  state_dir: %[1]s\n  roots: [%[3]s]\n  labels: {name: %[2]s}", h.dir, name, c.work)
		for _, more := range change {
			text += more(c, i)
		}
		text += fmt.Sprintf(crewTable, scriptHarness, c.work)
		if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(h.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.client = tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(t, "unix:"+filepath.Join(h.dir, "s"), rpc.DialOptions{Name: "the host"}))
		c.hosts = append(c.hosts, h)
		names = append(names, fmt.Sprintf("{name: %s, address: 'unix:%s/s'}", name, h.dir))
		t.Cleanup(func() { c.endAttempts(h) })
		c.up(i)
		t.Cleanup(func() { c.down(i, syscall.SIGTERM) })
	}
	config := fmt.Sprintf("dispatcher:\n  listen: unix:%s/d\n  harness: sh\n  hosts: [%s]\n", dir, strings.Join(names, ", "))
	if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := rpctest.Dial(t, "unix:"+filepath.Join(dir, "d"), rpc.DialOptions{Name: "the dispatcher"})
	c.team, c.seen = teamv1.NewTeamServiceClient(conn), dispatcherv1.NewDispatcherServiceClient(conn)
	return c
}

// up starts the tmuxd of a host and waits until it answers.
func (c *crews) up(i int, env ...string) {
	c.t.Helper()
	h := c.hosts[i]
	h.process = c.start(h.dir+".log", env, "muxpost-tmuxd", "--config", h.config, "--data-dir", h.dir)
	c.until("tmuxd answers", func() bool {
		_, err := h.client.Info(c.t.Context(), &tmuxdv1.InfoRequest{})
		return err == nil
	})
}

// down ends the tmuxd of a host; attempts live on.
func (c *crews) down(i int, sig syscall.Signal) {
	_ = c.hosts[i].process.Process.Signal(syscall.SIGCONT)
	_ = c.hosts[i].process.Process.Signal(sig)
	_ = c.hosts[i].process.Wait()
}

func (c *crews) start(log string, env []string, name string, args ...string) *exec.Cmd {
	c.t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Stderr, cmd.Env = out, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

// dispatcher starts a dispatcher, and returns what ends it by a signal.
func (c *crews) dispatcher(env ...string) (process *exec.Cmd, end func(syscall.Signal)) {
	c.t.Helper()
	cmd := c.start(filepath.Join(c.dir, "d.log"), append([]string{"MUXPOST_DATABASE_URL=" + c.url}, env...), "muxpost-dispatcher", "--config",
		filepath.Join(c.dir, "d.yaml"), "--data-dir", c.dir)
	var once sync.Once
	end = func(sig syscall.Signal) {
		once.Do(func() {
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
		})
	}
	c.t.Cleanup(func() { end(syscall.SIGKILL) })
	return cmd, end
}

// answers waits until the dispatcher does.
func (c *crews) answers() {
	c.t.Helper()
	c.until("the dispatcher answers", func() bool {
		_, err := c.team.ListRuns(c.t.Context(), &teamv1.ListRunsRequest{})
		return err == nil
	})
}

// endAttempts ends what is left of a host's attempts, by the pids that tmuxd remembers.
func (c *crews) endAttempts(h *crewHost) {
	files, _ := filepath.Glob(filepath.Join(h.dir, "attempts", "*", "attempt.json"))
	for _, file := range files {
		var memory struct {
			Pane struct {
				Server  struct{ Pid int }
				Wrapper struct{ Pid int }
			}
		}
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &memory) != nil {
			continue
		}
		for _, pid := range []int{memory.Pane.Server.Pid, memory.Pane.Wrapper.Pid} {
			if pid > 0 && strings.Contains(string(commandLine(pid)), h.dir) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

func (c *crews) until(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.logs()
			c.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (c *crews) logs() {
	for _, name := range []string{"d.log", "h1.log"} {
		if data, err := os.ReadFile(filepath.Join(c.dir, name)); err == nil {
			c.t.Logf("%s:\n%s", name, data[max(0, len(data)-6000):])
		}
	}
}

// spec is what a run is asked to do, with tasks written as id or id<need,need and their scripts.
func (c *crews) spec(name string, tasks ...string) *teamv1.Spec {
	s := &teamv1.Spec{Team: name, Harness: "sh", Directory: c.work, Verify: &teamv1.Step{Prompt: says("pass")}}
	for i := 0; i < len(tasks); i += 2 {
		id, needs, _ := strings.Cut(tasks[i], "<")
		t := &teamv1.Task{Id: id, Prompt: script(tasks[i+1])}
		if needs != "" {
			t.Needs = strings.Split(needs, ",")
		}
		s.Tasks = append(s.Tasks, t)
	}
	return s
}

func (c *crews) run(s *teamv1.Spec) *teamv1.Run {
	c.t.Helper()
	out, err := c.team.StartRun(c.t.Context(), &teamv1.StartRunRequest{Spec: s, Who: "ann"})
	if err != nil {
		c.t.Fatal(err)
	}
	return out.GetRun()
}

// over waits until a run is over, and returns it.
func (c *crews) over(run string) *teamv1.GetRunResponse {
	c.t.Helper()
	var got *teamv1.GetRunResponse
	c.until("the run "+run+" is over", func() bool {
		var err error
		got, err = c.team.GetRun(context.Background(), &teamv1.GetRunRequest{Run: run})
		return err == nil && got.GetRun().GetPhase() >= teamv1.Phase_PHASE_COMPLETE
	})
	return got
}

// ends runs a spec to its end in a phase.
func (c *crews) ends(s *teamv1.Spec, want teamv1.Phase) *teamv1.GetRunResponse {
	c.t.Helper()
	got := c.over(c.run(s).GetRunId())
	if got.GetRun().GetPhase() != want {
		c.logs()
		c.t.Fatalf("it ended as %v: %v\n%v", got.GetRun().GetPhase(), got.GetRun(), got.GetHistory())
	}
	return got
}

// ran is how often each task was run to an end, by what is recorded.
func ran(got *teamv1.GetRunResponse) map[string]int {
	out := map[string]int{}
	for _, a := range got.GetAttempts() {
		if r := a.GetResult(); r != "launch_failed" && r != "not_begun" && r != "" {
			out[a.GetTaskId()]++
		}
	}
	return out
}

// lines are those of a file in the working directory, which scripts append to.
func (c *crews) lines(name string) []string {
	data, err := os.ReadFile(filepath.Join(c.work, name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func (c *crews) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.work, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}
