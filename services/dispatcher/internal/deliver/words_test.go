package deliver

import (
	"strings"
	"testing"
	"unicode"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/workitem"
)

func TestExplain_EveryReasonOfAnOutcomeHasWords(t *testing.T) {
	ref, err := workitem.Parse("github:octo/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	steps := map[dispatch.Reason]bool{ // reasons of steps, which no outcome has
		dispatch.ReasonStart: true, dispatch.ReasonFirst: true, dispatch.ReasonNoConversation: true, dispatch.ReasonEvacuated: true, dispatch.ReasonByConfiguration: true,
		dispatch.ReasonCannotResume: true, dispatch.ReasonBadConversationID: true, dispatch.ReasonResumeFailed: true,
		dispatch.ReasonStarted: true, dispatch.ReasonStampProvesOurs: true, dispatch.ReasonAnotherIncarnation: true,
		dispatch.ReasonSessionLives: true, dispatch.ReasonOccupantLives: true, dispatch.ReasonConversationKnown: true,
		dispatch.ReasonSessionUnparked: true,
		dispatch.ReasonReopened:        true, // an operator's act, which no run ends with
	}
	r := &run{req: checked{ref: ref}}
	for _, reason := range dispatch.Reasons() {
		if text, _ := r.reason(reason); !steps[reason] && text == string(reason) {
			t.Errorf("%s has no words", reason)
		}
	}
}

// The names follow the order of the constants, which nothing else holds together.
func TestNames_AreThoseOfTheirValues(t *testing.T) {
	for got, want := range map[string]string{
		probeName(dispatch.ProbeNowhere): "nowhere", probeName(dispatch.ProbeAbsent): "absent", probeName(dispatch.ProbeLive): "live",
		spawnName(dispatch.SpawnInUse): "conversation in use", spawnName(dispatch.SpawnNotLoggedIn): "not logged in",
		spawnName(dispatch.SpawnCannotResume): "cannot resume", spawnName(dispatch.SpawnNoCapacity): "no capacity", spawnName(dispatch.SpawnFailed): "failed",
		pasteName(dispatch.PasteBusy): "busy", pasteName(dispatch.PasteRefusedGone): "session gone", pasteName(dispatch.PasteFailed): "failed",
	} {
		if got != want {
			t.Errorf("%q stands for %q", got, want)
		}
	}
}

func TestFreeing_IsACommandThatCanBePasted(t *testing.T) {
	ref, err := workitem.Parse("github:octo/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{req: checked{ref: ref}, sight: Sight{SocketPath: "/run/it's here/x.sock"}}
	if got, want := r.freeing(), `tmux -N -S '/run/it'\''s here/x.sock' kill-session -t '=loop-octo-widget-7:'`; !strings.HasSuffix(got, want) {
		t.Errorf("%s", got)
	}
	r.sight.SocketPath = "/run/x.sock"
	if got := r.freeing(); !strings.HasSuffix(got, `tmux -N -S /run/x.sock kill-session -t '=loop-octo-widget-7:'`) {
		t.Errorf("%s", got)
	}
}

func TestWithLines_LeavesThePromptOut(t *testing.T) {
	const text = "fix the flaky test in the parser\nok"
	for name, row := range map[string]struct {
		lines []string
		want  string
	}{
		"nothing of it":      {[]string{"Error: no API key", "exiting"}, "d; its last lines: Error: no API key / exiting"},
		"quoted":             {[]string{"> fix the flaky test in", "exiting"}, "d; its last lines: exiting"},
		"wrapped in a frame": {[]string{"│ test in the parser   │"}, "d"},
		"a short whole line": {[]string{" ok "}, "d"},
		"escape sequences":   {[]string{"\x1b[31mred\x07"}, "d; its last lines: [31mred"},
		"no lines":           {nil, "d"},
	} {
		if got := withLines("d", row.lines, text); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

func TestValidConversationID_LetsNoFlagOrPathThrough(t *testing.T) {
	for id, want := range map[string]bool{
		"": false, "a": true, "A-_9": true, "-a": false, "_a": false, "--help": false, "a/b": false, "../x": false, "a b": false, "a.b": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "é": false, "a\n": false,
	} {
		if got := validConversationID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b[0m\xff" + strings.Repeat("é", 400))
	f.Fuzz(func(t *testing.T, s string) {
		got := line(s)
		if len(got) > maxLine+len("…") || strings.IndexFunc(got, unicode.IsControl) >= 0 || !strings.Contains(got+"\uFFFD", "") {
			t.Fatalf("line(%q) = %q", s, got)
		}
		if got != strings.ToValidUTF8(got, "") {
			t.Fatalf("line(%q) is not UTF-8", s)
		}
	})
}

func TestFingerprint_TellsTheFieldsApart(t *testing.T) {
	print := func(item, text string, kind Kind) [32]byte {
		return checked{Request: Request{WorkItem: item, Kind: kind, Text: text}}.fingerprint()
	}
	a := print("i", "t", Comment)
	for name, b := range map[string][32]byte{
		"text": print("i", "t ", Comment), "item": print("j", "t", Comment), "kind": print("i", "t", Message),
		"borders": print("icomment", "t", ""),
	} {
		if a == b {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}
