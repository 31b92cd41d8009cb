package layout

import "testing"

func TestDefaultDataDir_IsASystemDirectoryForRootAlone(t *testing.T) {
	for _, tt := range []struct {
		root bool
		home string
		want string
	}{
		{true, "/root", "/var/lib/muxpost"},
		{false, "/home/ann", "/home/ann/.local/share/muxpost"},
		{false, "", ""},
	} {
		if got := DefaultDataDir(tt.root, tt.home); got != tt.want {
			t.Errorf("root %v, home %q: %q, want %q", tt.root, tt.home, got, tt.want)
		}
	}
}
