package tmux

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// titles is a program that makes a title of each line that is typed.
const titles = `stty -echo; echo ready; while read -r line; do printf '\033]2;%s\007' "$line"; done`

// titled is a session that runs a script once it was started with titles noted, and the file in which tmux notes what the titles say.
func titled(t *testing.T, bin, script string) (r *rig, note string) {
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
	s := r.session(script)
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
			r, note := titled(t, bin, titles)
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
			r, note := titled(t, bin, titles)
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

// What the title says next is read while the word before is written, and tmux tells no hook of it.
func TestTitle_TheLastOfSeveralInARowIsNoted(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			// tmux reads four kilobytes in one turn: each title comes in a turn of its own, and that right after the one before.
			r, note := titled(t, bin, `stty -echo; pad=$(printf '%4096s'); echo ready
				while read -r line; do
					out=; for word in $line; do n=$((n+1)); out="$out$pad$(printf '\033]2;%s %s\007' "$word" $n)"; done; printf %s "$out"
				done`)
			titles := 0
			for n, row := range []struct{ titles, want string }{
				{"⠋ x", "idle"}, {"x ⠋", "working"}, {"⠋ x ⠋", "working"}, {"x ⠋ x", "idle"}, {"⠋ ⠋ x x x", "idle"},
			} {
				first, word := "⠋", "working" // the last word is always another one than the one before
				if row.want == word {
					first, word = "x", "idle"
				}
				for again := range 20 {
					for _, step := range []struct{ titles, want string }{{first, word}, {row.titles, row.want}} {
						r.deliver("delivery-"+Nonce(), step.titles)
						titles += len(strings.Fields(step.titles))
						r.until("the last title shows", func() bool {
							s, ok, err := r.Capture(r.ctx(), target, r.guard)
							return err == nil && ok && strings.HasSuffix(s.Title, fmt.Sprintf(" %d", titles))
						})
						r.until(fmt.Sprintf("%d: %q says %s for the %d. time", n, step.titles, step.want, again+1),
							func() bool { got, _ := os.ReadFile(note); return string(got) == step.want })
					}
				}
			}
		})
	}
}

// A client that leaves while a word is noted must not take the server with it, and the agent: on 3.3a the commands that are left of a client
// that is gone end the server, if any of them runs.
func TestTitle_ClientsThatLeaveWhileItIsNotedDoNoHarm(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			// It says another thing several hundred times a second, which no program does.
			r, note := titled(t, bin, `stty -echo; echo ready; while sleep 0.001; do printf '\033]2;⠋ w\007'; sleep 0.001; printf '\033]2;w\007'; done`)
			// The server still notes when the test is over, and its directory could not be removed.
			defer func() {
				_ = syscall.Kill(r.made.Server.Pid, syscall.SIGKILL)
				r.until("the server has ended", func() bool { return syscall.Kill(r.made.Server.Pid, 0) != nil })
			}()
			for _, word := range []string{"working", "idle"} {
				r.until("it is noted as "+word, func() bool { got, _ := os.ReadFile(note); return string(got) == word })
			}
			for n := range 400 {
				client := exec.CommandContext(r.ctx(), bin, "-S", r.Socket(target), "-C", "attach-session", "-f", "no-output,ignore-size", "-t", "="+target)
				if _, err := client.StdinPipe(); err != nil {
					t.Fatal(err)
				}
				out, err := client.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := client.Start(); err != nil {
					t.Fatal(err)
				}
				// It is let in, and leaves.
				_, _ = bufio.NewReader(out).ReadString('\n')
				_ = client.Process.Signal(endClient)
				_ = client.Wait()
				// The next comes once the server knows of this one no more, as ours do.
				r.until("it has left", func() bool {
					left, err := exec.CommandContext(r.ctx(), bin, "-S", r.Socket(target), "list-clients", "-F", "#{client_pid};").Output()
					return err != nil || !strings.Contains(string(left), fmt.Sprintf("%d;", client.Process.Pid))
				})
				if err := syscall.Kill(r.made.Server.Pid, 0); err != nil {
					t.Fatalf("the server is gone after %d clients: %v", n+1, err)
				}
			}
		})
	}
}
