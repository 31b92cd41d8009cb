package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// screen is the text of a frame, without the blank rows of its middle.
func screen(f frame) []string {
	var out []string
	for _, r := range f.rows {
		if s := strings.TrimRight(r.lead+r.text, " "); s != "" {
			out = append(out, s)
		}
	}
	return out
}

const banner = "fakeagent " + version + " · session old"

func TestRender_ShowsTheComposerOnlyWhenReady(t *testing.T) {
	d := newDesk(nil)
	d.keys("early")
	f := render(d.model, 80, 24)
	if f.cursor || f.title != "" || cmp.Diff([]string{banner, "Starting…"}, screen(f)) != "" {
		t.Errorf("starting: %+v", f)
	}
	d.pass(time.Second)
	f = render(d.model, 80, 24)
	if d := cmp.Diff([]string{banner, "› early", "  fake-1 · /src"}, screen(f)); d != "" {
		t.Error(d)
	}
	if !f.cursor || f.x != 7 || f.y != 22 || f.title != "fakeagent" {
		t.Errorf("cursor %v at %d,%d, title %q", f.cursor, f.x, f.y, f.title)
	}
}

func TestRender_AnEmptyBoxShowsADimPlaceholder(t *testing.T) {
	f := render(readyDesk(nil).model, 80, 24)
	if got := f.rows[22]; got != (row{lead: "› ", text: "Ask fakeagent to do anything", dim: true}) {
		t.Errorf("%+v", got)
	}
	if f.x != 2 || f.y != 22 || !f.cursor {
		t.Errorf("cursor %v at %d,%d", f.cursor, f.x, f.y)
	}
}

func TestRender_ABoxOfManyLinesShowsItsTail(t *testing.T) {
	d := readyDesk(func(s *settings) { s.fold = 10000 })
	d.pasted("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\nlast of them\n")
	f := render(d.model, 80, 24)
	want := []string{banner, "› 4", "  5", "  6", "  7", "  8", "  9", "  10", "  11", "  last of them", "  fake-1 · /src"}
	if d := cmp.Diff(want, screen(f)); d != "" {
		t.Error(d)
	}
	if f.x != 2 || f.y != 22 {
		t.Errorf("cursor at %d,%d", f.x, f.y)
	}
}

func TestRender_TellsBusyByTitleAndFooterAndStreamingByTitleAlone(t *testing.T) {
	d := readyDesk(nil)
	idle := render(d.model, 80, 24)
	d.pasted("go")
	d.pass(time.Second)
	d.keys("\r")
	d.pasted("next")
	d.pass(200 * time.Millisecond)
	d.keys("\r")
	want := []string{banner, "> go", "↳ queued: 4 chars", "› Ask fakeagent to do anything", "  fake-1 · /src · esc to interrupt"}
	f := render(d.model, 80, 24)
	if d := cmp.Diff(want, screen(f)); d != "" {
		t.Error(d)
	}
	if f.title != "⠹ fakeagent" {
		t.Errorf("title %q", f.title)
	}
	d = readyDesk(nil)
	d.pasted("zz:stream")
	d.pass(time.Second)
	d.keys("\r")
	f = render(d.model, 80, 24)
	if diff := cmp.Diff(idle.rows[22:], f.rows[22:], cmp.AllowUnexported(row{})); diff != "" || f.title != "⠋ fakeagent" {
		t.Error(f.title, diff)
	}
}

func TestRender_ADialogHidesTheComposerAndTheCursor(t *testing.T) {
	d := readyDesk(nil)
	d.keys("draft")
	d.openDialog()
	f := render(d.model, 80, 24)
	want := []string{banner, "Would you like to run the following command?", "› 1. Yes, proceed (y)", "  2. Yes, and don't ask again (p)",
		"  3. No, and tell the agent what to do differently (esc)", "Press enter to confirm or esc to cancel"}
	if d := cmp.Diff(want, screen(f)); d != "" {
		t.Error(d)
	}
	if f.cursor || f.title != "[ ! ] Action Required | fakeagent" {
		t.Errorf("cursor %v, title %q", f.cursor, f.title)
	}
}

func TestRender_KeepsTheEndOfTheConversation(t *testing.T) {
	d := readyDesk(nil)
	for range 30 {
		d.say(leadAgent, "old")
	}
	d.say(leadUser, "one\ntwo")
	got := screen(render(d.model, 80, 8))
	want := []string{banner, "• old", "> one", "  two", "› Ask fakeagent to do anything", "  fake-1 · /src"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRender_EveryScreenIsWholeWhateverItsSize(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := newDesk(nil)
		for range rapid.IntRange(0, 12).Draw(r, "steps") {
			switch rapid.IntRange(0, 4).Draw(r, "step") {
			case 0:
				d.pasted(strings.ToValidUTF8(rapid.String().Draw(r, "paste"), ""))
			case 1:
				d.keys(rapid.StringOf(rapid.RuneFrom([]rune("ab \r\n\x03\x1b\x15\x7f界y3"))).Draw(r, "keys"))
			case 2:
				d.pass(rapid.SampledFrom([]time.Duration{0, 160 * time.Millisecond, time.Second}).Draw(r, "pass"))
			case 3:
				d.openDialog()
			case 4:
				d.keys("\r")
			}
		}
		w, h := rapid.IntRange(0, 90).Draw(r, "w"), rapid.IntRange(0, 30).Draw(r, "h")
		f := render(d.model, w, h)
		w, h = max(w, 1), max(h, 1)
		if len(f.rows) != h || f.x < 0 || f.x >= w || f.y < 0 || f.y >= h {
			r.Fatalf("%d rows, cursor %d,%d on %dx%d", len(f.rows), f.x, f.y, w, h)
		}
		if paint(&f, f) != nil {
			r.Fatal("the same frame is painted twice")
		}
		if len(paint(nil, f)) == 0 {
			r.Fatal("a fresh screen stays unpainted")
		}
	})
}

func TestWrap_BreaksAfterSpacesAndInsideLongWordsOnly(t *testing.T) {
	tests := []struct {
		text string
		n    int
		want []string
		all  bool
	}{
		{"", 3, []string{""}, true},
		{"one two three", 3, []string{"one two ", "three"}, true},
		{"one twothree", 3, []string{"one ", "twothree"}, true},
		{"abcdefghijkl", 3, []string{"abcdefgh", "ijkl"}, true},
		{"12345678 9", 3, []string{"12345678", "9"}, true},
		{"界界界界界", 3, []string{"界界界界", "界"}, true},
		{"a\tb\x1b[c", 3, []string{"a    ", "b\uFFFD[c"}, true},
		{"1\n2\n3\n", 2, []string{"3", ""}, false},
		{"1\n2", 2, []string{"1", "2"}, true},
	}
	for _, tt := range tests {
		got, all := wrapTail(tt.text, 8, tt.n)
		if d := cmp.Diff(tt.want, got); d != "" || all != tt.all {
			t.Errorf("%q: whole %v %s", tt.text, all, d)
		}
	}
}

func TestPaint_WritesOnlyWhatChanged(t *testing.T) {
	d := readyDesk(nil)
	before := render(d.model, 80, 24)
	d.keys("x")
	after := render(d.model, 80, 24)
	if got, want := string(paint(&before, after)), "\x1b[23;1H\x1b[2K› x\x1b[23;4H"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
