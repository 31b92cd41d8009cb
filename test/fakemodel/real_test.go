package fakemodel

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
)

// realWithin bounds what a real agent does once: opencode has been seen to need a minute and a half on a loaded machine,
// and two of them at once hinder each other, so that its tests are not parallel.
const realWithin = 5 * time.Minute

// pollEvery is how often a screen is looked at.
const pollEvery = 20 * time.Millisecond

// agent is a real agent with a home of its own, in a repository of its own, that asks a server of its own.
type agent struct {
	t      *testing.T
	path   string
	home   string
	dir    string
	server *Server
}

func newAgent(t *testing.T, name string) *agent {
	t.Helper()
	a := &agent{t: t, path: needs.Agent(t, name), home: t.TempDir(), dir: t.TempDir()}
	a.server, _ = start(t)
	if out, err := exec.Command("git", "init", "-q", a.dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v %s", err, out)
	}
	if err := errors.Join(
		CodexHome(filepath.Join(a.home, ".codex"), a.server.URL(), a.dir),
		OpencodeConfig(filepath.Join(a.home, ".config", "opencode"), a.server.URL())); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *agent) environment() []string {
	return []string{
		"HOME=" + a.home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LANG=C.UTF-8", KeyVariable + "=x",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
	}
}

// run runs the agent to its end and returns what it printed. The prompt is its input: opencode puts quotes around an argument with spaces.
func (a *agent) run(prompt string, args ...string) (string, error) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), realWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.path, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = a.dir, a.environment(), strings.NewReader(prompt)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// codex is a script with the program as its child: both are ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	return out.String(), err
}

func (a *agent) expectPrompt(prompt, out string, err error) {
	a.t.Helper()
	got := Prompts(a.server.Received())
	if err != nil || len(got) != 1 || got[0].Text != prompt || got[0].Conversation == "" {
		a.t.Fatalf("it ended with %v, the model received %v; it printed:\n%s", err, got, out)
	}
}

// result is what the model was told of the tool that it called.
func (a *agent) result() string {
	for _, m := range a.server.Received() {
		if m.Kind == KindTool {
			return m.Text
		}
	}
	return ""
}

// awkward is a text that is changed by whatever interprets it.
const awkward = "[muxpost d-1]\n\nIt's \"ä\" & <b> $HOME `x` \\n 100 % zz:len=3\n\tend"

func TestReal_CodexReceivesExactlyThePromptOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "codex")
	out, err := a.run(awkward, "exec", "--json", "-")
	a.expectPrompt(awkward, out, err)
	if !strings.Contains(out, `"text":"`+threeWords+`"`) || !strings.Contains(out, `"type":"turn.completed"`) {
		t.Errorf("it printed:\n%s", out)
	}
}

func TestReal_OpencodeReceivesExactlyThePromptOnce(t *testing.T) {
	a := newAgent(t, "opencode")
	out, err := a.run(awkward, "run", "--format", "json")
	a.expectPrompt(awkward, out, err)
	if !strings.Contains(out, `"text":"`+threeWords+`"`) {
		t.Errorf("it printed:\n%s", out)
	}
}

func TestReal_CodexExecRejectsWhatWouldNeedAnApproval(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "codex")
	const prompt = "zz:tool=touch marker"
	out, err := a.run(prompt, "exec", "--json", "-")
	a.expectPrompt(prompt, out, err)
	if got := a.result(); !strings.Contains(got, "reject command") {
		t.Errorf("the model was told %q", got)
	}
	if _, err := os.Stat(filepath.Join(a.dir, "marker")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command was run: %v", err)
	}
}

func TestReal_OpencodeRunRejectsWhatNeedsAPermission(t *testing.T) {
	a := newAgent(t, "opencode")
	const prompt = "zz:tool=touch marker"
	out, err := a.run(prompt, "run", "--format", "json")
	a.expectPrompt(prompt, out, err)
	if !strings.Contains(out, "rejected permission") {
		t.Errorf("it printed:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(a.dir, "marker")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command was run: %v", err)
	}
}

func TestReal_AnErrorOfTheModelEndsBoth(t *testing.T) {
	for name, args := range map[string][]string{"codex": {"exec", "-"}, "opencode": {"run"}} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, name)
			out, err := a.run("zz:http=401", args...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "as the prompt asked for") {
				t.Errorf("it ended with %v and printed:\n%s", err, out)
			}
		})
	}
}

func TestReal_CodexAsksAPersonAtItsTerminal(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "codex")
	const prompt = "zz:tool=touch marker && echo done"
	socket := filepath.Join(t.TempDir(), "s")
	tmux := func(args ...string) string {
		cmd := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		cmd.Env = a.environment()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v %s", args, err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", a.dir, a.path, "--no-daemon", "-C", a.dir, prompt)
	t.Cleanup(func() { tmux("kill-server") })
	deadline := time.Now().Add(realWithin)
	until := func(what string, ok func() bool) {
		t.Helper()
		for ; !ok(); time.Sleep(pollEvery) {
			if time.Now().After(deadline) {
				t.Fatalf("%s did not come, with %v received, on\n%s", what, a.server.Received(), tmux("capture-pane", "-p"))
			}
		}
	}
	asks := func() bool {
		screen := tmux("capture-pane", "-p")
		return strings.Contains(screen, "Would you like to run") && strings.Contains(screen, "Press enter to confirm")
	}
	until("the dialog", asks)
	if got := a.result(); got != "" {
		t.Fatalf("nobody approved, and the model was told %q", got)
	}
	// A codex that has only just started was seen to miss a key that came as soon as its dialog was there.
	until("the result", func() bool {
		if asks() {
			tmux("send-keys", "y")
		}
		return a.result() != ""
	})
	if got := a.result(); !strings.Contains(got, "exited with code 0") || !strings.HasSuffix(got, "done\n") {
		t.Errorf("the model was told %q", got)
	}
	if _, err := os.Stat(filepath.Join(a.dir, "marker")); err != nil {
		t.Error(err)
	}
	// The title of the conversation is asked for by codex itself, and carries the prompt with its directive.
	until("the title", func() bool {
		return slices.ContainsFunc(a.server.Received(), func(m Message) bool { return m.Kind == KindOwn && strings.Contains(m.Text, prompt) })
	})
	a.expectPrompt(prompt, "", nil)
}
