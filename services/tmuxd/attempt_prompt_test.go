package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// prompts adds harnesses that write down what reached them: their standard input, and their first argument.
func prompts(b *bench) {
	for mode, word := range map[string]string{"stdin": "none", "file": "{prompt_file}", "sentence": "{sentence}", "text": "{prompt}"} {
		b.entries[mode] = settings.Harness{Binary: "/bin/sh", TaskPrompt: mode,
			Task: []string{"-c", `cat > stdin; printf '%s' "$1" > argument; if [ -f "$1" ]; then cat "$1" > file; fi`, "x", word}}
	}
}

func (b *bench) content(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(b.file(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// prompted runs a prompt to its end.
func (b *bench) prompted(harness, prompt string) attempt.Attempt {
	b.t.Helper()
	a := b.launch("", func(r *attempt.LaunchRequest) { r.Harness, r.Prompt = harness, prompt })
	return b.becomes(a.ID, task.Succeeded)
}

func TestT37_T38_T41_ThePromptArrivesByteByByte(t *testing.T) {
	t.Parallel()
	b := newBench(t, prompts)
	for name, prompt := range map[string]string{
		"quotes": `it's "so" \ $(touch ran) ` + "`touch ran`" + ` $HOME ! ~ * ;`, "white": "\ttabs\n\nnewlines\r\nand returns\r", "emoji": "👩🏽‍💻 é 漢",
		"no newline": "x", "NUL": "a\x00b\x00", "escapes": "\x1b[201~\x03\x04", "2 MB": strings.Repeat("0123456789abcde\n", 2<<20/16),
		"a line like an option": "--help\n-x",
	} {
		b.prompted("stdin", prompt)
		if got := b.content("stdin"); got != prompt {
			t.Errorf("%s: stdin has %d bytes, %.60q", name, len(got), got)
		}
		b.prompted("file", prompt)
		if got := b.content("stdin"); got != prompt || b.content("file") != prompt {
			t.Errorf("%s: by file, stdin has %d bytes, %.60q, and the file %d", name, len(got), got, len(b.content("file")))
		}
	}
	if _, err := os.Stat(b.file("ran")); err == nil {
		t.Error("the prompt was run")
	}
}

func TestT39_T40_OnTheCommandLineStandsASentenceThatPointsToTheFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, prompts)
	a := b.launch("", func(r *attempt.LaunchRequest) { r.Harness, r.Prompt = "sentence", "my $(task)\n" })
	b.becomes(a.ID, task.Succeeded)
	if got := b.content("argument"); got != "Read the file "+b.disk.PromptFile(a.ID)+" and do the task that it describes, completely." {
		t.Errorf("%q", got)
	}
	if got := b.content("stdin"); got != "" {
		t.Errorf("stdin has %q", got)
	}
	b.prompted("text", "my $(task) `x` \"q\"\n;")
	if got := b.content("argument"); got != "my $(task) `x` \"q\"\n;" || b.content("stdin") != "" {
		t.Errorf("%q", got)
	}
}

func TestT42_WhatCannotStandOnACommandLineIsRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	launches := 0
	b := newBench(t, prompts, spied(&watchedDisk{}, &watchedTmux{called: func(what string) {
		if what == "launch" {
			launches++
		}
	}}))
	for prompt, reason := range map[string]fault.Reason{strings.Repeat("x", 200<<10): fault.ReasonTextTooLarge, "a\x00b": fault.ReasonBadText} {
		req := b.request("")
		req.Harness, req.Prompt = "text", prompt
		if _, _, err := b.Launch(b.ctx(), req); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != reason {
			t.Errorf("%v", err)
		}
		if _, _, err := b.Get(b.ctx(), req.ID, false); !errors.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
	}
	// By sentence the same prompt is no trouble.
	b.prompted("sentence", strings.Repeat("x", 200<<10))
	if launches != 1 {
		t.Errorf("%d launches", launches)
	}
}

