package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
)

// make sizing measures by this program, whose numbers docs/sizing.md has.
func TestSizing_SaysWhatEverythingTakes(t *testing.T) {
	t.Parallel()
	needs.Program(t, "tmux")
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "muxpost.dev/muxpost/test/sizing", "-bin", bin, "-items", "2", "-events", "2", "-rows", "60", "-idle", "2s")
	var progress strings.Builder
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	for _, want := range []string{"bytes_each_event journal=", "connections muxpost-poller=", "wrappers cpu_percent=", "requests_each_look=", "table=poller.events rows=60 ",
		"mib_each_10000_events=", "table=dispatcher.leases bytes_each_item="} {
		if !strings.Contains(string(out), "sizing: ") || !strings.Contains(string(out), want) {
			t.Errorf("it does not say %s:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "journal=0 ") || strings.Contains(string(out), "pss_mib=0.0") {
		t.Errorf("something that is there takes nothing:\n%s", out)
	}
}
