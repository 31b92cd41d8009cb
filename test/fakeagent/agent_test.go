package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

func TestAgent_BracketedPasteIsOnBeforeTheComposer(t *testing.T) {
	p := newPane(t)
	p.start("--session-id", p.Session, "--ready-after", "2s", "--fold", "3")
	p.until("the start screen", func() bool { return p.sees("Starting…") })
	if got := p.show("#{cursor_flag}"); got != "0" {
		t.Errorf("cursor_flag is %s before the composer", got)
	}
	p.paste("early", ";", "send-keys", "-t", "=a:", "Enter")
	// Only a bracketed paste is folded.
	p.until("the paste, folded", func() bool { return p.sees("› [Pasted Content 5 chars]") })
	if got := p.users(); got != nil {
		t.Errorf("submitted early: %q", got)
	}
	p.keys("Enter")
	p.WaitUser(t, patience, "early")
}

func TestAgent_EnterAtOnceIsSwallowedAndASecondOneSubmitsExactly(t *testing.T) {
	p := newPane(t)
	p.fresh("--paste-settle", "500ms")
	text := "[event 7]\n\tline two; \\ 'quoted' \"é界\"\n\nlast"
	p.paste(text, ";", "send-keys", "-t", "=a:", "Enter")
	p.until("the text in the composer", func() bool { return p.sees("› [event 7]") && p.sees("\n  last") })
	<-time.After(600 * time.Millisecond) // the settle time of the agent is what this is about
	if got := p.users(); got != nil {
		t.Fatalf("submitted: %q", got)
	}
	p.keys("Enter")
	p.WaitUser(t, patience, text)
	p.until("the empty box and the text above it", func() bool { return p.sees("› Ask fakeagent") && p.sees("> [event 7]\n") })
}

func TestAgent_FoldsABigPaste(t *testing.T) {
	p := newPane(t)
	p.fresh("--paste-settle", "0s")
	text := strings.Repeat("é", 1001)
	p.paste(text)
	p.until("the fold", func() bool { return p.sees("› [Pasted Content 1001 chars]\n") })
	p.keys("Enter")
	p.WaitUser(t, patience, text)
}

func TestAgent_ANaivePasteAndEnterApprovesTheDialogAndLosesTheEvent(t *testing.T) {
	p := newPane(t)
	p.fresh()
	p.keys("-l", "dr")
	p.until("the draft", func() bool { return p.sees("› dr") })
	p.signal(syscall.SIGUSR1)
	p.until("the dialog", func() bool {
		return p.show("#{pane_title} #{cursor_flag}") == "[ ! ] Action Required | fakeagent 0" && p.sees("› 1. Yes, proceed (y)")
	})
	p.paste("event with its nonce")
	p.keys("Enter")
	p.until("the draft behind the dialog", func() bool { return p.sees("› dr\n") && p.show("#{cursor_flag}") == "1" })
	if got := p.approvals(); cmp.Diff([]string{"yes"}, got) != "" {
		t.Errorf("approvals: %q", got)
	}
	if p.sees("nonce") || p.users() != nil {
		t.Error("the event was not lost")
	}
	p.Wait(t, patience, "the approval", func(lines []agenttest.Line) bool {
		return slices.ContainsFunc(lines, func(l agenttest.Line) bool { return l.Type == "approval" && l.Choice == "yes" })
	})
}

func TestAgent_TheTrustDialogTakesABlindEnter(t *testing.T) {
	p := newPane(t)
	p.start("--session-id", p.Session, "--trust-dialog")
	p.until("the dialog", func() bool { return p.sees("› 1. Trust and continue") && p.show("#{cursor_flag}") == "0" })
	p.paste("lost", ";", "send-keys", "-t", "=a:", "Enter")
	p.ready()
	if got := p.approvals(); cmp.Diff([]string{"trust"}, got) != "" {
		t.Errorf("approvals: %q", got)
	}
}

func TestAgent_ADraftMergesWithAPaste(t *testing.T) {
	p := newPane(t)
	p.fresh("--paste-settle", "0s")
	p.keys("-l", "half draft ")
	p.until("the draft", func() bool { return p.sees("› half draft") })
	p.paste("D1 event text")
	p.until("the paste", func() bool { return p.sees("› half draft D1 event text") })
	p.keys("Enter")
	p.WaitUser(t, patience, "half draft D1 event text")
}

