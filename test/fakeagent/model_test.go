package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// desk is a model with its own clock, typed at byte by byte or paste by paste.
type desk struct {
	*model
	at   time.Time
	done []string
}

func newDesk(change func(*settings)) *desk {
	s := settings{
		cwd: "/src", readyAfter: 300 * time.Millisecond, pasteSettle: 150 * time.Millisecond, turn: 300 * time.Millisecond, fold: 20,
		newID: func() string { return "new" },
	}
	if change != nil {
		change(&s)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &desk{model: newModel(s, "old", nil, at), at: at}
}

// ready is a desk whose composer is open.
func readyDesk(change func(*settings)) *desk {
	d := newDesk(change)
	d.pass(time.Second)
	return d
}

// keys is one read of the terminal.
func (d *desk) keys(s string) {
	var dec decoder
	events := append(dec.feed([]byte(s)), dec.flush()...)
	d.note(d.input(d.at, events))
}

func (d *desk) pasted(s string) { d.keys(pasteBegin + s + pasteEnd) }

// pass lets time go by, stopping at every wake as the loop does.
func (d *desk) pass(by time.Duration) {
	end := d.at.Add(by)
	for {
		at, ok := d.wake()
		if !ok || at.After(end) {
			break
		}
		if at.After(d.at) {
			d.at = at
		}
		d.note(d.tick(d.at))
		if len(d.done) > 0 && strings.HasPrefix(d.done[len(d.done)-1], "leave") {
			return
		}
	}
	d.at = end
	d.note(d.tick(d.at))
}

func (d *desk) note(effects []effect) {
	for _, e := range effects {
		switch e.kind {
		case effRecord:
			d.done = append(d.done, strings.TrimSuffix(e.line.Type+" "+e.line.Text+e.line.Choice, " "))
		case effApprove:
			d.done = append(d.done, "approved "+e.text)
		case effFork:
			d.done = append(d.done, "fork "+e.text)
		case effExit:
			d.done = append(d.done, "leave "+string(rune('0'+e.code%10))+e.text)
		}
	}
}

func (d *desk) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.done); diff != "" {
		t.Error(diff)
	}
	d.done = nil
}

func (d *desk) holds(t *testing.T, want string) {
	t.Helper()
	if got := d.box.shown(); got != want {
		t.Errorf("the box shows %q, want %q", got, want)
	}
}

func TestModel_EnterBeforeReadyIsNothingAndTextStays(t *testing.T) {
	d := newDesk(nil)
	d.pasted("early")
	d.pass(200 * time.Millisecond)
	d.keys("\r")
	d.pass(time.Second)
	d.expect(t)
	d.holds(t, "early")
	d.keys("\r")
	d.expect(t, "user early")
}

func TestModel_EnterRightAfterAPasteIsSwallowedAndASecondOneSubmits(t *testing.T) {
	d := readyDesk(nil)
	d.pasted("event")
	d.pass(149 * time.Millisecond)
	d.keys("\r")
	d.expect(t)
	d.holds(t, "event")
	d.pass(time.Millisecond)
	d.keys("\r")
	d.expect(t, "user event")
	d.holds(t, "")
}

func TestModel_EnterInTheSameReadAsAPasteIsSwallowed(t *testing.T) {
	d := readyDesk(nil)
	d.keys(pasteBegin + "event" + pasteEnd + "\r")
	d.expect(t)
	d.holds(t, "event")
}

func TestModel_WithoutSettleTimeEnterSubmitsAtOnce(t *testing.T) {
	d := readyDesk(func(s *settings) { s.pasteSettle = 0 })
	d.keys(pasteBegin + "event" + pasteEnd + "\r")
	d.expect(t, "user event")
}

func TestModel_UnbracketedTextKeepsItsLineBreaks(t *testing.T) {
	d := readyDesk(nil)
	d.keys("one\rtwo\nthree\r")
	d.keys("\r")
	d.expect(t)
	d.holds(t, "one\ntwo\nthree\n\n")
	d.pass(150 * time.Millisecond)
	d.keys("\r")
	d.expect(t, "user one\ntwo\nthree\n\n")
}

