// Package fault is the one taxonomy of errors: what kind of trouble it is, a stable reason from a closed list, and what a
// person can do about it. A kind survives the wire (internal/rpc maps it to a status code and back), so errors.Is(err,
// fault.Unavailable) gives the same answer in the process that failed and in the one that asked.
//
// An error means that we do not know, or that the request was wrong. What happened to a delivery (held, refused, dropped) is
// an outcome, a value in a response, and never an error.
//
// The package knows nothing of gRPC, HTTP, SQL or tmux.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says how a caller should treat an error. A Kind is itself an error, so that it can be the target of errors.Is.
type Kind uint8

// The kinds. The zero value, Internal, promises nothing to the caller and is never retried by rule.
const (
	// Internal is a fault of ours. Its text stays in our logs and is redacted on the wire.
	Internal Kind = iota
	// Invalid is a request that can never succeed as it was sent.
	Invalid
	// NotFound is a thing that was named and is not there.
	NotFound
	// Conflict is a request that contradicts what is already recorded.
	Conflict
	// AlreadyExists is a thing that was to be made and is there.
	AlreadyExists
	// Fenced is an act under a token older than one already seen.
	Fenced
	// Throttled is a limit reached; RetryAfter says when to come back.
	Throttled
	// Unavailable is silence: no answer, so the effect is unknown.
	Unavailable
	// Unauthenticated is a caller without a name.
	Unauthenticated
	// Denied is a caller whose name does not allow this.
	Denied
)

var kindNames = [...]string{
	Internal: "internal", Invalid: "invalid", NotFound: "not found", Conflict: "conflict", AlreadyExists: "already exists",
	Fenced: "fenced", Throttled: "throttled", Unavailable: "unavailable", Unauthenticated: "unauthenticated", Denied: "denied",
}

// Kinds lists every kind, for tests that must cover them all.
func Kinds() []Kind {
	kinds := make([]Kind, len(kindNames))
	for i := range kinds {
		kinds[i] = Kind(i)
	}
	return kinds
}

// Error returns the kind's name, as errors.Is needs a Kind to be an error.
func (k Kind) Error() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is the one error type that crosses a package boundary.
type Error struct {
	// Kind says how to treat it.
	Kind Kind
	// Reason names the cause, from the closed list in reason.go. Empty where the kind says enough.
	Reason Reason
	// Message is written for the person who will read it; it never holds prompt text or a secret.
	Message string
	// Remedy says what that person can do now. Empty when there is nothing to do but look.
	Remedy string
	// RetryAfter is how long to wait before asking again; zero when no time is known.
	RetryAfter time.Duration

	cause  error
	hidden bool // Error leaves the cause out
}

// New returns an error of a kind, with a reason and a message.
func New(kind Kind, reason Reason, message string) *Error {
	return &Error{Kind: kind, Reason: reason, Message: message}
}

// Newf is New with a formatted message.
func Newf(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of a kind that keeps its cause for the logs. A nil cause is allowed.
func Wrap(kind Kind, reason Reason, message string, cause error) *Error {
	return &Error{Kind: kind, Reason: reason, Message: message, cause: cause}
}

// WithRemedy returns a copy that says what a person can do.
func (e *Error) WithRemedy(remedy string) *Error {
	out := *e
	out.Remedy = remedy
	return &out
}

// WithRetryAfter returns a copy that says when to ask again.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	out := *e
	out.RetryAfter = d
	return &out
}

// WithHiddenCause returns a copy with a cause that Error leaves out: what a library said is for logs where the message says it in
// words for people. HiddenCause returns it.
func (e *Error) WithHiddenCause(cause error) *Error {
	out := *e
	out.cause, out.hidden = cause, true
	return &out
}

// HiddenCause returns the cause that Error leaves out, or nil.
func (e *Error) HiddenCause() error {
	if !e.hidden {
		return nil
	}
	return e.cause
}

// Error returns the message, the cause unless it is hidden, and the remedy.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if b.Len() == 0 {
		b.WriteString(e.Kind.Error())
	}
	if e.cause != nil && !e.hidden {
		b.WriteString(": ")
		b.WriteString(e.cause.Error())
	}
	if e.Remedy != "" {
		b.WriteString(" (")
		b.WriteString(e.Remedy)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is this error's kind, or an *Error of the same kind and reason.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Kind:
		return t == e.Kind
	case *Error:
		return t.Kind == e.Kind && t.Reason == e.Reason
	}
	return false
}

// KindOf returns the kind of the outermost *Error in err's chain, and Internal for any other error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// ReasonOf returns the reason of the outermost *Error in err's chain, and the empty reason for any other error.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}
