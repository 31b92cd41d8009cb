package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"sync"
)

// Secrets are what the webhooks of a source may be signed with. They are read again when their file is another one than before; while it
// cannot be read, or is empty, they stay what they were. They are safe for use by many goroutines.
type Secrets struct {
	path string
	read func() ([]string, error)

	mu      sync.Mutex
	seen    os.FileInfo // nil when it has to be read again whatever the file looks like
	secrets [][]byte
	problem error
}

// NewSecrets reads the secrets of a file with read, which says what is wrong with it, and fails where there is none.
func NewSecrets(path string, read func() ([]string, error)) (*Secrets, error) {
	s := &Secrets{path: path, read: read}
	s.seen, _ = os.Stat(path) // read says what is wrong with it
	texts, err := read()
	if err != nil {
		return nil, err
	}
	s.set(texts)
	return s, nil
}

func (s *Secrets) set(texts []string) {
	s.secrets = nil
	for _, t := range texts {
		if t != "" { // an empty key would be one that everybody has
			s.secrets = append(s.secrets, []byte(t))
		}
	}
}

// get returns the secrets as they are now, and what is wrong with their file since the last call, once.
func (s *Secrets) get() ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := os.Stat(s.path)
	if err == nil && s.seen != nil && os.SameFile(now, s.seen) && now.ModTime().Equal(s.seen.ModTime()) && now.Size() == s.seen.Size() {
		return s.secrets, nil
	}
	var texts []string
	if err == nil {
		texts, err = s.read()
	}
	if err != nil {
		// A file that is being written is read again with the next request.
		first := s.problem == nil
		s.problem = err
		if !first {
			err = nil
		}
		return s.secrets, err
	}
	s.set(texts)
	s.seen, s.problem = now, nil
	return s.secrets, nil
}

// Shortest returns the length of the shortest of them.
func (s *Secrets) Shortest() int {
	secrets, _ := s.get() // NewSecrets has read it
	shortest := len(secrets[0])
	for _, secret := range secrets {
		shortest = min(shortest, len(secret))
	}
	return shortest
}

const signaturePrefix = "sha256="

// signed reports whether a signature is that of a body with one of the secrets. It takes as long whichever it is, or none.
func signed(secrets [][]byte, signature string, body []byte) bool {
	text, ok := strings.CutPrefix(signature, signaturePrefix)
	given, err := hex.DecodeString(text)
	ok = ok && err == nil && len(given) == sha256.Size
	found := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write(body)
		if hmac.Equal(mac.Sum(nil), given) {
			found = true
		}
	}
	return ok && found
}
