package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
)

// Who may write to the directory for sockets has tmux run what he likes.
func TestDoctor_LooksAtTheDirectoryForSockets(t *testing.T) {
	d := newDesk(t)
	sockets := filepath.Join(d.dir, "s")
	file := filepath.Join(d.dir, "muxpost.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "host: here}", "host: here, socket_dir: '"+sockets+"'}", 1))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		t.Helper()
		_ = d.run(t, "doctor") // nothing is installed at a desk, so that something always fails
		return d.out.String()
	}
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	if out := said(); !strings.Contains(out, "all private") || strings.Contains(out, sockets) {
		t.Errorf("one of our own:\n%s", out)
	}
	if err := os.Chmod(sockets, 0o777); err != nil {
		t.Fatal(err)
	}
	if out := said(); !strings.Contains(out, "others may enter "+sockets) {
		t.Errorf("one that all may write to:\n%s", out)
	}
	if err := os.Remove(sockets); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), sockets); err != nil {
		t.Fatal(err)
	}
	if out := said(); !strings.Contains(out, sockets+" is a link") {
		t.Errorf("a link:\n%s", out)
	}
	if err := os.Remove(sockets); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(sockets, 65534, 65534); err != nil {
		needs.Unmet(t, err) // only root may give a directory away
	}
	if out := said(); !strings.Contains(out, sockets+" belongs to another user") {
		t.Errorf("another user's:\n%s", out)
	}
}

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
