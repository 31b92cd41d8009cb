// Package previous gives tests the release before this one: its files, and its programs. deploy/previous says which that is.
//
// It reads it out of git. Where git does not have it (a shallow clone, a tree without history) a test is skipped and says what is missing;
// in CI it fails. It knows nothing of what the tests do with it.
package previous

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
)

// File names the release, below the root of the tree.
const File = "deploy/previous"

// Commit returns the commit of the release.
func Commit(t testing.TB) string {
	t.Helper()
	root := Root(t)
	data, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	name := Named(string(data))
	if name == "" {
		t.Fatalf("%s names no release", File)
	}
	commit, err := git(root, "rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil {
		needs.Unmet(t, fmt.Sprintf("the release before this one is %s (%s), and this clone does not have it: git fetch --unshallow --tags", name, File))
	}
	return strings.TrimSpace(string(commit))
}

// Named returns what the file names: its first line that is no comment.
func Named(file string) string {
	for line := range strings.Lines(file) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// Earlier reports whether another release came before it.
func Earlier(t testing.TB, release string) bool {
	t.Helper()
	commit := Commit(t)
	other, err := git(Root(t), "rev-parse", "--verify", "--quiet", release+"^{commit}")
	if err != nil || strings.TrimSpace(string(other)) == commit {
		return false
	}
	_, err = git(Root(t), "merge-base", "--is-ancestor", strings.TrimSpace(string(other)), commit)
	return err == nil
}

// Extract writes the files of the release below dirs (the whole tree for none) into a directory.
func Extract(t testing.TB, into string, dirs ...string) {
	t.Helper()
	archive, err := git(Root(t), append([]string{"archive", Commit(t), "--"}, dirs...)...)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = write(filepath.Join(into, filepath.FromSlash(h.Name)), h, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o755)
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, data, fs.FileMode(h.Mode).Perm())
	}
	return nil
}

// Programs builds the programs of the release into a directory: packages by the name of what is built from each, as go build -o takes it.
func Programs(t testing.TB, into string, packages map[string]string) {
	t.Helper()
	tree := t.TempDir()
	Extract(t, tree)
	for out, pkg := range packages {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(into, out), pkg)
		cmd.Dir = tree
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("the release before this one does not build: %v\n%s", err, text)
		}
	}
}

// Root is the root of the tree that the test is in.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatal("this test is not in the tree")
	return ""
}

func git(dir string, args ...string) ([]byte, error) {
	// Whoever runs the tests may not be whom the tree belongs to, which git otherwise refuses.
	out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", dir}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
