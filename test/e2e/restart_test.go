package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/stack"
)

// pid is the process of a service, as its pid file has it.
func (w *world) pid(service string) int {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.Dir, "run", service+".json"))
	if err != nil {
		w.t.Fatal(err)
	}
	var file struct{ Process struct{ Pid int } }
	if err := json.Unmarshal(data, &file); err != nil || file.Process.Pid == 0 {
		w.t.Fatalf("%s: %v", data, err)
	}
	return file.Process.Pid
}

func TestKill_EveryServiceByTurnsLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	first, spawned := w.delivered(0)
	ids := []string{first.GetDeliveryId()}
	for i, service := range []string{"tmuxd", "dispatcher", "poller"} {
		if err := syscall.Kill(w.pid(service), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.comment(stack.Author, "after the death of "+service)
		if out, err := w.Run(w.ctx, "up"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		row, d := w.delivered(i + 1)
		if d.GetConversationId() != spawned.GetConversationId() {
			t.Errorf("after the death of %s: %v", service, d)
		}
		ids = append(ids, row.GetDeliveryId())
	}
	w.took(spawned.GetConversationId(), ids...)
}

func TestDown_LeavesAgentsAlive(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	_, spawned := w.delivered(0)
	before := w.state()
	if out, err := w.Run(w.ctx, "up"); err != nil || !strings.Contains(out, "already") {
		t.Errorf("a second up: %v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "down"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := syscall.Kill(int(before.GetIncarnation().GetPanePid()), 0); err != nil {
		t.Fatalf("the agent did not outlive down: %v", err)
	}
	if out, err := w.Run(w.ctx, "down"); err != nil {
		t.Errorf("a second down: %v\n%s", err, out)
	}
	if out, err := w.Run(w.ctx, "up"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := w.state(); after.GetState() != tmuxdv1.State_STATE_LIVE || after.GetIncarnation().GetStamp() != before.GetIncarnation().GetStamp() {
		t.Errorf("after down and up: %v", after)
	}
	w.comment(stack.Author, "still there?")
	if _, d := w.delivered(1); d.GetConversationId() != spawned.GetConversationId() {
		t.Errorf("%v", d)
	}
}

func TestOnce_PollsForwardsAndEnds(t *testing.T) {
	t.Parallel()
	w := start(t, issue(), nil)
	first, spawned := w.delivered(0)
	if err := syscall.Kill(w.pid("poller"), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.until("the poller has ended", func() bool { return syscall.Kill(w.pid("poller"), 0) != nil })
	w.comment(stack.Author, "from cron")
	cmd := exec.CommandContext(w.ctx, filepath.Join(w.Bin, "muxpost-poller"), "-once", "-config", w.ConfigFile(), "-data-dir", w.Dir)
	cmd.Env = append(os.Environ(), "MUXPOST_DATABASE_URL="+w.databaseURL())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	texts, err := w.Conversation(spawned.GetConversationId()).Texts("user")
	if err != nil || len(texts) != 2 || !strings.Contains(texts[0], first.GetDeliveryId()) || !strings.Contains(texts[1], "from cron") {
		t.Errorf("%v %v", texts, err)
	}
}

// databaseURL is the local Postgres of the stack, as the environment of a service has it.
func (w *world) databaseURL() string {
	w.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.pid("dispatcher")))
	if err != nil {
		w.t.Fatal(err)
	}
	for kv := range strings.SplitSeq(string(data), "\x00") {
		if url, ok := strings.CutPrefix(kv, "MUXPOST_DATABASE_URL="); ok {
			return url
		}
	}
	w.t.Fatal("the dispatcher has no database URL in its environment")
	return ""
}
