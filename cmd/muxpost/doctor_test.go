package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLogind_TheLastWordCounts(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "logind.conf"), filepath.Join(t.TempDir(), "10.conf")
	for path, text := range map[string]string{first: "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\nKillUserProcesses=yes\n", second: "[Login]\n KillUserProcesses = off\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		files       []string
		key         string
		usual, want bool
	}{
		{[]string{first, second}, "RemoveIPC", true, false},
		{[]string{second, "/no/such/file"}, "RemoveIPC", true, true},
		{[]string{first}, "KillUserProcesses", false, true},
		{[]string{first, second}, "KillUserProcesses", false, false},
		{nil, "KillUserProcesses", false, false},
	} {
		if got := logindSays(c.files, c.key, c.usual); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
