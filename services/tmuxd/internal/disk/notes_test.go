package disk

import (
	"os"
	"strings"
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
