package harness

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

func found(name string) (string, error) { return "/bin/" + name, nil }

func bundled(t *testing.T) *Harness {
	t.Helper()
	table, err := New(settings.BuiltinHarnesses(), "/state", "/home/me", found)
	if err != nil {
		t.Fatal(err)
	}
	h, err := table.Find("fakeagent")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// screen draws rows with the cursor at the end of the row that ends in |, which is removed.
func screen(title string, rows ...string) Screen {
	s := Screen{Title: title}
	for y, row := range rows {
		if before, ok := strings.CutSuffix(row, "|"); ok {
			row = before
			s.CursorX, s.CursorY, s.CursorShown = len([]rune(row)), y, true
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

const footer = "  fake-1 · /work"

func TestRead_Screens(t *testing.T) {
	empty := screen("fakeagent", "banner", "", "› Ask fakeagent to do anything", footer)
	empty.CursorX, empty.CursorY, empty.CursorShown = 2, 2, true
	hidden := empty
	hidden.CursorShown = false
	for _, row := range []struct {
		name   string
		screen Screen
		want   Reading
	}{
		{"nothing", Screen{}, Reading{}},
		{"empty composer", empty, Reading{Ready: true}},
		{"no cursor", hidden, Reading{}},
		{"a draft", screen("fakeagent", "› half a|", footer), Reading{Ready: true, Text: "half a"}},
		{"a draft that reads like the placeholder", screen("fakeagent", "› Ask fakeagent to do anything|", footer),
			Reading{Ready: true, Text: "Ask fakeagent to do anything"}},
		{"several rows", screen("fakeagent", "› one", "  two", "  three|", footer), Reading{Ready: true, Text: "one two three"}},
		{"no footer", screen("fakeagent", "› one|"), Reading{}},
		{"cursor below the footer", screen("fakeagent", "› one", footer, "|"), Reading{}},
		{"busy by title", screen("⠋ fakeagent", "› x|", footer), Reading{Ready: true, Busy: true, Text: "x"}},
		{"busy by footer", screen("fakeagent", "› x|", footer+" · esc to interrupt"), Reading{Ready: true, Busy: true, Text: "x"}},
		{"a dialog", screen("fakeagent", "Would you?", "› 1. Yes, proceed (y)", "Press enter to confirm or esc to cancel"),
			Reading{Dialog: true, DialogRow: "› 1. Yes, proceed (y)"}},
		{"a dialog by title alone", screen("[ ! ] Action Required | fakeagent", "› x|", footer),
			Reading{Dialog: true, DialogRow: "[ ! ] Action Required | fakeagent", Text: "x"}},
		{"an old dialog far up", screen("fakeagent", append(append([]string{"› 1. Yes"}, make([]string, 20)...), "› x|", footer)...),
			Reading{Ready: true, Text: "x", Elsewhere: 1}},
		{"a text with a row like the footer", screen("fakeagent", "› one", "  fake-1 · x", "  two|", footer), Reading{Ready: true, Text: "one fake-1 · x two"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := bundled(t).Read(row.screen); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

func TestComposed_OnlyTheWholeTextAloneIsSubmitted(t *testing.T) {
	h := bundled(t)
	mark := "[muxpost d0123456789]"
	long := mark + "\n" + strings.Repeat("x", 1500)
	typed := mark + "\nplease fix the build, it is red\nand tell me"
	for _, row := range []struct {
		name, composer, typed string
		want                  Shows
	}{
		{"empty", "", typed, ShowsNothing},
		{"all of it", mark + " please fix the build, it is red and tell me", typed, ShowsText},
		{"wrapped elsewhere", mark + " please fix the bu ild, it is red and tell me", typed, ShowsText},
		{"its end", "fix the build, it is red and tell me", typed, ShowsText},
		{"too little of its end", "tell me", typed, ShowsOther},
		{"a draft before it", "half " + mark + " please fix the build, it is red and tell me", typed, ShowsMore},
		{"a draft behind it", mark + " please fix the build, it is red and tell me not", typed, ShowsMore},
		{"a draft alone", "merge only after", typed, ShowsOther},
		{"its fold", fmt.Sprintf("[Pasted Content %d chars]", len(long)), long, ShowsText},
		{"another fold", "[Pasted Content 1001 chars]", long, ShowsOther},
		{"a draft and its fold", fmt.Sprintf("half [Pasted Content %d chars]", len(long)), long, ShowsMore},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := h.Composed(Reading{Ready: true, Text: row.composer}, row.typed, mark); got != row.want {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

func TestClosed_LeavesNoWordThatAProgramWouldComplete(t *testing.T) {
	for typed, want := range map[string]string{
		"look at @README.md": "look at @README.md ", "m\n@": "m\n@ ", "use $plan": "use $plan ", "write to me@there": "write to me@there ",
		"see (@x": "see (@x ", "@x and more": "@x and more", "as it is": "as it is", "/help": "/help",
	} {
		if got := Closed(typed); got != want {
			t.Errorf("Closed(%q) = %q", typed, got)
		}
	}
	text := "[muxpost d0123456789]\n" + strings.Repeat("x", 1500) + " @x"
	if h := bundled(t); h.Composed(Reading{Ready: true, Text: fmt.Sprintf("[Pasted Content %d chars]", len(text)+1)}, Closed(text), "[muxpost d0123456789]") != ShowsText {
		t.Error("a fold does not stand for the text as it was typed")
	}
}

func TestReads_OnlyAMessageThatBeginsWithTheMark(t *testing.T) {
	h := bundled(t)
	mark := "[muxpost d0123456789]"
	for line, want := range map[string]Mention{
		`{"type":"user","text":"` + mark + `\nx"}`:                      Takes,
		`{"type":"user","text":"quoted \"` + mark + `\n here"}`:         Mentioned,
		`{"type":"user","text":"draft ` + mark + `"}`:                   Mentioned,
		`{"type":"assistant","text":"` + mark + `"}`:                    NotMentioned,
		`{"type":"user","text":"[muxpost d9999999999]\nx"}`:             NotMentioned,
		`{"type":"user","text":"\"` + mark + `","also":"` + mark + `"}`: Takes,
	} {
		if got := h.Reads([]byte(line), mark); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

func TestArgv_HoldsNoPromptAndNoUnaskedWord(t *testing.T) {
	h := bundled(t)
	v := Vars{ConversationID: "id-1", PromptFile: "/p/{dir}", Dir: "/d"}
	for _, row := range []struct {
		resume bool
		v      Vars
		want   string
	}{
		{false, Vars{ConversationID: "id-1"}, "/bin/fakeagent --session-id id-1"},
		{true, Vars{ConversationID: "id-1"}, "/bin/fakeagent --resume id-1"},
		{false, v, "/bin/fakeagent --session-id id-1 --prompt-file /p/{dir}"},
	} {
		if got := strings.Join(h.Argv(row.resume, row.v), " "); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}

func TestEnviron_PassesOnOnlyWhatIsNamed(t *testing.T) {
	env := bundled(t).Environ(func(key string) (string, bool) { return "v", true }, Vars{})
	all := "\n" + strings.Join(env, "\n")
	for _, want := range []string{"FAKEAGENT_HOME=/state/harness/fakeagent", "PATH=v", "FAKEAGENT_TURN=v", "TERM=tmux-256color"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing in %v", want, env)
		}
	}
	for _, no := range []string{"TMUX=", "TMUX_PANE=", "AWS_"} {
		if strings.Contains(all, "\n"+no) {
			t.Errorf("%s is passed on", no)
		}
	}
}

func TestNew_SaysWhichKeyIsWrong(t *testing.T) {
	good := settings.BuiltinHarnesses()["fakeagent"]
	for want, change := range map[string]func(*settings.Harness){
		"binary":          func(e *settings.Harness) { e.Binary = "" },
		"prompt: a":       func(e *settings.Harness) { e.Prompt = "" },
		"exactly one":     func(e *settings.Harness) { e.Prompt = "^› " },
		"fold":            func(e *settings.Harness) { e.Fold = "(" },
		"POSIX":           func(e *settings.Harness) { e.Dialogs = []string{`\d+`} },
		"status is":       func(e *settings.Harness) { e.Status = "guess" },
		"busy_title is n": func(e *settings.Harness) { e.Status, e.BusyTitle = settings.StatusTitle, "" },
		"busy_title hold": func(e *settings.Harness) { e.Status, e.BusyTitle = settings.StatusTitle, `^[\x{2800}-\x{28FF}] ` },
		"needs {note}":    func(e *settings.Harness) { e.Status = settings.StatusNote },
		"approval":        func(e *settings.Harness) { e.Approval = "(" },
		"when_busy":       func(e *settings.Harness) { e.WhenBusy = "later" },
		"conversation_id": func(e *settings.Harness) { e.ConversationID = "guessed" },
		"fresh":           func(e *settings.Harness) { e.Fresh = nil },
		"resume":          func(e *settings.Harness) { e.Resume = []string{"--resume"} },
		"prompt_args":     func(e *settings.Harness) { e.PromptArgs = []string{"-p"} },
		"survival":        func(e *settings.Harness) { e.Survival = 1e12 },
		"transcript":      func(e *settings.Harness) { e.Transcript = "here" },
	} {
		e := good
		change(&e)
		_, err := New(map[string]settings.Harness{"custom": e}, "/state", "/home", found)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "custom") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := New(map[string]settings.Harness{"Bad Name": good}, "/state", "/home", found); err == nil {
		t.Error("a bad name passes")
	}
}

func TestFind_ListsWhatThereIs(t *testing.T) {
	table, err := New(settings.BuiltinHarnesses(), "/state", "/home", found)
	if err != nil {
		t.Fatal(err)
	}
	_, err = table.Find("codx")
	if fault.ReasonOf(err) != fault.ReasonUnknownHarness || !strings.Contains(err.Error(), "fakeagent") {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("› x\n"+footer, 1, 0, "t")
	f.Fuzz(func(t *testing.T, rows string, x, y int, title string) {
		h := bundled(t)
		r := h.Read(Screen{Rows: strings.Split(rows, "\n"), CursorX: x, CursorY: y, CursorShown: true, Title: title})
		if r.Ready && r.Dialog {
			t.Fatal("ready behind a dialog")
		}
		h.Composed(r, "[muxpost d0123456789]\nx", "[muxpost d0123456789]")
		for _, name := range []string{"gemini", "qwen", "claude", "cursor-agent"} {
			if r := entry(t, name).Read(Screen{Rows: strings.Split(rows, "\n"), CursorX: x, CursorY: y, Title: title}); r.Ready && r.Dialog {
				t.Fatal("ready behind a dialog")
			}
		}
	})
}

func TestTask_EachEntryOfTheTableIsCalledAsItsProgramWants(t *testing.T) {
	table, err := New(settings.BuiltinHarnesses(), "/state", "/home/me", found)
	if err != nil {
		t.Fatal(err)
	}
	sentence := "Read the file /p and do the task that it describes, completely."
	want := map[string]Task{
		"fakeagent": {[]string{"/bin/fakeagent", "--task", "--session-id", "a-1"}, true},
		"codex":     {[]string{"/bin/codex", "exec", "-"}, true}, "opencode": {[]string{"/bin/opencode", "run"}, true},
		"gemini":         {[]string{"/bin/gemini", "--skip-trust", "--output-format", "text"}, true},
		"qwen":           {[]string{"/bin/qwen", "--output-format", "text"}, true},
		"claude":         {[]string{"/bin/claude", "-p"}, true},
		"cursor-agent":   {[]string{"/bin/cursor-agent", "-p", sentence}, false},
		"oh-my-opencode": {[]string{"/bin/oh-my-opencode", "run"}, true},
		"omx":            {[]string{"/bin/omx", "team", sentence}, false}, "omc": {[]string{"/bin/omc", "team", sentence}, false},
	}
	for _, name := range table.Names() {
		got, err := table[name].Task(Vars{PromptFile: "/p", AttemptID: "a-1"}, "the {home} $(task)")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want[name]) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want[name])
		}
	}
}

func TestTask_TextIsPutInOnceAndRefusedWhereItCannotStand(t *testing.T) {
	table, err := New(map[string]settings.Harness{"text": {Binary: "x first", Task: []string{"{prompt}", "-d", "{dir}"}, TaskPrompt: "text"},
		"none": {Binary: "y", Prompt: "^(.*)$"}}, "/state", "/home/me", found)
	if err != nil {
		t.Fatal(err)
	}
	got, err := table["text"].Task(Vars{Dir: "/d", PromptFile: "/p"}, "do {dir} {home}")
	if err != nil || fmt.Sprintf("%q", got.Argv) != `["/bin/x" "first" "do {dir} {home}" "-d" "/d"]` || got.Stdin {
		t.Errorf("%q, %v", got.Argv, err)
	}
	for prompt, reason := range map[string]fault.Reason{"a\x00": fault.ReasonBadText, strings.Repeat("x", 128<<10): fault.ReasonTextTooLarge} {
		if _, err := table["text"].Task(Vars{}, prompt); fault.ReasonOf(err) != reason || !errors.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
	}
	if _, err := table["none"].Task(Vars{}, "x"); fault.ReasonOf(err) != fault.ReasonNoTasks {
		t.Errorf("%v", err)
	}
}
