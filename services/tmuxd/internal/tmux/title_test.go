package tmux

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// titled is a session whose program makes a title of each line that is typed, and the file in which tmux notes what the titles say.
func titled(t *testing.T, bin string) (r *rig, note string) {
	t.Helper()
	r = newRigOf(t, bin, "exit 0")
	r.until("the first one is over", func() bool { return len(r.view().Panes) == 1 && r.view().Panes[0].Dead })
	if ok, err := r.Remove(r.ctx(), target, r.dead()); err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	dir := filepath.Join(t.TempDir(), "with #{pane_id}, 'quotes' and }")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := r.session(`stty -echo; echo ready; while read -r line; do printf '\033]2;%s\007' "$line"; done`)
	s.Title = &host.Title{Note: filepath.Join(dir, "note"), Busy: `^[⠋⠙,}] |^a, b#`, Dialogs: []string{"[ ! ] Action", `*,}#{pane_id}`}}
	var err error
	r.until("its server is gone", func() bool { r.made, err = r.Create(r.ctx(), s); return err == nil })
	r.guard.Pane, r.guard.Pid, r.guard.Session = r.made.Pane, r.made.Pid, r.made.SessionID
	r.until("the program reads", func() bool { return strings.Contains(r.screen(), "ready") })
	return r, s.Title.Note
}

func TestTitle_IsNotedWhenItSaysAnotherThing(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			r, note := titled(t, bin)
			for n, row := range []struct{ title, want string }{
				{"widget", "idle"}, {"⠋ widget", "working"}, {"[ ! ] Action Required", "awaiting_approval"}, {"⠙ widget", "working"},
				{"x [ ! ] Action", "idle"}, {"a, b#c", "working"}, {"*,}#{pane_id} x", "awaiting_approval"}, {"⠹ widget", "idle"}, {"} widget", "working"},
			} {
				r.deliver(fmt.Sprintf("delivery-%04d", n), row.title)
				var got []byte
				r.until(row.title+" says "+row.want, func() bool { got, _ = os.ReadFile(note); return string(got) == row.want })
			}
			// Another title that says the same is not noted, and leaves nothing behind.
			if err := os.Remove(note); err != nil {
				t.Fatal(err)
			}
			r.deliver("delivery-1000", "⠋ widget")
			r.until("the title is another one", func() bool {
				s, ok, err := r.Capture(r.ctx(), target, r.guard)
				return err == nil && ok && s.Title == "⠋ widget"
			})
			if got, err := os.ReadFile(note); err == nil {
				t.Errorf("it was noted again: %s", got)
			}
			r.deliver("delivery-1001", "x widget")
			r.until("the next word is noted", func() bool { got, _ := os.ReadFile(note); return string(got) == "idle" })
			n := Nonce()
			if got, err := r.say(r.ctx(), n, "list-buffers ; display-message -p 'END|"+n+"'"); err != nil || len(got.lines) != 1 {
				t.Errorf("buffers are left: %q, %v", got.lines, err)
			}
		})
	}
}

// A file that cannot be written must not cost the session anything.
func TestTitle_ANoteThatCannotBeWrittenHindersNoDelivery(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			r, note := titled(t, bin)
			if err := os.RemoveAll(filepath.Dir(note)); err != nil {
				t.Fatal(err)
			}
			for n, title := range []string{"⠋ widget", "widget", "⠋ widget", "done"} {
				r.deliver(fmt.Sprintf("delivery-%04d", n), title)
				r.until("the title is "+title, func() bool {
					s, ok, err := r.Capture(r.ctx(), target, r.guard)
					return err == nil && ok && s.Title == title
				})
			}
		})
	}
}
