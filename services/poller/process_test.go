package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db"
	runner "muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
)

// asProcess is in the environment of a test binary that is to be a poller: the configuration file.
const asProcess = "MUXPOST_TEST_POLLER"

// beProcess is main, with nothing but the file to say anything.
func beProcess(config string) {
	runner.Main("muxpost-poller", func(ctx context.Context) error {
		here := settings.Where{Getenv: func(string) string { return "" }}
		return program(ctx, []string{"--config", config}, here, os.Stdout, os.Stderr)
	})
}

// process is a poller that is a process of its own, so that it can be killed.
type process struct {
	cmd   *exec.Cmd
	log   *logBuffer
	ended func() error
}

func startProcess(t *testing.T, w *world) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), log: &logBuffer{}} //nolint:gosec // it is this very binary
	p.cmd.Env = append(os.Environ(), asProcess+"="+w.config)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	p.ended = sync.OnceValue(p.cmd.Wait)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the last lines of process %d:\n%s", p.cmd.Process.Pid, lastLines(p.log.String(), 15))
		}
	})
	return p
}

// serves waits until the process does its work.
func (p *process) serves(t *testing.T) {
	t.Helper()
	within(t, time.Minute, "a poller starts", func() bool { return strings.Contains(p.log.String(), "poller started") })
}

// kill ends the process as a machine does that loses its power: it can do nothing about it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.ended() // killed
}

// stop ends the process in order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.ended(); err != nil {
		t.Errorf("a poller did not stop in good order: %v", err)
	}
}

func lastLines(text string, n int) string {
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// outsider is a way to the world's database that is no poller's.
func outsider(t *testing.T, w *world) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(t.Context(), db.Config{URL: w.database, AppName: "outsider", MaxConns: 4})
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// value reads one value.
func value[T any](t *testing.T, pool *pgxpool.Pool, query string, args ...any) (v T) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), query, args...).Scan(&v))
	return v
}
