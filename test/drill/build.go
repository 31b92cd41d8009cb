package drill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are what runs, by the packages that they are made from.
var programs = map[string]string{
	"muxpost-tmuxd": "services/tmuxd", "muxpost-dispatcher": "services/dispatcher", "muxpost-poller": "services/poller",
	"muxpost-exec": "cmd/muxpost-exec", "fakeagent": "test/fakeagent", "fakegithub": "test/fakegithub/cmd/fakegithub",
	"muxpost-drill": "test/drill/cmd/muxpost-drill",
}

// Product names the programs of the product itself, of which a rolling upgrade needs another build.
func Product() []string {
	return []string{"muxpost-tmuxd", "muxpost-exec", "muxpost-dispatcher", "muxpost-poller"}
}

const module = "muxpost.dev/muxpost/"

// Build compiles programs from the sources around into a directory, as a version; flags go to the compiler. None named means all.
func Build(dir, version string, flags []string, names ...string) error {
	if len(names) == 0 {
		for name := range programs {
			names = append(names, name)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		args := append([]string{"build", "-o", filepath.Join(dir, name), "-ldflags", "-X " + module + "internal/version.Version=" + version}, flags...)
		cmd := exec.Command("go", append(args, module+programs[name])...) //nolint:noctx // it ends by itself
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}
