package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// program puts a shell script in a program's place, as an installation does.
func program(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path+".text", []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Not written by this process: a child that another test is starting would hold it open for a moment, and it could not be run.
	if out, err := exec.Command("sh", "-c", `cp "$0.text" "$0.new" && mv "$0.new" "$0"`, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// programs returns the harnesses of a table in which each name stands for the program of that name in a directory.
func programs(t *testing.T, dir string, names ...string) *harnesses {
	t.Helper()
	entries := map[string]settings.Harness{}
	for _, name := range names {
		entries[name] = settings.Harness{Binary: filepath.Join(dir, name) + " first", Prompt: "^> (.*)$"}
	}
	table, err := harness.New(entries, dir, dir, exec.LookPath)
	if err != nil {
		t.Fatal(err)
	}
	return newHarnesses(table, dir)
}

func TestVersions_AreAskedForOnDemandAloneAndAnewForAnotherProgram(t *testing.T) {
	t.Setenv("MUXPOST_TEST_SECRET", "a secret")
	dir := t.TempDir()
	runs := func() int {
		data, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Count(string(data), "\n")
	}
	program(t, filepath.Join(dir, "one"), `echo x >> runs; echo; echo "one $1 $2 $MUXPOST_TEST_SECRET[$TERM]"; echo more; echo worse >&2`)
	h := programs(t, dir, "one", "none")
	if got := h.infos(t.Context(), false); got[1].GetVersion() != "" || got[1].GetBinary() == "" || runs() != 0 {
		t.Errorf("without being asked: %v, %d runs", got, runs())
	}
	for range 2 {
		for _, ask := range []bool{true, false} {
			got := h.infos(t.Context(), ask)
			if v := got[1].GetVersion(); v != "one first --version [tmux-256color]" || got[1].GetVersionProblem() != "" || runs() != 1 {
				t.Errorf("%q %v, %d runs", v, got[1], runs())
			}
			if got[0].GetBinary() != "" || got[0].GetVersion() != "" || got[0].GetVersionProblem() != "" {
				t.Errorf("what is not installed: %v", got[0])
			}
		}
	}
	program(t, filepath.Join(dir, "one"), `printf 'two\033[31m\n'`)
	if v := h.infos(t.Context(), false)[1].GetVersion(); v != "" {
		t.Errorf("the version of the program that was there before is told: %q", v)
	}
	if v := h.infos(t.Context(), true)[1].GetVersion(); v != "two[31m" {
		t.Errorf("of the new one: %q", v)
	}
}

func TestVersions_ThatAreNotToldBlockNobodyForLongAndLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	program(t, filepath.Join(dir, "fails"), `echo 1.0; exit 3`)
	program(t, filepath.Join(dir, "hangs"), `echo $$ > pid; sleep 300; echo 1.0`)
	program(t, filepath.Join(dir, "mute"), `echo " "`)
	program(t, filepath.Join(dir, "talks"), `yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 100000`)
	h := programs(t, dir, "fails", "hangs", "mute", "talks")
	h.patience = 2 * time.Second
	start := time.Now()
	got := h.infos(t.Context(), true)
	if took := time.Since(start); took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
	for i, want := range []string{"exit status 3", "in time", "says nothing"} {
		if got[i].GetVersion() != "" || !strings.Contains(got[i].GetVersionProblem(), want) {
			t.Errorf("%v, want %q", got[i], want)
		}
	}
	if got[3].GetVersion() != strings.Repeat("a", versionLength) {
		t.Errorf("%v", got[3])
	}
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || convErr != nil {
		t.Fatal(err, convErr)
	}
	for end := time.Now().Add(20 * time.Second); syscall.Kill(-pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			t.Fatal("what the program started lives on")
		}
	}
	// A failure is asked about again.
	program(t, filepath.Join(dir, "mute"), `echo 2.0`)
	if v := h.infos(t.Context(), true)[2].GetVersion(); v != "2.0" {
		t.Errorf("%q", v)
	}
}

func TestInfos_SayWhatAnEntryCanDo(t *testing.T) {
	table, err := harness.New(settings.BuiltinHarnesses(), "/state", "/home/me", func(name string) (string, error) { return "", exec.ErrNotFound })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*tmuxdv1.HarnessInfo{}
	for _, info := range newHarnesses(table, "/").infos(t.Context(), true) {
		got[info.GetName()] = info
	}
	if f := got["fakeagent"]; !f.GetResumes() || !f.GetTakesPrompt() || !f.GetRunsTasks() || !f.GetRunsSessions() || len(f.GetUnmeasured()) > 0 ||
		f.GetConversationSource() != tmuxdv1.ConversationSource_CONVERSATION_SOURCE_ASSIGNED {
		t.Errorf("%v", f)
	}
	if c := got["cursor-agent"]; c.GetResumes() || c.GetTakesPrompt() || !c.GetRunsSessions() || !slices.Contains(c.GetUnmeasured(), "prompt") ||
		c.GetConversationSource() != tmuxdv1.ConversationSource_CONVERSATION_SOURCE_NONE {
		t.Errorf("%v", c)
	}
	for name, want := range map[string]tmuxdv1.Channel{"fakeagent": tmuxdv1.Channel_CHANNEL_PASTE, "opencode": tmuxdv1.Channel_CHANNEL_SOCKET,
		"codex": tmuxdv1.Channel_CHANNEL_APP_SERVER} {
		if is := got[name].GetChannel(); is != want {
			t.Errorf("%s: %v", name, is)
		}
	}
	if o := got["opencode"]; o.GetConversationSource() != tmuxdv1.ConversationSource_CONVERSATION_SOURCE_LEARNED || o.GetTakesPrompt() {
		t.Errorf("%v", o)
	}
	if o := got["omx"]; o.GetRunsSessions() || !o.GetRunsTasks() {
		t.Errorf("%v", o)
	}
}
