package tmux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// submits sends the CR of a delivery that was pasted in our way.
func (r *rig) submits() host.Ruling {
	r.t.Helper()
	ruling, err := r.Submit(r.ctx(), target, r.guard, del, session.Pasted, r.seen(), session.Ring{}.With(del, session.Submitted))
	if err != nil {
		r.t.Fatal(err)
	}
	return ruling
}

// bracketed is a reader that asks for bracketed paste.
const bracketed = `printf '\033[?2004h'; ` + reader

// Facts of section 5, L6 to L8, R11: in copy mode a key is read by the mode, and a paste comes without its brackets. All of it says 0.
func TestFact_CopyModeEatsTheSubmit(t *testing.T) {
	r := newRig(t, bracketed)
	s := r.raw()
	s.waitFor("%0", "ready")
	if _, status := s.run("send-keys", "-X", "-t", "%0", "cancel"); status != 1 {
		t.Errorf("leaving a mode that nobody is in: %d", status)
	}
	s.must("copy-mode", "-t", "%0")
	if status := s.paste("%0", "BARE", "-p"); status != 0 {
		t.Errorf("the paste: %d", status)
	}
	s.must("send-keys", "-t", "%0", "Enter")
	s.must("copy-mode", "-q", "-t", "%0")
	s.must("send-keys", "-t", "%0", "-l", "!")
	s.waitFor("%0", "ready BARE!") // no brackets around it, and no ^M behind it

	s.must("copy-mode", "-t", "%0")
	if ruling := r.ours("ours"); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	s.waitFor("%0", "^[[200~ours^[[201~")
	s.must("copy-mode", "-t", "%0")
	if ruling := r.submits(); ruling != host.Done {
		t.Errorf("ours, the submit: %v", ruling)
	}
	s.waitFor("%0", "^[[201~^M")
}

// L9, R13: a key is refused when the only client may only look.
func TestFact_AWatcherBlocksKeys(t *testing.T) {
	r := reading(t)
	s := r.raw()
	r.lines.closeIdle(-1) // our own client may type
	watcher := newRaw(t, "")
	watcher.must("new-window", "-t", "=keeper:", "env", "-u", "TMUX", "tmux", "-S", s.socket, "attach-session", "-r", "-t", "="+target+":")
	s.until("the watcher is there", func() bool { return s.must("list-clients", "-F", "#{client_readonly}") == "1" })
	if out, status := s.run("send-keys", "-t", "%0", "Enter"); (status != 0) != since(t, 3, 7) {
		t.Errorf("a key: %d %s", status, out)
	}
	r.until("the watcher's size is drawn", func() bool { return r.ours("ours") == host.Done })
	s.waitFor("%0", "ours")
	if ruling := r.submits(); ruling != host.Done {
		t.Errorf("ours: %v", ruling)
	}
	s.waitFor("%0", "ours^M")
}

// Section 5, L10 to L13, R9: what somebody wrote can end its own paste, and then types keys. Newer servers take only the ESC out.
func TestFact_ATextCanEndItsOwnPaste(t *testing.T) {
	for name, c := range map[string]struct{ text, typed, ours string }{
		"ESC": {"ok\x1b[201~\r!id\r", "ok^[[201~^M!id^M^[[201~", "ok[201~"},
		"C1":  {"ok\u009b201~\r!id\r", "okM-BM-^[201~^M!id^M^[[201~", "ok201~"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, bracketed)
			s := r.raw()
			s.waitFor("%0", "ready")
			s.paste("%0", c.text, "-p", "-r")
			if name == "ESC" && since(t, 3, 7) {
				c.typed = `ok^[[201~^M!id^M^[[201~` // the first of both is seven visible characters
			}
			s.waitFor("%0", "^[[200~"+c.typed)
			clean, _, err := prompt.Clean(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if ruling := r.ours(clean); ruling != host.Done {
				t.Fatalf("ours: %v", ruling)
			}
			s.waitFor("%0", "^[[200~"+c.ours)
			s.waitFor("%0", "!id^[[201~")
			if screen := r.screen(); strings.Contains(screen, c.ours+"^M") {
				t.Errorf("ours:\n%s", screen)
			}
		})
	}
}

// Section 5, L12: to a program that does not read raw, a control character in a text is a key. Newer servers make it visible.
func TestFact_AControlCharacterIsAKey(t *testing.T) {
	r := newRig(t, "printf 'ready '; exec cat")
	s := r.raw()
	s.waitFor("%0", "ready")
	clean, _, err := prompt.Clean("ours\x03\x04\x1a")
	if err != nil {
		t.Fatal(err)
	}
	if ruling := r.ours(clean); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	s.waitFor("%0", "ready ours")
	s.paste("%0", "a\x03b")
	if since(t, 3, 7) {
		s.waitFor("%0", "a^Cb")
		return
	}
	r.until("the program is interrupted", func() bool { return r.view().Panes[0].Dead })
}

