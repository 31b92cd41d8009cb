package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// mortalBinary builds a tmuxd that can be made to die at named places, once a test run, beside the wrapper.
var mortalBinary = sync.OnceValues(func() (string, error) {
	wrapper, err := wrapperBinary()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(wrapper), "muxpost-tmuxd")
	out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", path, "muxpost.dev/muxpost/services/tmuxd").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cannot build tmuxd: %w\n%s", err, out)
	}
	return path, err
})

// daemon is a tmuxd of its own process on the rig's state directory.
type daemon struct {
	*rig
	script string
	// count is tmuxd.retain.count.
	count int
	cmd   *exec.Cmd
	log   *os.File
}

func newDaemon(t *testing.T, script string) *daemon {
	t.Helper()
	r := newRig(t, nil)
	r.tmux.Close()
	r.disk.Close() // the directory has one user
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{rig: r, script: "F=" + filepath.Join(r.dir, "pids") + "; export F; " + script, count: 50, log: log}
	t.Cleanup(func() {
		if d.cmd != nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		log.Close()
	})
	return d
}

// start starts it, so that it dies at a place if one is named, and returns its client and the marker of that place.
func (d *daemon) start(place string) (client tmuxdv1.TmuxdServiceClient, marker string) {
	d.t.Helper()
	binary, err := mortalBinary()
	if err != nil {
		d.t.Fatal(err)
	}
	config := filepath.Join(d.dir, "muxpost.yaml")
	text := fmt.Sprintf(`tmuxd:
  listen: unix:%[1]s/tmuxd.sock
  data_dir: %[1]s
  host: a
  state_dir: %[1]s/state
  exec: %[2]s
  roots: [%[1]s/work]
  directory: %[1]s/work/{target}
  retain: {count: %[3]d}
  harnesses:
    sh:
      binary: /bin/sh
      fresh: ["-c", %[4]q]
      prompt: '^> (.*)$'
      survival: 300ms
    fakeagent: {binary: %[5]s, channel: socket}
`, d.dir, d.execs, d.count, d.script, d.entry.Binary)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.cmd = exec.Command(binary, "--config", config)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.Env = os.Environ()
	if place != "" {
		marker = filepath.Join(d.dir, "died-at-"+place)
		d.cmd.Env = append(d.cmd.Env, failpoint.Variable+"="+place+"=kill", failpoint.OnceVariable+"="+marker)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	conn, err := rpc.Dial("unix:"+filepath.Join(d.dir, "tmuxd.sock"), rpc.DialOptions{Name: "tmuxd"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return tmuxdv1.NewTmuxdServiceClient(conn), marker
}

// up is start, and waits until it answers.
func (d *daemon) up(place string) (client tmuxdv1.TmuxdServiceClient, marker string) {
	d.t.Helper()
	client, marker = d.start(place)
	d.soon("tmuxd answers", func() bool {
		_, err := client.Info(d.ctxFor(time.Second), &tmuxdv1.InfoRequest{})
		return err == nil
	})
	return client, marker
}

// soon waits for something that does not go through the rig's own host.
func (d *daemon) soon(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(d.log.Name())
			d.t.Fatalf("waited in vain until %s; log:\n%s", what, log)
		}
	}
}

// died waits until it died, and proves that it died where it should.
func (d *daemon) died(marker string) {
	d.t.Helper()
	d.soon("it dies at "+filepath.Base(marker), func() bool { _, err := os.Stat(marker); return err == nil })
	_ = d.cmd.Wait()
	if ws, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		d.t.Fatalf("it ended by itself: %v", d.cmd.ProcessState)
	}
	d.cmd = nil
}

// stop ends it as an operator would.
func (d *daemon) stop() {
	d.t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("it ended with %v", err)
	}
	d.cmd = nil
}

// agent starts the session and waits until its program has left what it leaves. It returns the stamp, and all that lives of it.
func (d *daemon) agent(client tmuxdv1.TmuxdServiceClient) (stamp string, pids []int) {
	d.t.Helper()
	res, err := client.Spawn(d.ctx(), &tmuxdv1.SpawnRequest{WorkItem: d.item.String(), Harness: "sh", FencingToken: d.token(),
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}})
	if err != nil || res.GetStarted() == nil {
		d.t.Fatalf("%v, %v", res, err)
	}
	stamp = res.GetStarted().GetIncarnation().GetStamp()
	d.soon("it left something", func() bool {
		data, _ := os.ReadFile(filepath.Join(d.dir, "pids"))
		pids = nil
		for f := range strings.FieldsSeq(string(data)) {
			pid := 0
			_, _ = fmt.Sscan(f, &pid)
			pids = append(pids, pid)
		}
		return len(pids) == 3
	})
	rec := d.record(stamp)
	return stamp, append(pids, rec.Wrapper.Pid, rec.Child.Pid)
}

