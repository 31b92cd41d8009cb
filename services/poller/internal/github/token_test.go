package github

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// tokenWorld has a client whose token is read as the poller reads it.
func tokenWorld(t *testing.T) (w *world, path string) {
	t.Helper()
	w, path = newWorld(t), filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("tok\n"), 0o600))
	source := settings.Source{TokenFile: path}
	token, err := NewToken(path, source.Token)
	must(t, err)
	w.client = w.newClient(t, Config{Token: token})
	w.AddToken("new", "reader")
	w.issue(t, labelled("one"))
	_, err = w.client.Items(t.Context(), repo)
	must(t, err)
	return w, path
}

func (w *world) requests() (n int) {
	for _, count := range w.Counts() {
		n += count.Requests
	}
	return n
}

func TestToken_AnotherFileIsReadBeforeTheNextRequest(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"written in place": func(path string) error { return os.WriteFile(path, []byte("new"), 0o600) },
		"put in its place": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("new\n"), 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, path := tokenWorld(t)
			must(t, change(path))
			w.RemoveToken("tok")
			w.ResetCounts()
			_, err := w.client.Items(t.Context(), repo)
			must(t, err)
			equal(t, "requests", w.requests(), 1)
		})
	}
}

func TestToken_OneThatIsRefusedIsReadAgainAndTheRequestSentOnceMore(t *testing.T) {
	w, path := tokenWorld(t)
	before, err := os.Stat(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte("new\n"), 0o600))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime())) // it looks as it did
	w.RemoveToken("tok")
	w.ResetCounts()
	must(t, w.client.Notice(t.Context(), repo, 1, "hello"))
	equal(t, "requests", w.requests(), 2)
	issue, err := w.Issue("acme", "widgets", 1)
	must(t, err)
	equal(t, "comments", len(issue.Comments), 1)
}

func TestToken_ABadFileChangesNothingAndARefusalIsTold(t *testing.T) {
	w, path := tokenWorld(t)
	must(t, os.WriteFile(path, nil, 0o600))
	_, err := w.client.Items(t.Context(), repo)
	must(t, err)
	must(t, os.Remove(path))
	_, err = w.client.Items(t.Context(), repo)
	must(t, err)
	w.RemoveToken("tok")
	w.ResetCounts()
	if _, err = w.client.Items(t.Context(), repo); !errors.Is(err, fault.Denied) {
		t.Errorf("got %v", err)
	}
	equal(t, "requests", w.requests(), 1)
	must(t, os.WriteFile(path, []byte("new"), 0o600))
	_, err = w.client.Items(t.Context(), repo)
	must(t, err)
}