func TestModel_TypingByHandSubmitsWithEnter(t *testing.T) {
	d := readyDesk(nil)
	for _, k := range []string{"h", "i", "x", "\x7f", "\r"} {
		d.keys(k)
	}
	d.expect(t, "user hi")
}

func TestModel_ADraftMergesWithAPaste(t *testing.T) {
	d := readyDesk(nil)
	d.keys("half draft ")
	d.pasted("event text")
	d.pass(time.Second)
	d.keys("\r")
	d.expect(t, "user half draft event text")
}

func TestModel_FoldsAreShownApartAndSubmittedWhole(t *testing.T) {
	d := readyDesk(nil)
	long := strings.Repeat("é", 21)
	d.keys("see ")
	d.pasted(long)
	d.pasted(long + "\n")
	d.pasted(strings.Repeat("x", 20))
	d.holds(t, "see [Pasted Content 21 chars][Pasted Content 22 chars]"+strings.Repeat("x", 20))
	d.pass(time.Second)
	d.keys("\r")
	d.expect(t, "user see "+long+long+"\n"+strings.Repeat("x", 20))
}

func TestModel_AnEmptyBoxSubmitsNothing(t *testing.T) {
	d := readyDesk(nil)
	d.keys("\r")
	d.keys(" ")
	d.keys("\r")
	d.keys("\x1b\x1b")
	d.expect(t)
}

func TestModel_ControlCClearsThenInterruptsThenExits(t *testing.T) {
	d := readyDesk(nil)
	d.keys("a")
	d.keys("\r")
	d.keys("draft")
	d.keys("\x03")
	d.holds(t, "")
	d.keys("\x03")
	d.expect(t, "user a", "interrupted")
	d.keys("\x03")
	d.expect(t, "exit", "leave 0")
}

func TestModel_EnterWhileBusyQueuesAndTheQueueRunsInOrder(t *testing.T) {
	d := readyDesk(nil)
	for _, s := range []string{"a", "b", "c"} {
		d.keys(s)
		d.keys("\r")
	}
	d.expect(t, "user a", "queued b", "queued c")
	d.pass(300 * time.Millisecond)
	d.expect(t, "assistant ok (1 chars)", "user b")
	d.keys("\x1b")
	d.expect(t, "interrupted", "user c")
	d.pass(time.Second)
	d.expect(t, "assistant ok (1 chars)")
}

func TestModel_DirectivesSteerTheTurn(t *testing.T) {
	d := readyDesk(nil)
	d.pasted("x zz:dur=2s zz:exit=7")
	d.pass(time.Second)
	d.keys("\r")
	d.pass(1900 * time.Millisecond)
	d.expect(t, "user x zz:dur=2s zz:exit=7")
	d.pass(100 * time.Millisecond)
	d.expect(t, "assistant ok (21 chars)", "exit", "leave 7")
}

func TestModel_SlashAndExclamationMarkAreCommands(t *testing.T) {
	tests := []struct {
		text string
		want []string
		box  string
	}{
		{"/foo bar", nil, "/foo bar"},
		{"!rm x", []string{"shell !rm x"}, ""},
		{"/quit\nmore", []string{"exit", "leave 0"}, "/quit\nmore"},
		{"/clear", []string{"fork new"}, ""},
		{" /quit", []string{"user  /quit"}, ""},
		{"# note", []string{"user # note"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			d := readyDesk(nil)
			d.pasted(tt.text)
			d.pass(time.Second)
			d.keys("\r")
			d.expect(t, tt.want...)
			d.holds(t, tt.box)
		})
	}
}

func TestModel_APromptOfTheStartIsNeverACommand(t *testing.T) {
	d := newDesk(func(s *settings) { s.prompt = "/quit" })
	d.pass(300 * time.Millisecond)
	d.expect(t, "user /quit")
}

func TestModel_ADialogDropsThePasteAndEnterApproves(t *testing.T) {
	d := readyDesk(nil)
	d.openDialog()
	d.pasted("event yes 1")
	d.expect(t)
	d.keys("\r")
	d.expect(t, "approval yes", "approved yes")
	d.holds(t, "")
}

