package disk

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestNote_IsAWordAConversationAndADetail(t *testing.T) {
	d := open(t)
	for text, want := range map[string]host.Note{
		"idle":                             {Word: "idle"},
		"working ses_1\n":                  {Word: "working", Conversation: "ses_1"},
		"needs_human ses_1 x\nlog in\nand": {Word: "needs_human", Conversation: "ses_1", Detail: "log in"},
		"idle\n\n":                         {Word: "idle"},
	} {
		if err := os.WriteFile(d.NotePath(target, "s1"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, ok := d.Note(target, "s1")
		if time.Since(n.At).Abs() > time.Minute {
			t.Errorf("told at %v", n.At)
		}
		if n.At = (time.Time{}); !ok || n != want {
			t.Errorf("%q: %+v, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "\n", " \nx"} {
		if err := os.WriteFile(d.NotePath(target, "s1"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, ok := d.Note(target, "s1"); ok {
			t.Errorf("%q: %+v", text, n)
		}
	}
	long := strings.Repeat("w", 399) + "ü"
	if err := os.WriteFile(d.NotePath(target, "s1"), []byte("idle\n"+long+strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, ok := d.Note(target, "s1"); !ok || len(n.Detail) > maxNoted || !utf8.ValidString(n.Detail) {
		t.Errorf("%d bytes, %v", len(n.Detail), ok)
	}
	if _, ok := d.Note(target, "s2"); ok {
		t.Error("another incarnation has one")
	}
}

// waits is how long something may take that must not wait for anybody.
const waits = 10 * time.Second

// atOnce fails when f waits for somebody, and lets it go then.
func atOnce(t *testing.T, fifo string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(waits):
		t.Error("it waits for a writer")
		if w, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
			_ = w.Close()
		}
		<-done
	}
}

// Notes of all agents are read one after another: one of them must not hold up the others.
func TestNote_APipeInItsPlaceHoldsNobodyUp(t *testing.T) {
	d := open(t)
	path := d.NotePath(target, "s1")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	atOnce(t, path, func() {
		if n, ok := d.Note(target, "s1"); ok {
			t.Errorf("%+v", n)
		}
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(elsewhere, []byte("idle x\nsecret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	if n, ok := d.Note(target, "s1"); ok {
		t.Errorf("a link was followed: %+v", n)
	}
}

func TestProvide_ReplacesWhateverIsNotTheText(t *testing.T) {
	d := open(t)
	path := d.path("harness", "h", "config")
	for name, put := range map[string]func() error{
		"nothing":   func() error { return nil },
		"the text":  func() error { return os.WriteFile(path, []byte("text"), 0o600) },
		"longer":    func() error { return os.WriteFile(path, []byte("text and more"), 0o600) },
		"a pipe":    func() error { return syscall.Mkfifo(path, 0o600) },
		"a link":    func() error { return os.Symlink("/nowhere", path) },
		"to itself": func() error { return os.Symlink(path, path) },
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		atOnce(t, path, func() {
			if err := d.Provide(path, "text"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, info, err)
		} else if data, err := os.ReadFile(path); err != nil || string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if err := os.RemoveAll(d.path("harness")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoteOf_IsTheOwnerByTheName(t *testing.T) {
	d := open(t)
	for name, want := range map[string]bool{"loop-x.s1": true, "loop-x": false, ".s1": false, "loop-x.": false, "loop-x.s1.new": false} {
		if _, _, ok := NoteOf(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
	if target, stamp, ok := NoteOf(strings.TrimPrefix(d.NotePath(target, "s1"), d.NotesDir()+"/")); !ok || target != "loop-octo-widget-7" || stamp != "s1" {
		t.Errorf("%q, %q, %v", target, stamp, ok)
	}
}

func TestTidy_RemovesTheNotesOfWhatIsOver(t *testing.T) {
	d := open(t)
	_, lives := sleeper(t)
	for stamp, r := range map[string]wrapper.Record{"s1": {State: wrapper.Running, Wrapper: lives}, "s2": {State: wrapper.Exited, Wrapper: gone(t)}} {
		r.Stamp = stamp
		if err := wrapper.WriteRecord(d.record(target, stamp), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Prepare(host.Run{Target: target, Stamp: "s3", Argv: []string{"x"}, NotAfter: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{target + ".s1": time.Hour, target + ".s2": time.Hour, target + ".s3": time.Hour, target + ".s4": time.Minute,
		target + ".s5": time.Hour, "half-written": time.Minute, "left.by.somebody": time.Hour} {
		put(t, d.path("notes", name), age)
	}
	if _, err := d.Tidy(time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, name := range d.names(t) {
		if rest, ok := strings.CutPrefix(name, "notes/"); ok {
			left = append(left, strings.TrimPrefix(rest, target+"."))
		}
	}
	if got := strings.Join(left, " "); got != "half-written s1 s3 s4" {
		t.Errorf("left: %s", got)
	}
}