func (d *daemon) stateOf(client tmuxdv1.TmuxdServiceClient) tmuxdv1.State {
	d.t.Helper()
	st, err := client.SessionState(d.ctx(), &tmuxdv1.SessionStateRequest{WorkItem: d.item.String()})
	if err != nil {
		d.t.Fatal(err)
	}
	return st.GetState()
}

// It dies in the middle of an end, is started again and asked again: the end is the same.
func TestEnd_ATmuxdThatDiesInTheMiddleGoesOn(t *testing.T) {
	t.Parallel()
	for _, place := range failpoint.Ends() {
		if strings.HasPrefix(place, "tmuxd.reap.") {
			continue
		}
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, "trap '' TERM HUP INT; "+leaves+waits)
			client, marker := d.up(place)
			stamp, pids := d.agent(client)
			end := func(ctx context.Context) (done, already bool, err error) {
				if strings.HasPrefix(place, "tmuxd.kill.") {
					res, err := client.Kill(ctx, &tmuxdv1.KillRequest{WorkItem: d.item.String(), IncarnationStamp: stamp, FencingToken: d.token(),
						Force: true, Reason: "alice: a test"})
					return res.GetKilled() != nil, res.GetKilled().GetAlready(), err
				}
				res, err := client.Terminate(ctx, &tmuxdv1.TerminateRequest{WorkItem: d.item.String(), IncarnationStamp: stamp, FencingToken: d.token(),
					Grace: durationpb.New(300 * time.Millisecond), Reason: "alice: a test"})
				return res.GetTerminated() != nil, res.GetTerminated().GetAlready(), err
			}
			if _, _, err := end(d.ctx()); err == nil {
				t.Fatal("it was answered, so nothing died")
			}
			d.died(marker)
			client, _ = d.up("")
			done, already, err := end(d.ctx())
			if err != nil || !done {
				t.Errorf("%v, %v", done, err)
			}
			// Behind its KILL it may have ended by now.
			if over := slices.Contains([]string{"tmuxd.terminate.answering", "tmuxd.kill.removed"}, place); already != over && place != "tmuxd.terminate.killed" {
				t.Errorf("already %v, want %v", already, over)
			}
			d.allGone(pids...)
			want := tmuxdv1.State_STATE_DEAD
			if strings.HasPrefix(place, "tmuxd.kill.") {
				want = tmuxdv1.State_STATE_ABSENT
			}
			if got := d.stateOf(client); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			d.stop()
		})
	}
}

func TestReap_ATmuxdThatDiesInTheMiddleGoesOn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, leaves+waits)
	client, _ := d.up("")
	stamp, _ := d.agent(client)
	res, err := client.Terminate(d.ctx(), &tmuxdv1.TerminateRequest{WorkItem: d.item.String(), IncarnationStamp: stamp, FencingToken: d.token(), Reason: "alice"})
	if err != nil || res.GetTerminated() == nil {
		t.Fatalf("%v, %v", res, err)
	}
	d.stop()
	d.count = 0 // nothing that has ended is kept, and that is looked after at the start
	_, marker := d.start("tmuxd.reap.removed")
	d.died(marker)
	if got := d.files(stamp); len(got) == 0 {
		t.Error("what was remembered went before the session was looked after")
	}
	client, _ = d.up("")
	if got := d.stateOf(client); got != tmuxdv1.State_STATE_ABSENT {
		t.Errorf("%v", got)
	}
	d.stop()
	// What is remembered of a session that is gone goes by its age.
	d.open()
	d.later(8 * 24 * time.Hour)
	d.Reap(d.ctx(), host.Retain{Age: 7 * 24 * time.Hour})
	if got := d.files(d.item.Target(), stamp); !slices.Equal(got, []string{"tokens/" + d.item.Target() + ".json"}) {
		t.Errorf("left: %v", got)
	}
}
