package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/needs"
)

// helperVariable turns the test binary into a process that starts a cluster, says so, and waits to be killed or told to exit.
const helperVariable = "MUXPOST_LOCAL_TEST_HELPER"

func TestMain(m *testing.M) {
	if how := os.Getenv(helperVariable); how != "" {
		os.Exit(helper(how, os.Args[1]))
	}
	os.Exit(m.Run())
}

func helper(how, dir string) int {
	c, err := Start(context.Background(), Options{Dir: dir, Detached: how == "detached", Temporary: how == "temporary"})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(c.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startHelper returns a process that has started a cluster, its standard input, and the postmaster's pid.
func startHelper(t *testing.T, how, dir string) (*exec.Cmd, io.Closer, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), helperVariable+"="+how)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the helper says %q", line)
	}
	return cmd, in, pid
}

func needPostgres(t *testing.T) {
	t.Helper()
	if _, err := Find(); err != nil {
		needs.Unmet(t, err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Unmet(t, "only root has privileges to drop")
	}
}

// scratch is a directory that an unprivileged user may enter, as t.TempDir is not.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muxpost-local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, opts Options) *Cluster {
	t.Helper()
	needPostgres(t)
	c, err := Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	return c
}

func query(t *testing.T, c *Cluster, sql string) string {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var out string
	if err := conn.QueryRow(ctx, sql).Scan(&out); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return out
}

func exec1(t *testing.T, c *Cluster, sql string) {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

// waitDone fails the test when the process of another program is not gone within a while.
func waitDone(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
}

// processGone is closed when a process has ended, whether or not the init of this machine has reaped it.
func processGone(pid int) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil || len(line) == 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return gone
}

func TestStart_TemporaryClusterAnswersAndLeavesNothing(t *testing.T) {
	c := start(t, Options{Temporary: true, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	for setting, want := range map[string]string{
		"listen_addresses": "", "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "server_encoding": "UTF8",
		"lc_collate": "C", "unix_socket_permissions": "0700", "TimeZone": "UTC",
	} {
		if got := query(t, c, "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if info, err := os.Stat(c.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", info.Mode(), err)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	waitDone(t, c.Done(), "Stop returned before the postmaster was gone")
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestStart_ByRootRunsAsAnUnprivilegedUser(t *testing.T) {
	needRoot(t)
	c := start(t, Options{Dir: filepath.Join(scratch(t), "pg")})
	want, err := chooseOwner("")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	ids := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", want.uid, want.gid)
	if !strings.Contains(string(status), ids) || !strings.Contains(string(status), "Groups:\t \n") {
		t.Errorf("the postmaster does not run as %d:%d alone:\n%s", want.uid, want.gid, status)
	}
	for _, path := range []string{c.Dir(), c.home.data(), c.LogPath(), c.home.lockFile()} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid, _ := fileOwner(info); uid != want.uid || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s belongs to %d with mode %v", path, uid, info.Mode())
		}
	}
}

func TestStart_EnvironmentOfThisProcessDoesNotReachTheServer(t *testing.T) {
	t.Setenv("PGDATA", "/nowhere")
	t.Setenv("PGPORT", "1")
	t.Setenv("SECRET_OF_THE_TEST", "x")
	c := start(t, Options{Temporary: true})
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(env), "HOME="+c.Dir()) || strings.Contains(string(env), "SECRET") || strings.Contains(string(env), "PG") {
		t.Errorf("the server's environment is %q", env)
	}
}

func TestStart_DataSurvivesAStop(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "a", "pg")}
	c := start(t, opts)
	if got := query(t, c, "show fsync"); got != "on" {
		t.Errorf("a kept cluster has fsync %q", got)
	}
	exec1(t, c, "create table kept as select 'here'::text as word")
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(bounded(t), opts.Dir); !errors.Is(err, fault.NotFound) {
		t.Errorf("Attach to a stopped cluster: %v", err)
	}
	again := start(t, opts)
	if got := query(t, again, "select word from kept"); got != "here" {
		t.Errorf("got %q after a stop and a start", got)
	}
	if !again.Started() {
		t.Error("the second start says that it attached")
	}
}

func TestStart_RecoversAfterThePostmasterWasKilled(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	c := start(t, opts)
	exec1(t, c, "create table kept as select 'here'::text as word")
	ctx := bounded(t)
	// A client that stays keeps a backend alive beyond its postmaster, as an orphan in the shared memory.
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitDone(t, c.Done(), "a killed postmaster is still there")
	again := start(t, opts)
	if got := query(t, again, "select word from kept"); got != "here" {
		t.Errorf("got %q after a crash", got)
	}
}

func TestStart_AttachesToAPostmasterThatRuns(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	first := start(t, opts)
	second := start(t, opts)
	if second.Started() || second.Pid() != first.Pid() {
		t.Fatalf("the second start has started=%v pid=%d, the first pid=%d", second.Started(), second.Pid(), first.Pid())
	}
	if err := second.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if got := query(t, second, "select 'up'"); got != "up" {
		t.Error("who attached has stopped the cluster of another")
	}
	done := second.Done()
	if err := Stop(bounded(t), opts.Dir); err != nil {
		t.Fatal(err)
	}
	waitDone(t, done, "an attached cluster does not see its end")
	waitDone(t, first.Done(), "the function Stop returned and the postmaster is there")
	if err := Stop(bounded(t), opts.Dir); err != nil {
		t.Errorf("a Stop where nothing runs: %v", err)
	}
	if err := Stop(bounded(t), filepath.Join(opts.Dir, "none")); err != nil {
		t.Errorf("a Stop where nothing ever ran: %v", err)
	}
}

func TestStart_ManyAtOnceMakeOneCluster(t *testing.T) {
	needPostgres(t)
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	type result struct {
		c   *Cluster
		err error
	}
	results := make(chan result)
	for range 4 {
		go func() {
			c, err := Start(bounded(t), opts)
			results <- result{c, err}
		}()
	}
	started, pids := 0, map[int]bool{}
	for range 4 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		pids[r.c.Pid()] = true
		if r.c.Started() {
			started++
		}
	}
	if err := Stop(bounded(t), opts.Dir); err != nil {
		t.Error(err)
	}
	if started != 1 || len(pids) != 1 {
		t.Errorf("%d of 4 started a postmaster, and there were the pids %v", started, pids)
	}
}
