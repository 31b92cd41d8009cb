package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The services keep their own defaults; this holds the two together until they take them from here.
func TestListen_IsWhatTheServicesSay(t *testing.T) {
	for _, s := range Services() {
		source, err := os.ReadFile(filepath.Join("..", "..", "services", string(s), "config.go"))
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		adopted := "layout." + strings.ToUpper(string(s[:1])) + string(s[1:]) + ".Listen()"
		if !strings.Contains(string(source), `"`+s.Listen()+`"`) && !strings.Contains(string(source), adopted) {
			t.Errorf("services/%s/config.go does not have the address %s", s, s.Listen())
		}
	}
}

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