func TestT44_T141_NoPromptAndNoSecretIsToBeSeenFromOutside(t *testing.T) {
	t.Parallel()
	value := "it's a \"secret\" #{pid} #(id) ; $(id)\nsecond\tline " + strings.Repeat("0123456789", 10<<10)
	b := newBench(t, func(b *bench) {
		e := b.entries["sh"]
		e.PassEnv, e.Env = []string{"ATTEMPT_SECRET"}, map[string]string{"ATTEMPT_ENV": "{home}; #{x}\n$(y)"}
		b.entries["sh"], b.env["ATTEMPT_SECRET"] = e, value
	})
	prompt := "# the-secret-prompt\nprintf '%s' \"$ATTEMPT_SECRET\" > value; printf '%s' \"$ATTEMPT_ENV\" > env; env | grep -c ^TMUX > tmux; tty > tty; " +
		"echo ready > ready; while [ ! -e go ]; do sleep 0.05; done; exit 0"
	a := b.launch(prompt)
	b.written("ready")
	for _, pid := range []int{a.Pane.Server.Pid, a.Pane.Wrapper.Pid} {
		for _, file := range []string{"cmdline", "environ"} {
			data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
			if err != nil || strings.Contains(string(data), "the-secret-prompt") || strings.Contains(string(data), "ATTEMPT_SECRET") {
				t.Errorf("%s of %d: %.300q, %v", file, pid, data, err)
			}
		}
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "the-secret-prompt") {
			t.Errorf("%s: %.300q", path, data)
		}
	}
	for _, args := range [][]string{{"capture-pane", "-p", "-S", "-"}, {"list-panes", "-a", "-F", "#{pane_start_command}"}, {"show-environment", "-g"}, {"show-buffer"}} {
		if out, err := b.cmd(a.Target, args...); err == nil && (strings.Contains(out, "secret-prompt") || strings.Contains(out, "0123456789")) {
			t.Errorf("%v: %.300s", args, out)
		}
	}
	if got := b.content("value"); got != value {
		t.Errorf("the value has %d bytes, not %d: %.80q", len(got), len(value), got)
	}
	if got := b.content("env"); got != b.dir+"; #{x}\n$(y)" {
		t.Errorf("%q", got)
	}
	if got := b.written("tmux"); got != "0" {
		t.Errorf("%s variables of tmux", got)
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(a.ID, task.Succeeded)
	left, _ := filepath.Glob(filepath.Join(b.dir, "state", "attempts", a.ID, "*"))
	for _, path := range left {
		if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), "the-secret-prompt") || strings.Contains(string(data), "secret\\\"") {
			t.Errorf("%s keeps a secret, %v", path, err)
		}
	}
}

func TestT45_TwoAttemptsInOneDirectoryHaveTheirOwnPrompts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	script := func(name string) string { return "while [ ! -e go ]; do sleep 0.01; done; echo " + name + " > " + name }
	one, two := b.launch(script("one")), b.launch(script("two"))
	if b.disk.PromptFile(one.ID) == b.disk.PromptFile(two.ID) {
		t.Error("they share a prompt")
	}
	if err := os.WriteFile(b.file("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.becomes(one.ID, task.Succeeded)
	b.becomes(two.ID, task.Succeeded)
	if b.written("one") != "one" || b.written("two") != "two" {
		t.Error("a prompt went astray")
	}
}

func TestT50_T56_EveryEntryOfTheTableEndsByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		// The stub reads its standard input to the end, and says how it was called.
		stub := filepath.Join(b.dir, "stub")
		if err := os.WriteFile(stub, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" > arguments\ncat > stdin\nexit 0\n"), 0o755); err != nil {
			b.t.Fatal(err)
		}
		for name, e := range settings.BuiltinHarnesses() {
			e.Binary = stub
			b.entries[name] = e
		}
	})
	want := map[string]string{"codex": "exec\n-\n", "opencode": "run\n", "oh-my-opencode": "run\n", "omx": "team\nRead the file ", "omc": "team\nRead the file ",
		"gemini": "--skip-trust\n--output-format\ntext\n", "qwen": "--output-format\ntext\n", "claude": "-p\n", "cursor-agent": "-p\nRead the file "}
	for name := range settings.BuiltinHarnesses() {
		b.prompted(name, "the task")
		arguments, stdin := b.content("arguments"), b.content("stdin")
		if !strings.HasPrefix(arguments, want[name]) || strings.Contains(arguments, "serve") || strings.Contains(arguments, "the task\n") {
			t.Errorf("%s was called with %q", name, arguments)
		}
		if reads := b.entries[name].TaskPrompt != settings.TaskPromptSentence; (stdin == "the task") != reads {
			t.Errorf("%s read %q", name, stdin)
		}
	}
}

