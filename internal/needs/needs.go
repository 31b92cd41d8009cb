// Package needs says what becomes of a test whose machine lacks something: at a desk it is skipped, in CI it fails, for there a test that does
// not run is a lie.
//
// It knows nothing of what is lacked.
package needs

import (
	"os"
	"os/exec"
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
