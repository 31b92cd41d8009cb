package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Packages are those of the programs, of the product and of what tests put around it, by what is built of each.
func Packages() map[string]string {
	const module = "muxpost.dev/muxpost/"
	return map[string]string{
		"": module + "cmd/...", "fakeagent": module + "test/fakeagent", "fakegithub": module + "test/fakegithub/cmd/fakegithub",
		"muxpost-tmuxd": module + "services/tmuxd", "muxpost-dispatcher": module + "services/dispatcher", "muxpost-poller": module + "services/poller",
	}
}

// Build compiles every program with these build tags into a new directory, which the caller removes.
func Build(tags string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "muxpost-bin"); err != nil {
		return "", err
	}
	for out, pkg := range Packages() {
		if text, err := exec.Command("go", "build", "-tags", tags, "-o", filepath.Join(dir, out), pkg).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("cannot build %s: %w\n%s", pkg, err, text)
		}
	}
	return dir, nil
}