func TestT53_WhatCannotWorkIsRefusedBeforeTmuxIsAsked(t *testing.T) {
	t.Parallel()
	asked := 0
	b := newBench(t, func(b *bench) {
		b.entries["absent"] = settings.Harness{Binary: "no-such-program", Task: []string{"x"}}
		b.entries["interactive"] = settings.Harness{Binary: "/bin/sh", Prompt: "^> (.*)$"}
	}, spied(&watchedDisk{}, &watchedTmux{called: func(string) { asked++ }}))
	outside := b.dir
	for name, row := range map[string]struct {
		change func(*attempt.LaunchRequest)
		reason fault.Reason
	}{
		"an unknown harness":          {func(r *attempt.LaunchRequest) { r.Harness = "nobody" }, fault.ReasonUnknownHarness},
		"a program that is not there": {func(r *attempt.LaunchRequest) { r.Harness = "absent" }, fault.ReasonUnknownHarness},
		"no task":                     {func(r *attempt.LaunchRequest) { r.Harness = "interactive" }, fault.ReasonNoTasks},
		"no prompt":                   {func(r *attempt.LaunchRequest) { r.Prompt = "" }, fault.ReasonTextEmpty},
		"a prompt that is too long":   {func(r *attempt.LaunchRequest) { r.Prompt = strings.Repeat("x", 2<<20+1) }, fault.ReasonTextTooLarge},
		"an id that is none":          {func(r *attempt.LaunchRequest) { r.ID = "../../x" }, fault.ReasonBadArgument},
		"an id in capitals":           {func(r *attempt.LaunchRequest) { r.ID = strings.ToUpper(uuid.NewString()) }, fault.ReasonBadArgument},
		"no token":                    {func(r *attempt.LaunchRequest) { r.Token = 0 }, fault.ReasonBadArgument},
		"too long a limit":            {func(r *attempt.LaunchRequest) { r.Limit = 1000 * b.config.MaxLimit }, fault.ReasonBadArgument},
		"too short a stall limit":     {func(r *attempt.LaunchRequest) { r.StallLimit = 1 }, fault.ReasonBadArgument},
		"a directory outside":         {func(r *attempt.LaunchRequest) { r.Directory = outside }, fault.ReasonDirectoryOutside},
		"no directory":                {func(r *attempt.LaunchRequest) { r.Directory = b.file("none") }, fault.ReasonDirectoryMissing},
		"a relative directory":        {func(r *attempt.LaunchRequest) { r.Directory = "work" }, fault.ReasonBadArgument},
	} {
		req := b.request("exit 0")
		row.change(&req)
		if _, _, err := b.Launch(b.ctx(), req); fault.ReasonOf(err) != row.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked != 0 {
		t.Errorf("tmux was asked %d times", asked)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "state", "attempts", "*")); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

func TestT54_ABinaryWithBlanksIsAProgramAndItsFirstArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) {
		b.entries["blanks"] = settings.Harness{Binary: "/bin/sh -c", Task: []string{`printf '%s|' "$0" "$@" > argument; cat > stdin`, "zero;", "a b;", "#{pid}"}}
	})
	b.prompted("blanks", "x")
	if got := b.content("argument"); got != "zero;|a b;|#{pid}|" { // also T68: what ends in ; is passed as it is
		t.Errorf("%q", got)
	}
}

func TestT67_T68_ADirectoryIsNotAFormat(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(b *bench) { b.tmuxEnv = append(b.tmuxEnv, "RAN="+b.file("ran")) })
	for _, name := range []string{"#(touch $RAN) #{pid}", "a b;", "*?[x]", "$HOME", "-x"} {
		dir := b.file(name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		a := b.launch("pwd > where; exit 0", func(r *attempt.LaunchRequest) { r.Directory = dir })
		b.becomes(a.ID, task.Succeeded)
		if got := b.written(name + "/where"); got != dir {
			t.Errorf("%q", got)
		}
	}
	if _, err := os.Stat(b.file("ran")); err == nil {
		t.Error("the name of a directory was run")
	}
}
