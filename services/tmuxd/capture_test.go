package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// showing starts a session whose program runs a script of the shell and then waits.
func (r *rig) showing(script string) {
	r.t.Helper()
	r.entry.Binary, r.entry.Fresh = "/bin/sh", []string{"-c", script + "\nexec sleep 600", "{conversation_id}"}
	r.entry.PromptArgs, r.entry.Survival = nil, 300*time.Millisecond
	r.restart()
	r.started("", "")
}

func (r *rig) capture(client tmuxdv1.TmuxdServiceClient, req *tmuxdv1.CaptureRequest) *tmuxdv1.CaptureResponse {
	r.t.Helper()
	req.WorkItem = r.item.String()
	got, err := client.Capture(r.ctx(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func TestCapture_ReadsTheScreenAndWhatWasScrolledOutOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.showing(`i=1; while [ $i -le 120 ]; do echo "row $i   "; i=$((i+1)); done; printf '%0250d\nthe end\n\n\n' 7; printf '\033]2;a title\007'`)
	client := r.overTheWire()
	r.until("all is shown", func() bool { return strings.Contains(r.screen(), "the end") })
	of := r.state().Incarnation.Stamp

	screen := r.capture(client, &tmuxdv1.CaptureRequest{IncarnationStamp: of})
	n := len(screen.GetLines())
	if n == 0 || screen.GetLines()[n-1] != "the end" || screen.GetScrollbackLines() != 0 || screen.GetWidth() != 200 || screen.GetHeight() != 50 ||
		screen.GetTitle() != "a title" || screen.GetDead() || screen.GetIncarnation().GetStamp() != of || screen.GetTarget() != r.item.Target() {
		t.Errorf("%v", screen)
	}
	some := r.capture(client, &tmuxdv1.CaptureRequest{ScrollbackLines: 10})
	if got := some.GetScrollbackLines(); got != 10 || !slices.Equal(some.GetLines()[10:], screen.GetLines()) {
		t.Errorf("%d of scrollback: %q", got, some.GetLines())
	}
	all := r.capture(client, &tmuxdv1.CaptureRequest{ScrollbackLines: 50_000})
	if all.GetLines()[0] != "row 1" || int(all.GetScrollbackLines())+n != len(all.GetLines()) || len(all.GetLines()) != 120+2+1 {
		t.Errorf("%d lines, %d of scrollback: %q", len(all.GetLines()), all.GetScrollbackLines(), all.GetLines())
	}
	joined := r.capture(client, &tmuxdv1.CaptureRequest{ScrollbackLines: 50_000, JoinWrapped: true})
	if len(joined.GetLines()) != 120+1+1 || joined.GetLines()[120] != fmt.Sprintf("%0250d", 7) || joined.GetScrollbackLines() != all.GetScrollbackLines() {
		t.Errorf("%d lines, %d of scrollback: %q", len(joined.GetLines()), joined.GetScrollbackLines(), joined.GetLines())
	}
	for name, c := range map[string]struct {
		req    *tmuxdv1.CaptureRequest
		kind   fault.Kind
		reason fault.Reason
	}{
		"too many lines":      {&tmuxdv1.CaptureRequest{ScrollbackLines: 50_001}, fault.Invalid, fault.ReasonBadArgument},
		"fewer than none":     {&tmuxdv1.CaptureRequest{ScrollbackLines: -1}, fault.Invalid, fault.ReasonBadArgument},
		"no such format":      {&tmuxdv1.CaptureRequest{Format: 9}, fault.Invalid, fault.ReasonBadArgument},
		"another incarnation": {&tmuxdv1.CaptureRequest{IncarnationStamp: "s0"}, fault.NotFound, fault.ReasonSessionNotFound},
	} {
		c.req.WorkItem = r.item.String()
		if _, err := client.Capture(r.ctx(), c.req); !errors.Is(err, c.kind) || fault.ReasonOf(err) != c.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Capture(r.ctx(), &tmuxdv1.CaptureRequest{WorkItem: "github:octo/widget#8"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("no session: %v", err)
	}
	r.signal(r.state().Incarnation.PanePid, syscall.SIGKILL)
	r.becomes(session.Dead)
	if dead := r.capture(client, &tmuxdv1.CaptureRequest{}); !dead.GetDead() || !slices.Contains(dead.GetLines(), "the end") {
		t.Errorf("%v", dead)
	}
}

func TestCapture_TextHoldsNoControlCharacterAndAnsiOnlyColours(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	// Colours, a link, a line drawn by another character set, C1 as UTF-8, a bell, a backspace.
	r.showing(`printf '\033[1;31mred\033[0m \033[38:2::1:2:3mrgb\033[0m \033]8;;http://x\033\\link\033]8;;\033\\ \033(0qqq\033(B \302\233c1 a\007b\010c\n'; ` +
		`printf '\033[7mthe end\033[0m\n'; printf '\033]2;ti\033[31mtle\007'`)
	client := r.overTheWire()
	r.until("all is shown", func() bool { return strings.Contains(r.screen(), "the end") })
	text := r.capture(client, &tmuxdv1.CaptureRequest{ScrollbackLines: 5})
	for _, line := range append(text.GetLines(), text.GetTitle()) {
		if i := strings.IndexFunc(line, func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }); i >= 0 {
			t.Errorf("%q has a control character", line)
		}
	}
	if !strings.HasPrefix(text.GetLines()[0], "red rgb link ") || text.GetLines()[1] != "the end" {
		t.Errorf("%q", text.GetLines())
	}
	ansi := r.capture(client, &tmuxdv1.CaptureRequest{Format: tmuxdv1.CaptureFormat_CAPTURE_FORMAT_ANSI})
	if !strings.Contains(ansi.GetLines()[0], "\x1b[1m\x1b[31mred") || !strings.Contains(ansi.GetLines()[1], "\x1b[7mthe end") {
		t.Errorf("%q", ansi.GetLines())
	}
	for _, line := range ansi.GetLines() {
		for i, part := range strings.Split(line, "\x1b") {
			if sgr, _, ok := strings.Cut(part, "m"); i > 0 && (!ok || strings.Trim(sgr, "[0123456789;:") != "") {
				t.Errorf("%q has a sequence that is no colour", line)
			}
		}
	}
}

func TestCapture_MoreThanCanBeReadIsAClearError(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	// Ten thousand rows of characters of four bytes, each of a colour of its own.
	r.showing(`awk 'BEGIN { for (i = 0; i < 10000; i++) { s = ""; for (j = 0; j < 50; j++) s = s sprintf("\033[38;5;%dm😀", (i + j) % 256); print s } print "the end" }'`)
	client := r.overTheWire()
	r.until("all is shown", func() bool { return strings.Contains(r.screen(), "the end") })
	req := &tmuxdv1.CaptureRequest{WorkItem: r.item.String(), ScrollbackLines: 50_000, Format: tmuxdv1.CaptureFormat_CAPTURE_FORMAT_ANSI}
	// On a busy machine tmux may take longer for it than a question may: then it is asked again.
	var err error
	r.until("it is answered", func() bool { _, err = client.Capture(r.ctx(), req); return fault.KindOf(err) != fault.Unavailable })
	if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "4 MiB") {
		t.Errorf("%v", err)
	}
	req.ScrollbackLines = 1000
	if got, err := client.Capture(r.ctx(), req); err != nil || got.GetScrollbackLines() != 1000 {
		t.Errorf("%v", err)
	}
}

func TestCapture_OnlyOfTheAgentsPane(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.showing("echo the agent")
	client := r.overTheWire()
	target := "=" + r.item.Target() + ":"
	r.person("split-window", "-t", target, "echo a secret; exec cat")
	r.until("the agent shows", func() bool { return strings.Contains(r.screen(), "the agent") })
	if got := r.capture(client, &tmuxdv1.CaptureRequest{}); !slices.Contains(got.GetLines(), "the agent") {
		t.Errorf("%q", got.GetLines())
	}
	r.person("kill-pane", "-t", "%0")
	r.becomes(session.Dead)
	if got, err := client.Capture(r.ctx(), &tmuxdv1.CaptureRequest{WorkItem: r.item.String()}); !errors.Is(err, fault.NotFound) {
		t.Errorf("%v, %v", got, err)
	}
}