func TestAgent_ResumeGoesOnWithTheConversation(t *testing.T) {
	p := newPane(t)
	prompt := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(prompt, []byte("first of all"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start("--session-id", p.Session, "--prompt-file", prompt)
	p.WaitUser(t, patience, "first of all")
	if _, err := os.Stat(prompt); !os.IsNotExist(err) {
		t.Errorf("the prompt file is still there: %v", err)
	}
	p.until("the answer", func() bool { return p.sees("• ok (12 chars)") })
	p.keys("C-c")
	if got := p.status(); got != "0" {
		t.Errorf("status %s", got)
	}
	p.end()
	p.start("--resume", p.Session)
	p.ready()
	if !p.sees("> first of all\n") {
		t.Errorf("the conversation is not shown:\n%s", p.screen())
	}
	p.signal(syscall.SIGTERM)
	if got := p.status(); got != "143" {
		t.Errorf("status %s", got)
	}
	lines, err := p.Lines()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i, l := range lines {
		kinds = append(kinds, l.Type)
		if l.Seq != i+1 || l.Session != p.Session {
			t.Errorf("line %d: %+v", i, l)
		}
	}
	if d := cmp.Diff([]string{"session_start", "user", "assistant", "exit", "resumed", "exit"}, kinds); d != "" {
		t.Error(d)
	}
}

func TestAgent_ResumeOfAnUnknownConversationLooksAliveAndDies(t *testing.T) {
	p := newPane(t)
	p.start("--resume", p.Session, "--die-after", "700ms")
	p.until("the screen of a program that starts", func() bool { return p.show("#{alternate_on}") == "1" })
	if got := p.status(); got != "1" {
		t.Errorf("status %s", got)
	}
	p.until("the reason on the normal screen", func() bool {
		return p.sees("ERROR: No saved session found with ID "+p.Session) && p.show("#{alternate_on}") == "0"
	})
	noted, err := os.ReadFile(filepath.Join(p.Home, "sessions", "refused"))
	if err != nil || !strings.HasSuffix(string(noted), " "+p.Session+"\n") {
		t.Errorf("it notes %q, %v", noted, err)
	}
}

func TestAgent_ASecondProcessOnTheSameConversationTakesNoInput(t *testing.T) {
	p, second := newPane(t), newPane(t)
	p.fresh()
	second.Conversation = p.Conversation
	second.start("--resume", second.Session)
	second.until("the lock", func() bool { return second.sees("This conversation is open in another app") })
	second.paste("lost", ";", "send-keys", "-t", "=a:", "Enter")
	second.keys("q")
	if got := second.status(); got != "0" {
		t.Errorf("status %s", got)
	}
	lines, err := p.Lines()
	if err != nil || len(lines) != 1 {
		t.Errorf("%+v %v", lines, err)
	}
}

func TestAgent_AnIdInUseIsRefused(t *testing.T) {
	p := newPane(t)
	p.fresh()
	p.signal(syscall.SIGTERM)
	p.status()
	p.end()
	p.start("--session-id", p.Session)
	if got := p.status(); got != "1" || !p.sees("session id already in use") {
		t.Errorf("status %s:\n%s", got, p.screen())
	}
}

func TestAgent_AMebibyteIsExact(t *testing.T) {
	p := newPane(t)
	p.fresh("--paste-settle", "0s")
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		b.WriteString(strings.Repeat("é", i%97))
		b.WriteString("\x1b[201 \n")
	}
	began := time.Now()
	p.paste(b.String())
	p.until("the fold", func() bool { return p.sees("› [Pasted Content ") })
	t.Logf("%d bytes shown as a fold after %v", b.Len(), time.Since(began))
	p.keys("Enter")
	p.WaitUser(t, patience, b.String())
	p.until("the answer", func() bool { return p.sees("• ok (") && p.sees("› Ask fakeagent") })
}

func TestAgent_TheTitleTellsBusyFromIdleWhileTheScreenDoesNot(t *testing.T) {
	p := newPane(t)
	p.fresh("--paste-settle", "0s")
	idle := regexp.MustCompile(`(?m)^› Ask fakeagent.*\n  fake-1 · /.*$`)
	p.paste("zz:stream zz:dur=1s", ";", "send-keys", "-t", "=a:", "Enter")
	p.WaitUser(t, patience, "zz:stream zz:dur=1s")
	busy := regexp.MustCompile(`^[\x{2800}-\x{28FF}] fakeagent$`)
	p.until("a spinner over an idle screen", func() bool { return busy.MatchString(p.show("#{pane_title}")) && idle.MatchString(p.screen()) })
	if p.sees("esc to interrupt") {
		t.Error("the screen of a streaming turn tells that it is busy")
	}
	p.until("the title of an idle agent", func() bool { return p.show("#{pane_title}") == "fakeagent" })
	p.paste("zz:dur=1h", ";", "send-keys", "-t", "=a:", "Enter")
	p.until("the busy footer", func() bool { return p.sees("esc to interrupt") })
	p.keys("Escape")
	p.until("the interruption", func() bool { return p.sees("■ Conversation interrupted") && p.show("#{pane_title}") == "fakeagent" })
}

func TestAgent_FollowsTheSizeOfThePane(t *testing.T) {
	p := newPane(t)
	p.fresh()
	for _, size := range [][2]string{{"80", "24"}, {"200", "50"}} {
		p.tmux("resize-window", "-t", "=a:", "-x", size[0], "-y", size[1])
		p.until("the composer at the bottom of "+size[1]+" rows", func() bool {
			rows := strings.Split(p.screen(), "\n")
			last := len(rows) - 1
			return p.show("#{cursor_x},#{cursor_y},#{pane_height}") == "2,"+p.show("#{e|-:#{pane_height},2}")+","+size[1] &&
				strings.HasPrefix(rows[last], "  fake-1 · /") && strings.HasPrefix(rows[last-1], "› Ask")
		})
	}
}

func TestAgent_ClearForksTheConversation(t *testing.T) {
	p := newPane(t)
	p.fresh()
	p.keys("/clear")
	p.until("the command", func() bool { return p.sees("› /clear") })
	p.until("a new id in the banner", func() bool {
		p.keys("Enter") // the first may come too fast behind the text, as with real agents
		return !p.sees(p.Session)
	})
	banner := regexp.MustCompile(`session (\S{36})`).FindStringSubmatch(p.screen())
	if banner == nil {
		t.Fatalf("no id:\n%s", p.screen())
	}
	lines, err := agenttest.Conversation{Home: p.Home, Session: banner[1]}.Lines()
	if err != nil || len(lines) != 2 || lines[0].Type != "session_start" || lines[1].Type != "forked" || lines[1].From != p.Session {
		t.Errorf("%+v %v", lines, err)
	}
}

func TestAgent_BuildsForOtherTests(t *testing.T) {
	program := agenttest.Build(t)
	info, err := os.Stat(program)
	if err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("%v %v", info, err)
	}
}
