package harness

import (
	"slices"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/settings"
)

func entry(t *testing.T, name string) *Harness {
	t.Helper()
	table, err := New(settings.BuiltinHarnesses(), "/state", "/home/me", found)
	if err != nil {
		t.Fatal(err)
	}
	h, err := table.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const (
	thread  = "01997b4e-6c6d-7c02-9d3c-8a2a5f6f2f10"
	session = "ses_dd654a83effeM1sCdl1SE3L26f"
)

// Every argument of every bundled entry, so that a change of one is seen as what it is.
func TestEntries_Argv(t *testing.T) {
	codex := `codex --no-daemon -c projects={"/work/a \"b\""={trust_level="trusted"}} -c check_for_update_on_startup=false -c tui.animations=true `
	for name, want := range map[string][3]string{
		"fakeagent":      {"fakeagent --session-id ID --prompt-file FILE", "fakeagent --resume ID --prompt-file FILE", "fakeagent --task --session-id ATTEMPT"},
		"codex":          {codex + `-C /work/a "b"`, codex + `resume -a on-request -C /work/a "b" ID`, "codex exec -"},
		"opencode":       {`opencode /work/a "b"`, `opencode /work/a "b" -s ID`, "opencode run"},
		"gemini":         {"gemini --skip-trust --session-id ID", "gemini --skip-trust --resume ID", "gemini --skip-trust --output-format text"},
		"qwen":           {"qwen --session-id ID", "qwen --resume ID", "qwen --output-format text"},
		"claude":         {"claude --session-id ID", "claude --resume ID", "claude -p"},
		"cursor-agent":   {"cursor-agent", "cursor-agent", "cursor-agent -p Read the file FILE and do the task that it describes, completely."},
		"oh-my-opencode": {"oh-my-opencode", "oh-my-opencode", "oh-my-opencode run"},
		"omx":            {"omx", "omx", "omx team Read the file FILE and do the task that it describes, completely."},
		"omc":            {"omc", "omc", "omc team Read the file FILE and do the task that it describes, completely."},
	} {
		h := entry(t, name)
		h.Channel = settings.ChannelPaste
		v := Vars{ConversationID: "ID", PromptFile: "FILE", Dir: `/work/a "b"`, AttemptID: "ATTEMPT"}
		task, err := h.Task(v, "do it")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, argv := range [][]string{h.Argv(false, v), h.Argv(true, v), task.Argv} {
			if got := strings.TrimPrefix(strings.Join(argv, " "), "/bin/"); got != want[i] {
				t.Errorf("%s: %s\nwant %s", name, got, want[i])
			}
		}
	}
	if n := len(settings.BuiltinHarnesses()); n != 10 {
		t.Errorf("%d entries are bundled", n)
	}
}

// Where deliveries are handed over, the program is told where to listen, or its companion is.
func TestEntries_ArgvWhereDeliveriesAreHandedOver(t *testing.T) {
	v := Vars{ConversationID: "ID", Dir: "/work/a", Socket: "/s/agent"}
	remote := "codex --remote unix:///s/agent -c features.daemon_auto_start=false -c check_for_update_on_startup=false -c tui.animations=true "
	codex, opencode := entry(t, "codex"), entry(t, "opencode")
	for what, row := range map[string]struct {
		argv []string
		want string
	}{
		"codex":             {codex.Argv(false, v), remote + "-C /work/a"},
		"codex, resumed":    {codex.Argv(true, v), remote + "resume -C /work/a ID"},
		"codex's companion": {codex.CompanionArgv(v), `codex app-server -c projects={"/work/a"={trust_level="trusted"}} -c check_for_update_on_startup=false --listen unix:///s/agent`},
		"opencode":          {opencode.Argv(true, v), "opencode /work/a -s ID"},
		"no companion":      {opencode.CompanionArgv(v), ""},
	} {
		if got := strings.TrimPrefix(strings.Join(row.argv, " "), "/bin/"); got != row.want {
			t.Errorf("%s: %s\nwant %s", what, got, row.want)
		}
	}
	none := func(string) (string, bool) { return "", false }
	if env := opencode.Environ(none, v); !slices.Contains(env, "MUXPOST_CHANNEL=/s/agent") {
		t.Errorf("%q", env)
	}
	codex.Channel = settings.ChannelPaste
	if argv := codex.CompanionArgv(v); argv != nil {
		t.Errorf("a companion that nobody asks: %q", argv)
	}
}

func TestEntries_LearnAConversationFromTheNameOfItsTranscript(t *testing.T) {
	for _, row := range []struct{ name, path, want string }{
		{"codex", "/home/me/.codex/sessions/2026/11/29/rollout-2026-11-29T23-31-15-" + thread + ".jsonl", thread},
		{"codex", "/home/you/.codex/sessions/2026/11/29/rollout-2026-11-29T23-31-15-" + thread + ".jsonl", ""},
		{"codex", "/home/me/.codex/sessions/2026/11/29/rollout-2026-11-29T23-31-15.jsonl", ""},
		{"opencode", "/state/harness/opencode/sessions/" + session + ".jsonl", session},
		{"opencode", "/state/harness/opencode/sessions/--help.jsonl", ""},
		{"qwen", "/home/me/.qwen/projects/-work-a/chats/" + thread + ".jsonl", thread},
		{"gemini", "/home/me/.gemini/tmp/a/chats/session-2026-11-29T23-53-01997b4e.jsonl", ""}, // which does not name it in full
		{"claude", "/home/me/.claude/projects/a/" + thread + ".jsonl", ""},
		{"fakeagent", "/state/harness/fakeagent/sessions/" + thread + ".jsonl", thread},
	} {
		if got := entry(t, row.name).ConversationOf(row.path, "/work"); got != row.want {
			t.Errorf("%s: %s is of %q", row.name, row.path, got)
		}
	}
	e := settings.BuiltinHarnesses()["fakeagent"]
	e.Transcript = "{state}/all.jsonl"
	table, err := New(map[string]settings.Harness{"mine": e}, "/state", "/home/me", found)
	if err != nil {
		t.Fatal(err)
	}
	if got := table["mine"].ConversationOf("/state/harness/mine/all.jsonl", "/work"); got != "" {
		t.Errorf("one record for all conversations tells %q", got)
	}
	for _, row := range []struct {
		name, id string
		want     bool
	}{
		{"codex", thread, true}, {"codex", "not-a-uuid", false}, {"codex", thread + "x", false}, // codex begins another conversation for what is no UUID
		{"gemini", thread, true}, {"gemini", "1", false}, // gemini takes a number for a place in its list
		{"qwen", thread, true}, {"qwen", "x", false}, {"claude", thread, true}, {"opencode", session, true}, {"opencode", thread, false}, {"fakeagent", "--help", false}, {"fakeagent", "c1", true},
	} {
		if got := entry(t, row.name).ValidConversation(row.id); got != row.want {
			t.Errorf("%s: %s is %v", row.name, row.id, got)
		}
	}
}

// cursor puts the cursor before a text that stands on the screen.
func cursor(s Screen, before string) Screen {
	for y, row := range s.Rows {
		if i := strings.Index(row, before); i >= 0 {
			s.CursorX, s.CursorY, s.CursorShown = len([]rune(row[:i])), y, true
		}
	}
	return s
}

// The screens were taken from codex-cli 0.171.0, opencode 1.18.33, gemini-cli 0.61.0 and qwen-code 0.15.10.
func TestEntries_ReadTheScreensOfRealPrograms(t *testing.T) {
	codexFooter := []string{"", "  fake-1 default · /work/widget", "  ← for agents · ? for shortcuts"}
	opencodeEnd := []string{"                       ┃", "                       ┃  Build · Fake One Fake", "                       ╹▀▀▀▀▀▀▀▀",
		"                               tab agents  ctrl+p commands", "  /work/widget:master                      1.18.33"}
	line := strings.Repeat("─", 200)
	gemini := func(title string, rows ...string) Screen {
		return screen(title, append(append([]string{line, " Shift+Tab to accept edits", ""}, rows...), "",
			" workspace (/directory)            sandbox         /model", " /work/widget                      no sandbox      gemini-2.5-pro", "", "")...)
	}
	const geminiEmpty, qwenEmpty = " >   Type your message or @path/to/file", ">   Type your message or @path/to/file"
	qwen := func(rows ...string) Screen {
		return screen("Qwen - widget", append(append([]string{"  > [muxpost delivery-10001]", "    hello", "", "  ✦ The fake model answers", "", line}, rows...), line,
			"  ? for shortcuts", "", "")...)
	}
	wide := func(row string) string { return row + strings.Repeat(" ", 40) + "/work/loop-octo-" }
	for _, row := range []struct {
		name, what string
		screen     Screen
		want       Reading
	}{
		{"codex", "an empty composer", cursor(screen("widget", append([]string{"  >_ OpenAI Codex (v0.171.0)", "", "› Ask Codex to do anything"}, codexFooter...)...), "Ask"),
			Reading{Ready: true}},
		{"codex", "a draft", screen("widget", append([]string{"› half a draft|"}, codexFooter...)...), Reading{Ready: true, Text: "half a draft"}},
		{"codex", "a fold", screen("widget", append([]string{"› [Pasted Content 6108 chars]|"}, codexFooter...)...), Reading{Ready: true, Text: "[Pasted Content 6108 chars]"}},
		{"codex", "a turn", screen("⠋ widget", append([]string{"› |"}, codexFooter...)...), Reading{Ready: true, Busy: true}},
		{"codex", "a text that quotes a dialog and a turn", screen("widget", append([]string{"  esc to interrupt", "", "› [muxpost d-1]",
			"  Press enter to confirm|"}, codexFooter...)...), Reading{Ready: true, Text: "[muxpost d-1] Press enter to confirm", Elsewhere: 1 << 2}},
		{"codex", "a tool that runs", screen("widget", append([]string{"◦ Working (1m 02s • esc to interrupt)", "", "› |"}, codexFooter...)...),
			Reading{Ready: true, Busy: true}},
		{"codex", "the question of trust", screen("widget", "  Folder access", "  Trust this folder? Codex can read, edit, and run files here", "› 1. Trust and continue",
			"  2. Back to Agent Command Center"), Reading{Dialog: true, DialogRow: "Trust this folder? Codex can read, edit, and run files here"}},
		{"codex", "an approval", screen("[ ! ] Action Required | widget", "  Would you like to run the following command?", "› 1. Yes, proceed (y)",
			"  Press enter to confirm or esc to cancel"), Reading{Dialog: true, DialogRow: "[ ! ] Action Required | widget"}},
		{"opencode", "an empty composer", cursor(screen("OpenCode", append([]string{"                       ┃",
			`                       ┃  Ask anything… "What is the tech stack of this project?"`}, opencodeEnd...)...), "Ask"), Reading{Ready: true}},
		{"opencode", "a text of several rows below an answer", screen("OC | x", append([]string{"  ┃", "  ┃  [muxpost delivery-10002]", "  ┃  hello there", "  ┃", "",
			"     The fake model answers", "", "                       ┃", "                       ┃  [muxpost delivery-10003]", "                       ┃  and again|"}, opencodeEnd...)...),
			Reading{Ready: true, Text: "[muxpost delivery-10003] and again"}},
		{"opencode", "an empty composer beside the side bar", screen("OC | x", append([]string{"  ┃", "  ┃  |", wide("  ┃"), wide("  ┃  Build · Fake One Fake")},
			opencodeEnd[2:]...)...), Reading{Ready: true}},
		{"opencode", "a fold", screen("OC | x", append([]string{"                       ┃", "                       ┃  [Pasted ~201 lines]|"}, opencodeEnd...)...),
			Reading{Ready: true, Text: "[Pasted ~201 lines]"}},
		{"opencode", "a turn", screen("OC | x", append(append([]string{"  ┃", "  ┃  |"}, opencodeEnd[:3]...), "   ■■⬝  esc interrupt         ctrl+p commands")...),
			Reading{Ready: true, Busy: true}},
		{"opencode", "a text that quotes a dialog and a turn", screen("OC | x", append([]string{"  ┃  esc interrupt", "", "  ┃", "  ┃  Permission required|"},
			opencodeEnd...)...), Reading{Ready: true, Text: "Permission required", Elsewhere: 1}},
		{"opencode", "a permission", screen("OC | x", "△ Permission required", "  # do it", " Allow once   Allow always   Reject      ctrl+f fullscreen"),
			Reading{Dialog: true, DialogRow: "△ Permission required"}},
		{"gemini", "an empty composer", gemini("◇  Ready (widget)", geminiEmpty), Reading{Ready: true}},
		{"gemini", "a draft of several rows", gemini("◇  Ready (widget)", " > half a draft", "   second row", "", "   > fourth"),
			Reading{Ready: true, Text: "half a draft second row  > fourth"}},
		{"gemini", "a fold", gemini("◇  Ready (widget)", " > [Pasted Text: 201 lines]"), Reading{Ready: true, Text: "[Pasted Text: 201 lines]"}},
		{"gemini", "a turn", gemini("✦  Working… (widget)", geminiEmpty), Reading{Ready: true, Busy: true}},
		{"gemini", "an approval", screen("✋  Action Required (widget)", " > zz:tool=touch /tmp/x", "", "╭────╮", "│ ? Shell  touch /tmp/x │",
			"│ ● 1. Allow once       │", "│   2. Allow for this session", "╰────╯", ""), Reading{Dialog: true, DialogRow: "✋  Action Required (widget)"}},
		{"gemini", "a question", screen("◇  Ready (widget)", " > hello", "", "╭────╮", "│ ● 1. Keep trying  │", "│   2. Stop         │", "╰────╯"),
			Reading{Dialog: true, DialogRow: "│ ● 1. Keep trying  │"}},
		{"gemini", "shell mode", gemini("◇  Ready (widget)", " !   Type your shell command"), Reading{}},
		{"qwen", "an empty composer", qwen(qwenEmpty), Reading{Ready: true}},
		{"qwen", "a draft of several rows", qwen("> half a draft", "  second row", "", "  > fourth \u200b"), Reading{Ready: true, Text: "half a draft second row  > fourth \u200b"}},
		{"qwen", "a fold", qwen("> [Pasted Content 6400 chars] \u200b"), Reading{Ready: true, Text: "[Pasted Content 6400 chars]"}},
		{"qwen", "the words of the placeholder, typed", qwen("> Type your message or @path \u200b"), Reading{Ready: true, Text: "Type your message or @path"}},
		{"qwen", "a turn", screen("Qwen - widget", "  ⠧ Preparing to dazzle you with brilliance... (1s · ↓ 6 tokens · esc to cancel)", line, qwenEmpty, line, "  ? for shortcuts"),
			Reading{Ready: true, Busy: true}},
		{"qwen", "an approval", screen("Qwen - widget", "  > zz:tool=touch /tmp/x", "", "  ╭────╮", "  │ Allow execution of: 'touch'?  │", "  │ › 1. Yes, allow once │",
			"  ╰────╯", "", "  ⠏ Waiting for user confirmation..."), Reading{Dialog: true, DialogRow: "│ › 1. Yes, allow once │"}},
		{"qwen", "a start that is not over", screen("Qwen - widget", line, qwenEmpty, line, "  Initializing..."), Reading{}},
		{"qwen", "a second C-c that would end it", screen("Qwen - widget", line, qwenEmpty, line, "  Press Ctrl+C again to exit."), Reading{}},
		{"qwen", "a composer in an answer, above a dialog that is not known", screen("Qwen - widget", line, qwenEmpty, line, "  ? for shortcuts", "  Really? (y/n)"), Reading{}},
		{"qwen", "a composer in an answer, and none", screen("Qwen - widget", line, qwenEmpty, line), Reading{}},
		{"qwen", "a cursor that shows", cursor(qwen(qwenEmpty), "Type"), Reading{}},
		{"claude", "what it would show with a suggestion", screen("claude", line, "❯ Try \"edit main.go\"", line, "  ? for shortcuts"), Reading{Ready: true, Text: `Try "edit main.go"`}},
		{"claude", "a question", screen("claude", line, " Do you want to proceed?", " ❯ 1. Yes", "   2. No", "", " Esc to cancel"), Reading{Dialog: true, DialogRow: "Do you want to proceed?"}},
		{"cursor-agent", "a question", screen("cursor", " Run this command?", "  → Run (once) (y) (enter)", "    Skip (esc)"), Reading{Dialog: true, DialogRow: "Run this command?"}},
	} {
		t.Run(row.name+", "+row.what, func(t *testing.T) {
			if got := entry(t, row.name).Read(row.screen); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

// A screen that is not one that was foreseen is never one to type at.
func TestEdge_NothingElseMayStandAtTheEndOfTheScreen(t *testing.T) {
	line := strings.Repeat("─", 200)
	rows := []string{"  answer", line, ">   Type your message or @path/to/file", line, "  ? for shortcuts"}
	if r := entry(t, "qwen").Read(screen("", rows...)); !r.Ready {
		t.Fatalf("%+v", r)
	}
	for i := range rows {
		for _, other := range []string{"", "x", "  > hello", "│ Allow? │"} {
			changed := append([]string{}, rows...)
			changed[i] = other
			r := entry(t, "qwen").Read(screen("", changed...))
			if ready := i == 0; r.Ready != ready {
				t.Errorf("row %d as %q: %+v", i, other, r)
			}
		}
	}
	for n := range rows {
		if r := entry(t, "qwen").Read(screen("", rows[:n]...)); r.Ready {
			t.Errorf("the first %d rows: %+v", n, r)
		}
	}
}

func TestFiles_LieBelowTheHarnesssOwnDirectory(t *testing.T) {
	files := entry(t, "opencode").Files()
	if text := files["/state/harness/opencode/config/plugin/muxpost.js"]; len(files) != 2 || !strings.Contains(text, "MUXPOST_SESSIONS") {
		t.Errorf("%v", files)
	}
	for _, path := range []string{"/etc/passwd", "{state}/../x", "{home}/.codex/config.toml", "{state}"} {
		h := settings.BuiltinHarnesses()["fakeagent"]
		h.Files = map[string]string{path: ""}
		if _, err := settings.CheckHarnesses(map[string]settings.Harness{"mine": h}); err == nil {
			t.Errorf("%s may be written", path)
		}
	}
}