func TestModel_ADialogIsAnsweredByTheKeysOfItsChoices(t *testing.T) {
	for key, want := range map[string][]string{
		"y": {"approval yes", "approved yes"}, "1": {"approval yes", "approved yes"},
		"p": {"approval always", "approved always"}, "2": {"approval always", "approved always"},
		"3": {"approval no"}, "\x1b": {"approval no"}, "\x03": {"approval no"},
		"bug: push it": {"approval always", "approved always"}, "abc": nil,
	} {
		d := readyDesk(nil)
		d.openDialog()
		d.keys(key)
		d.expect(t, want...)
	}
}

func TestModel_TextBehindTheAnswerOfADialogGoesToTheBox(t *testing.T) {
	d := readyDesk(nil)
	d.keys("draft ")
	d.openDialog()
	d.keys("--y rest\r")
	d.expect(t, "approval yes", "approved yes")
	d.holds(t, "draft  rest\n")
}

func TestModel_ADialogInATurnHoldsItAndDenyingInterrupts(t *testing.T) {
	d := readyDesk(nil)
	d.pasted("zz:dialog=100ms zz:dur=200ms")
	d.pass(time.Second)
	d.keys("\r")
	d.done = nil
	d.pass(5 * time.Second)
	d.expect(t)
	if d.title() != askTitle {
		t.Errorf("title %q", d.title())
	}
	d.keys("y")
	d.pass(0)
	d.expect(t, "approval yes", "approved yes", "assistant ok (28 chars)")

	d.pasted("zz:dialog")
	d.pass(time.Second)
	d.keys("\r")
	d.pass(time.Second)
	d.keys("\x1b")
	d.expect(t, "user zz:dialog", "approval no", "interrupted")
}

func TestModel_TheTrustDialogComesBeforeThePrompt(t *testing.T) {
	d := newDesk(func(s *settings) { s.trust, s.prompt = true, "first" })
	d.openDialog()
	d.pass(time.Second)
	d.pasted("lost")
	d.expect(t)
	d.keys("\r")
	d.expect(t, "approval trust", "approved trust", "user first")
	if d.dialog != permissionDialog {
		t.Error("the dialog that was asked for before the start is not open")
	}
	d.holds(t, "")
}

func TestModel_AnUnknownConversationLooksAliveAndDies(t *testing.T) {
	d := newDesk(func(s *settings) { s.doom, s.dieAfter, s.prompt = "ERROR: none", 1200*time.Millisecond, "x" })
	d.keys("text\r\x03")
	d.pass(1199 * time.Millisecond)
	d.expect(t)
	d.pass(time.Millisecond)
	d.expect(t, "leave 1ERROR: none")
}

func TestModel_AConversationThatIsOpenElsewhereTakesNothing(t *testing.T) {
	d := newDesk(func(s *settings) { s.locked, s.prompt = true, "lost" })
	d.pass(time.Second)
	d.pasted("quiet event")
	d.keys("\r\x1b\x7fy")
	d.openDialog()
	d.expect(t)
	d.holds(t, "")
	d.keys("q")
	d.expect(t, "exit", "leave 0")
}

func TestModel_ExitAfterEndsTheProgramWithItsCode(t *testing.T) {
	d := newDesk(func(s *settings) { s.exitAfter, s.exitCode = time.Second, 3 })
	d.pass(time.Second)
	d.expect(t, "exit", "leave 3")
}

func TestBox_KillLineRemovesOneLineOnly(t *testing.T) {
	var b box
	b.insert("one\ntwo ")
	b.paste(strings.Repeat("x", 30), 20)
	b.insert("end")
	for _, want := range []string{"one\n", "one", "", ""} {
		b.killLine()
		if got := b.text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBox_BackspaceRemovesAWholeFold(t *testing.T) {
	var b box
	b.insert("é")
	b.paste(strings.Repeat("x", 30), 20)
	for _, want := range []string{"é", "", ""} {
		b.backspace()
		if got := b.text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
