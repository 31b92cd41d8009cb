package github

import (
	"context"
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

// credential gives requests what they carry. Its errors are faults.
type credential interface {
	// token returns the token for what belongs to an account, and the name under which its limits are kept; both are empty for none.
	token(ctx context.Context, owner string) (token, name string, err error)
	// refused says that the server refused a token, and reports whether there is another one to try.
	refused(owner, token string) bool
	// login returns the account that it acts as, where it knows that without asking for the user.
	login(ctx context.Context) (login string, known bool, err error)
	// String says what kind it is, for people.
	String() string
}

// fileToken is a Token as a credential.
type fileToken struct{ *Token }

const nameOfToken = "token"

func (t fileToken) token(context.Context, string) (token, name string, err error) {
	if token = t.Get(); token != "" {
		name = nameOfToken
	}
	return token, name, nil
}

func (t fileToken) refused(_, token string) bool { return token != "" && t.Refused(token) }

func (t fileToken) login(context.Context) (string, bool, error) { return "", t.Get() == "", nil }

func (t fileToken) String() string {
	if t.path == "" {
		return "none"
	}
	return nameOfToken
}
