//go:build !failpoints || !linux

package failpoint

// Hit does nothing in this build.
func Hit(string) {}
