//go:build failpoints && linux

package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const helper = "MUXPOST_FAILPOINT_HELPER"

// TestHelper is the process that passes two places, three times each, and says so.
func TestHelper(*testing.T) {
	if os.Getenv(helper) == "" {
		return // the other tests start it
	}
	for range 3 {
		Hit("poller.forward.claimed")
		os.Stdout.WriteString("claimed\n")
		Hit("poller.forward.answered")
		os.Stdout.WriteString("answered\n")
	}
}

func run(t *testing.T, setting, marker string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), helper+"=1", Variable+"="+setting, OnceVariable+"="+marker)
	out, err := cmd.Output()
	return string(out), err
}

func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func TestHit_KillsOnceAtTheNthPass(t *testing.T) {
	for setting, want := range map[string]int{
		"poller.forward.answered=kill": 1, "poller.forward.answered@1=kill": 1, "poller.forward.answered@3=kill": 3,
	} {
		marker := filepath.Join(t.TempDir(), "once")
		out, err := run(t, setting, marker)
		if !killed(err) || strings.Count(out, "claimed") != want || strings.Count(out, "answered") != want-1 {
			t.Errorf("%s: %v %q", setting, err, out)
		}
		if out, err := run(t, setting, marker); err != nil || strings.Count(out, "answered") != 3 {
			t.Errorf("%s, the second time: %v %q", setting, err, out)
		}
	}
}

func TestHit_CountsOverSeveralProcesses(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "once")
	if out, err := run(t, "poller.forward.answered@5=kill", marker); err != nil || strings.Count(out, "answered") != 3 {
		t.Fatalf("%v %q", err, out)
	}
	if out, err := run(t, "poller.forward.answered@5=kill", marker); !killed(err) || strings.Count(out, "answered") != 1 {
		t.Errorf("%v %q", err, out)
	}
}

func TestHit_RefusesASettingThatItCannotRead(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "once")
	for _, setting := range []string{
		"poller.forward.answered", "poller.forward.answered=end", "poller.nowhere=kill", "poller.forward.answered@0=kill",
	} {
		if out, err := run(t, setting, marker); err == nil || killed(err) || strings.Contains(out, "answered") {
			t.Errorf("%s: %v %q", setting, err, out)
		}
	}
	if _, err := run(t, "poller.forward.answered=kill", ""); err == nil || killed(err) {
		t.Errorf("without a marker: %v", err)
	}
}
