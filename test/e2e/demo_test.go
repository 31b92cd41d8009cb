package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
)

// The demonstration is what somebody new runs first. It judges itself, by what the agent recorded.
func TestDemo_EndsWithNothingLostOrDoubled(t *testing.T) {
	needs.Program(t, "tmux")
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "run", "muxpost.dev/muxpost/test/demo", "-bin", bin).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "demo: delivered=5 lost=0 doubled=0") {
		t.Errorf("%v\n%s", err, out)
	}
}
