package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakemodel"
	"muxpost.dev/muxpost/test/stack"
)

// The whole way with real agent programs: an issue starts one in a worktree of its repository, comments reach it, and after its death it comes
// back with its conversation. What arrived is judged by what reached the model.
func TestAgents_ARealProgramFromTheIssueToTheModel(t *testing.T) {
	for _, name := range []string{"codex", "opencode"} {
		t.Run(name, func(t *testing.T) {
			program := needs.Agent(t, name)
			needs.Program(t, "git")
			model, err := fakemodel.Start(fakemodel.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = model.Close() })
			w := startBuild(t, &shipped, 6*time.Minute, issue(), func(w *world) {
				home, repo := filepath.Join(w.Dir, "home"), filepath.Join(w.Dir, "repo")
				for _, err := range []error{
					fakemodel.CodexHome(filepath.Join(home, ".codex"), model.URL()),
					fakemodel.OpencodeConfig(filepath.Join(home, ".config", "opencode"), model.URL()),
				} {
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, args := range [][]string{{"init", "--quiet", repo}, {"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet",
					"--allow-empty", "-m", "begin"}} {
					if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
						t.Fatalf("git %v: %v: %s", args, err, out)
					}
				}
				w.configure("  host: laptop\n", "  host: laptop\n  trees: [{kind: worktree, repository: "+repo+"}]\n  harnesses:\n    "+name+
					": {binary: "+program+", pass_env: ["+fakemodel.KeyVariable+"]}\n")
				w.configure("harness: fakeagent", "harness: "+name)
				w.Env = append(w.Env, "HOME="+home, fakemodel.KeyVariable+"=x", "PATH="+os.Getenv("PATH"))
			})
			// A program that starts slowly lives already when it can be typed into.
			first := w.arrives(model, 0, dispatcherv1.How_HOW_SPAWNED, dispatcherv1.How_HOW_PASTED)
			if st := w.state(); !strings.HasSuffix(st.GetDirectory(), "loop-octo-widget-7") {
				t.Errorf("it works in %s", st.GetDirectory())
			}
			w.comment(stack.Author, "It began with the Makefile.\n!ls\n/exit")
			w.arrives(model, 1, dispatcherv1.How_HOW_PASTED)
			conversation := w.state().GetConversationId()
			w.kill()
			w.comment(stack.Author, "Go on.")
			third := w.arrives(model, 2, dispatcherv1.How_HOW_RESUMED, dispatcherv1.How_HOW_PASTED)
			if conversation == "" || third.GetConversationId() != conversation || first.GetTarget() != third.GetTarget() {
				t.Errorf("conversation %q, then %v", conversation, third)
			}
		})
	}
}

// arrives waits for the end of the nth event and for its one arrival at the model.
func (w *world) arrives(model *fakemodel.Server, n int, how ...dispatcherv1.How) *dispatcherv1.Delivery {
	w.t.Helper()
	row, err := w.WaitEvent(w.ctx, item, n)
	if err != nil {
		screen, _ := w.Screen(w.ctx, item)
		w.t.Fatalf("%v; screen:\n%s", err, screen)
	}
	d, err := w.Dispatcher.GetDelivery(w.ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: row.GetDeliveryId()})
	if err != nil || row.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED || !slices.Contains(how, d.GetDelivery().GetHow()) {
		w.t.Fatalf("%v, %v, %v", row, d, err)
	}
	count := func(all []fakemodel.Message) (n int) {
		for _, m := range fakemodel.Prompts(all) {
			n += strings.Count(m.Text, row.GetDeliveryId())
		}
		return n
	}
	if err := model.Wait(w.ctx, func(all []fakemodel.Message) bool { return count(all) > 0 }); err != nil {
		w.t.Fatal(err)
	}
	// What follows is typed only once the agent is idle, so a second arrival would be seen by then.
	w.until("the agent is idle", func() bool {
		res, err := w.Tmuxd.SessionState(w.ctx, &tmuxdv1.SessionStateRequest{WorkItem: item})
		return err == nil && res.GetState() == tmuxdv1.State_STATE_LIVE
	})
	if n := count(model.Received()); n != 1 {
		w.t.Errorf("%s reached the model %d times", row.GetDeliveryId(), n)
	}
	return d.GetDelivery()
}
