package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// tasker is a tmuxd of its own that runs tasks, a process that can be killed at a place.
type tasker struct {
	t      *testing.T
	binary string
	dir    string
	cmd    *exec.Cmd
	client tmuxdv1.TmuxdServiceClient
}

func newTasker(t *testing.T, binary string) *tasker {
	t.Helper()
	needs.Program(t, "tmux")
	execs, err := wrapperBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	d := &tasker{t: t, binary: binary, dir: dir}
	config := fmt.Sprintf("tmuxd:\n  exec: %s\n  roots: [%s/work]\n  harnesses:\n    sh: {binary: /bin/sh, task: ['-s']}\n", execs, dir)
	if err := os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.end()
		os.RemoveAll(dir)
	})
	return d
}

// start starts tmuxd, which ends at the place where it is named, once.
func (d *tasker) start(place string) {
	d.t.Helper()
	cmd := exec.Command(d.binary, "--data-dir", d.dir)
	cmd.Env = append(os.Environ(), failpoint.Variable+"="+place+"=kill", failpoint.OnceVariable+"="+filepath.Join(d.dir, "once"))
	if place == "" {
		cmd.Env = os.Environ()
	}
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.cmd = cmd
	socket := filepath.Join(d.dir, "run", "tmuxd.sock")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			d.t.Fatalf("tmuxd does not answer: %s", text)
		}
	}
	d.client = tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(d.t, "unix:"+socket, rpc.DialOptions{Name: "tmuxd"}))
}

// end ends tmuxd; what it runs lives on.
func (d *tasker) end() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

func (d *tasker) died() bool {
	_, err := os.Stat(filepath.Join(d.dir, "once"))
	return err == nil
}

// TestAttempts_ATmuxdThatIsKilledAnywhereGoesOn kills tmuxd at each place that an attempt passes, starts it again, and asks again.
func TestAttempts_ATmuxdThatIsKilledAnywhereGoesOn(t *testing.T) {
	t.Parallel()
	binary, err := mortalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range failpoint.Attempts() {
		t.Run(place, func(t *testing.T) { newTasker(t, binary).crash(place) })
	}
}

// crash runs a task to its end, or to a stop, past a place where tmuxd is killed.
func (d *tasker) crash(place string) {
	t := d.t
	stops := place == "tmuxd.attempt.ordered" || place == "tmuxd.attempt.asked"
	script := "echo x >> ran\nexit 7\n"
	if stops {
		script = "echo x >> ran\necho $$ > pid\nsleep 300\n"
	}
	id := uuid.NewString()
	run := &tmuxdv1.RunTaskRequest{AttemptId: id, Harness: "sh", Directory: filepath.Join(d.dir, "work"), Prompt: script, FencingToken: 1,
		Limit: durationpb.New(time.Minute), Grace: durationpb.New(time.Second)}
	stop := &tmuxdv1.StopAttemptRequest{AttemptId: id, FencingToken: 2, Reason: "why"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d.start(place)
	_, runErr := d.client.RunTask(ctx, run)
	if stops {
		d.await("it runs", func() bool { _, err := os.Stat(filepath.Join(d.dir, "work", "pid")); return err == nil })
		_, _ = d.client.StopAttempt(ctx, stop)
	}
	d.await("tmuxd is killed", d.died)
	d.end()
	d.start("")
	// A caller that heard nothing asks again.
	res, err := d.client.RunTask(ctx, run)
	if stops {
		_, err = d.client.StopAttempt(ctx, stop)
	}
	if err != nil || runErr == nil && res != nil && !res.GetAlready() {
		t.Fatalf("%v, %v; first %v", res, err, runErr)
	}
	var last *tmuxdv1.Attempt
	d.await("it is over", func() bool {
		got, err := d.client.GetAttempt(ctx, &tmuxdv1.GetAttemptRequest{AttemptId: id})
		last = got.GetAttempt()
		return err == nil && last.GetRunning() == nil && last.GetUnknown() == nil
	})
	data, _ := os.ReadFile(filepath.Join(d.dir, "work", "ran"))
	ran := strings.Count(string(data), "x")
	switch {
	case ran > 1:
		t.Errorf("it ran %d times", ran)
	case stops && (last.GetStopped() == nil || last.GetStopped().GetReason() != "why"):
		t.Errorf("%v", last)
	case !stops && ran == 1 && last.GetFailed().GetExit().GetCode() != 7:
		t.Errorf("%v", last)
	case ran == 0 && last.GetLaunchFailed() == nil:
		t.Errorf("%v", last)
	}
	d.await("nothing is left in tmux", func() bool {
		got, err := d.client.GetAttempt(ctx, &tmuxdv1.GetAttemptRequest{AttemptId: id})
		return err == nil && got.GetAttempt().GetSocketPath() == ""
	})
	if stops {
		pid, _ := os.ReadFile(filepath.Join(d.dir, "work", "pid"))
		var n int
		if _, err := fmt.Sscan(string(pid), &n); err != nil || syscall.Kill(n, 0) == nil {
			t.Errorf("%q lives on, %v", pid, err)
		}
	}
}

func (d *tasker) await(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			d.t.Fatalf("waited in vain until %s; log:\n%s", what, text)
		}
	}
}