// Section 5, R16, R2: two drivers that paste and press Enter, each in its own commands, send one text of both and an empty one.
func TestFact_PasteAndEnterOfTwoDriversMerge(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.paste("%0", "<A>")
	s.paste("%0", "<B>")
	s.must("send-keys", "-t", "%0", "Enter")
	s.must("send-keys", "-t", "%0", "Enter")
	s.waitFor("%0", "<A><B>^M^M")

	first := r.seen()
	if ruling := r.ours("<C>"); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	s.waitFor("%0", "<C>")
	second := host.Text{ID: "delivery-0002", Typed: "<D>", Look: first, Ring: session.Ring{}.With("delivery-0002", session.Pasted)}
	if ruling, err := r.Paste(r.ctx(), target, r.guard, second); err != nil || ruling != host.CursorMoved {
		t.Errorf("ours, the other text: %v %v", ruling, err)
	}
	if ruling := r.submits(); ruling != host.Done {
		t.Errorf("ours: %v", ruling)
	}
	s.waitFor("%0", "<C>^M")
	if ruling := r.submits(); ruling != host.DialogOrPhase {
		t.Errorf("ours, once more: %v", ruling)
	}
}

// L30, R14, R15: a buffer without a name is the newest of the server's, and a name that is always the same is no better.
func TestFact_BuffersOfTwoDriversCross(t *testing.T) {
	s := newRaw(t, "")
	s.must("new-window", "-t", "=keeper:", reader)
	s.must("split-window", "-t", "%1", reader)
	s.waitFor("%1", "ready")
	s.waitFor("%2", "ready")
	s.must("set-buffer", "for 1")
	s.must("set-buffer", "for 2")
	s.must("paste-buffer", "-d", "-t", "%1")
	s.must("paste-buffer", "-d", "-t", "%2")
	s.waitFor("%1", "ready for 2")
	s.waitFor("%2", "ready for 1")

	r := reading(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = r.raw().command(t.Context(), "set-buffer", "theirs").Run()
			}
		}
	}()
	for _, text := range []string{"ours", strings.Repeat("long", inline)} {
		if ruling := r.ours(text); ruling != host.Done {
			t.Fatalf("ours: %v", ruling)
		}
		r.raw().waitFor("%0", text[:4])
		if err := r.Advance(r.ctx(), target, "g1"); err != nil {
			t.Fatal(err)
		}
		r.raw().must("set-option", "-pu", "-t", "%0", optRing) // the same delivery is a new one
	}
	close(stop)
	<-stopped
	if strings.Contains(r.screen(), "theirs") {
		t.Errorf("ours:\n%s", r.screen())
	}
}

// L4, L5: a ; at the end is the end of a command, and a - at the beginning is a flag.
func TestFact_AnArgumentIsNotTypedAsItIs(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.must("send-keys", "-t", "%0", "-l", "--", "one;")
	s.must("send-keys", "-t", "%0", "-l", "--", ";")
	if _, status := s.run("send-keys", "-t", "%0", "-l", "-please"); status == 0 {
		t.Error("a text that begins with - was typed")
	}
	s.must("set-buffer", "-b", "b", "two;")
	s.must("paste-buffer", "-b", "b", "-t", "%0")
	s.waitFor("%0", "ready onetwo")
	if ruling := r.ours("three; #{pid} #(id) $HOME;"); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	s.waitFor("%0", "ready onetwothree; #{pid} #(id) $HOME;")
	argv := r.session("true;")
	argv.Target = target + "1"
	if made, err := r.Create(r.ctx(), argv); err == nil {
		t.Errorf("ours: a program was started with half of its argument: %+v", made)
	}
}

// L14 to L16, R6: without -r each line is sent, as Enter.
func TestFact_ANewlineIsAnEnter(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.paste("%0", "a\nb\r\n", "-p")
	s.waitFor("%0", "ready a^Mb^M^M")
	clean, _, err := prompt.Clean("c\r\nd\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if ruling := r.ours(clean); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	r.until("both lines show", func() bool { return strings.Contains(r.screen(), "d") })
	if screen := r.screen(); strings.Contains(screen, "c^M") || strings.Contains(screen, "d^M") {
		t.Errorf("ours:\n%s", screen)
	}
}

// L17, L18, R10: a command has room for 16 KB.
func TestFact_ALongTextIsTooLongForACommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	r := newRig(t, "stty raw -echo; printf 'ready '; exec cat > "+out)
	s := r.raw()
	s.waitFor("%0", "ready")
	long := strings.Repeat("0123456789abcdef", 1<<12)
	for _, args := range [][]string{
		{"send-keys", "-l", "-t", "%0", long}, {"set-buffer", "-b", "b", long}, {"new-session", "-d", "-s", "x", "cat", long},
	} {
		if _, status := s.run(args...); status == 0 {
			t.Errorf("%s takes %d bytes", args[0], len(long))
		}
	}
	if ruling := r.ours(long); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	r.until("ours arrived whole", func() bool {
		data, err := os.ReadFile(out)
		return err == nil && strings.HasSuffix(string(data), long)
	})
}
