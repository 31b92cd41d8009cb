package main

import (
	"os"
	"path/filepath"
	"testing"

	"muxpost.dev/muxpost/internal/wrapper"
)

func TestRun_TheStandardInputIsTheFileThatTheSpecNames(t *testing.T) {
	t.Parallel()
	prompt := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(prompt, []byte("a\x00b\r\n$(x)"), 0o600); err != nil {
		t.Fatal(err)
	}
	for stdin, want := range map[string]string{prompt: "a\x00b\r\n$(x)|", os.DevNull: "|"} {
		cmd, _, _ := runSpec(t, "cat; printf '|'", func(s *wrapper.Spec) { s.Stdin = stdin })
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%q, %v", out, err)
		}
	}
}

func TestRun_WithoutItsInputOrItsPromptNothingIsStarted(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	for name, change := range map[string]func(*wrapper.Spec){
		"input":  func(s *wrapper.Spec) { s.Stdin = "/nowhere/prompt" },
		"prompt": func(s *wrapper.Spec) { s.PromptFile = "/nowhere/prompt" },
	} {
		cmd, _, record := runSpec(t, "touch "+ran, change)
		_ = cmd.Run()
		if r := read(t, record); r.State != wrapper.LaunchFailed || r.Detail == "" || cmd.ProcessState.ExitCode() != exitCannotRun {
			t.Errorf("%s: %+v, exit %d", name, r, cmd.ProcessState.ExitCode())
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("something was started")
	}
}
