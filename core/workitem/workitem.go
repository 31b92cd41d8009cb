// Package workitem knows how a work item is named: its form for people, github:[host/]owner/repo#n, and the name of its
// session, its target, minted from that form alone. Every part of muxpost that needs either calls this package, so that no
// two parts can disagree (and no payload can choose a name).
//
// It knows nothing of tmux beyond the alphabet that is safe there, and nothing of GitHub beyond how GitHub folds case.
package workitem

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/fault"
)

const (
	// MaxTarget is the longest target, in bytes.
	MaxTarget = 48
	// MaxRef is the longest reference that Parse accepts, in bytes.
	MaxRef = 300

	prefix      = "loop-"
	defaultHost = "github.com"
	maxOwner    = 100
	maxRepo     = 100
	maxHost     = 80
	maxNumber   = 9_999_999_999
	// hashLen is 13 base32 digits, 65 bits: a collision needs billions of items, and a unique index refuses it even then.
	hashLen = 13
)

const wants = "a work item is written github:owner/repo#number, or github:host/owner/repo#number for a host of your own"

// Ref is the canonical reference of a work item. The zero value is no work item. Refs can be compared with ==.
type Ref struct {
	host   string // empty for github.com
	owner  string
	repo   string
	number uint64
}

// Parse reads a reference in any case and returns its canonical form. The error is fault.Invalid and says which part is wrong.
func Parse(s string) (Ref, error) {
	if s == "" {
		return Ref{}, bad("the work item is empty")
	}
	if len(s) > MaxRef {
		return Ref{}, bad("the work item is longer than " + strconv.Itoa(MaxRef) + " bytes")
	}
	rest, ok := strings.CutPrefix(foldASCII(s), "github:")
	if !ok {
		return Ref{}, bad("the work item does not begin with a known provider")
	}
	path, num, ok := strings.Cut(rest, "#")
	if !ok {
		return Ref{}, bad("the work item has no #number")
	}
	parts := strings.Split(path, "/")
	if len(parts) != 2 && len(parts) != 3 {
		return Ref{}, bad("the work item has " + strconv.Itoa(len(parts)) + " parts before the # where owner/repo is expected")
	}
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	return New(host, parts[0], parts[1], num)
}

// New makes a reference from its parts. An empty host means github.com. The error is fault.Invalid.
func New(host, owner, repo, number string) (Ref, error) {
	r := Ref{host: foldASCII(host), owner: foldASCII(owner), repo: foldASCII(repo)}
	if r.host == defaultHost {
		r.host = ""
	}
	if r.host != "" && !validHost(r.host) {
		return Ref{}, bad("the host " + strconv.Quote(host) + " is not a host name")
	}
	if r.owner == "" || len(r.owner) > maxOwner || !only(r.owner, "-_") || r.owner[0] == '-' {
		return Ref{}, bad("the owner " + strconv.Quote(owner) + " is not a GitHub account name")
	}
	if r.repo == "" || len(r.repo) > maxRepo || !only(r.repo, "-_.") || r.repo == "." || r.repo == ".." {
		return Ref{}, bad("the repository " + strconv.Quote(repo) + " is not a GitHub repository name")
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 || n > maxNumber || number[0] == '0' || number[0] == '+' {
		return Ref{}, bad("the number " + strconv.Quote(number) + " is not an issue number")
	}
	r.number = n
	return r, nil
}

// IsZero reports whether r is no work item.
func (r Ref) IsZero() bool { return r == Ref{} }

// Host returns the provider's host, github.com unless another was named.
func (r Ref) Host() string {
	if r.host == "" {
		return defaultHost
	}
	return r.host
}

// Owner returns the account that owns the repository, in lower case.
func (r Ref) Owner() string { return r.owner }

// Repo returns the repository's name, in lower case.
func (r Ref) Repo() string { return r.repo }

// Number returns the number of the issue or pull request.
func (r Ref) Number() uint64 { return r.number }

// String returns the canonical form. Parse(r.String()) is r.
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	s := r.owner + "/" + r.repo + "#" + strconv.FormatUint(r.number, 10)
	if r.host != "" {
		s = r.host + "/" + s
	}
	return "github:" + s
}

// Target returns the name of the work item's session: loop-owner-repo-number where that can be read back without doubt, else
// a shortened form that ends in a hash of the canonical reference. The two forms cannot meet: the first ends in a number, the
// second in a part that begins with x. It holds only a-z, 0-9, - and _, begins with a letter, and is at most MaxTarget bytes.
func (r Ref) Target() string {
	if r.IsZero() {
		return ""
	}
	number := strconv.FormatUint(r.number, 10)
	plain := prefix + r.owner + "-" + r.repo + "-" + number
	// Read from the left the owner ends at the first hyphen, from the right the number begins at the last: what lies between
	// is the repository. So only a hyphen in the owner, a dot in the repository, another host or the length lose something.
	if r.host == "" && len(plain) <= MaxTarget && !strings.Contains(r.owner, "-") && !strings.Contains(r.repo, ".") {
		return plain
	}
	sum := sha256.Sum256([]byte(r.String()))
	tail := "-" + number + "-x" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:hashLen]
	name := strings.ReplaceAll(r.owner+"-"+r.repo, ".", "_")
	if room := MaxTarget - len(prefix) - len(tail); len(name) > room {
		name = name[:room]
	}
	return prefix + name + tail
}

// ValidTarget reports whether s may be passed to tmux as a session name. It is the last check before a command line, and holds
// whatever minted the name.
func ValidTarget(s string) bool {
	if s == "" || len(s) > MaxTarget || s[0] < 'a' || s[0] > 'z' || !only(s, "-_") {
		return false
	}
	// tmux tries the names of its clients and terminals before it tries sessions.
	for _, p := range []string{"client", "pts", "tty"} {
		if strings.HasPrefix(s, p) {
			return false
		}
	}
	return true
}

func bad(what string) error {
	return fault.New(fault.Invalid, fault.ReasonBadWorkItem, what).WithRemedy(wants)
}

// only reports whether s has nothing but a-z, 0-9 and the bytes of extra.
func only(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.Contains(extra, string(rune(c))) {
			return false
		}
	}
	return true
}

func validHost(s string) bool {
	name, port, hasPort := strings.Cut(s, ":")
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return false
		}
	}
	return len(s) <= maxHost && name != "" && only(name, "-.") && name[0] != '-' && name[0] != '.' && name[len(name)-1] != '.'
}

// foldASCII lowers A-Z alone: GitHub's names are ASCII, and a Unicode fold would let two spellings meet (the Kelvin sign, k).
func foldASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
