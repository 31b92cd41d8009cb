package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles every program of the product, and those that tests put around it, with these build tags into a new directory, which the
// caller removes.
func Build(tags string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "muxpost-bin"); err != nil {
		return "", err
	}
	const module = "muxpost.dev/muxpost/"
	for out, pkg := range map[string]string{
		"": module + "cmd/...", "fakeagent": module + "test/fakeagent", "fakegithub": module + "test/fakegithub/cmd/fakegithub",
		"muxpost-tmuxd": module + "services/tmuxd", "muxpost-dispatcher": module + "services/dispatcher", "muxpost-poller": module + "services/poller",
	} {
		if text, err := exec.Command("go", "build", "-tags", tags, "-o", filepath.Join(dir, out), pkg).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("cannot build %s: %w\n%s", pkg, err, text)
		}
	}
	return dir, nil
}
