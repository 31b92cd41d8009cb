package previous

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNamed_IsTheFirstLineThatIsNoComment(t *testing.T) {
	for file, want := range map[string]string{"": "", "# v1\n": "", "# why\n\n v1.2 \nv1.3\n": "v1.2", "v1": "v1"} {
		if got := Named(file); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

func TestExtract_HasTheReleaseAndNotThisTree(t *testing.T) {
	dir := t.TempDir()
	Extract(t, dir, "db/migrations")
	if files, err := filepath.Glob(filepath.Join(dir, "db", "migrations", "*.sql")); err != nil || len(files) < 20 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "README.md")); err == nil {
		t.Error("more was extracted than was asked for")
	}
	if Earlier(t, Commit(t)) || !Earlier(t, Commit(t)+"~1") || Earlier(t, "no-such-release") {
		t.Error("what came before the release is told wrongly")
	}
}
