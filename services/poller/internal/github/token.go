package github

import (
	"os"
	"sync"
)

// Token gives the token that requests carry, and reads it again when its file is another one than before. What cannot be read leaves the
// token as it is: the server says whether it is still good. It is safe for use by many goroutines.
type Token struct {
	path string
	read func() (string, error)

	mu    sync.Mutex
	seen  os.FileInfo // nil when it has to be read again whatever the file looks like
	token string
}

// NewToken reads the token of a file with read, which says what is wrong with it. An empty path is no token, and nothing is read.
func NewToken(path string, read func() (string, error)) (*Token, error) {
	t := &Token{path: path, read: read}
	if path == "" {
		return t, nil
	}
	t.seen, _ = os.Stat(path) // read says what is wrong with it
	var err error
	t.token, err = read()
	return t, err
}

// Get returns the token as it is now; empty for none.
func (t *Token) Get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" {
		return ""
	}
	now, err := os.Stat(t.path)
	if err != nil || t.seen != nil && os.SameFile(now, t.seen) && now.ModTime().Equal(t.seen.ModTime()) && now.Size() == t.seen.Size() {
		return t.token
	}
	// A file that is being written is read again with the next request.
	if token, err := t.read(); err == nil {
		t.token, t.seen = token, now
	}
	return t.token
}

// Refused has the file read again after the server refused a token, and reports whether there is another one to try.
func (t *Token) Refused(token string) bool {
	t.mu.Lock()
	t.seen = nil
	t.mu.Unlock()
	return t.Get() != token
}
