// Package needs says what becomes of a test whose machine lacks something: at a desk it is skipped, in CI it fails, for there a test that does
// not run is a lie.
//
// It knows nothing of what is lacked.
package needs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Unmet ends a test for want of what it needs.
func Unmet(t testing.TB, what any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// Program returns the path of a program that a test needs.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unmet(t, name+" is not installed")
	}
	return path
}

// Tool returns the path of a tool that make compiles into .bin, or of an installed one. Where it is missing the test is skipped, in CI too, and
// says so: to compile it takes minutes.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for dir, err := os.Getwd(); err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if path, err := exec.LookPath(filepath.Join(dir, ".bin", name)); err == nil {
			return path
		}
	}
	t.Skip("not tried: " + name + " is neither installed nor in .bin, where make " + name + " compiles it")
	return ""
}

// Agents is the variable that names the directories in which real agent programs lie, as a PATH does.
const Agents = "MUXPOST_TEST_HARNESSES"

// Agent returns the path of a real agent program. Where it is missing the test is skipped, in CI too, and says so: they are hundreds of
// megabytes of other people's programs, and no machine is expected to have them.
func Agent(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv(Agents)) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Skip("not tried on the real program: " + name + " is in no directory of " + Agents)
	return ""
}
