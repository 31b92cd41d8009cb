// Package agenttest builds the bundled agent for a test and reads what it recorded: what it was told, what it approved,
// how it ended. A test judges a delivery by these records and not by the screen.
//
// The package knows nothing of tmux: how the agent is started and typed at is the test's own affair.
package agenttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
)

// Line is one line of a transcript. Which fields are set depends on the type.
type Line struct {
	// Time is when the line was written, in UTC.
	Time time.Time `json:"time"`
	// Seq counts the lines of a conversation from 1, over all its lives.
	Seq int `json:"seq"`
	// Type is session_start, resumed, forked, user, queued, assistant, shell, approval, interrupted or exit.
	Type string `json:"type"`
	// Session is the id of the conversation.
	Session string `json:"session"`
	// Text is what was said: exactly, for user, queued and shell.
	Text string `json:"text"`
	// CWD is the working directory, in session_start and resumed.
	CWD string `json:"cwd"`
	// From is the conversation that forked was left for this one.
	From string `json:"from"`
	// Choice is yes, always, no or trust, in approval.
	Choice string `json:"choice"`
	// Delivery is the id of a user line that was handed over, and not typed.
	Delivery string `json:"delivery"`
	// PID is the process, in session_start, resumed and exit.
	PID int `json:"pid"`
	// Code is the exit status, in exit.
	Code *int `json:"code"`
}

// Conversation names what one agent recorded: the home that it was started with, and the id.
type Conversation struct {
	Home    string
	Session string
}

// Path is the file of the transcript.
func (c Conversation) Path() string { return filepath.Join(c.Home, "sessions", c.Session+".jsonl") }

// Lines reads the transcript. Half a line at the end, as a killed agent leaves it, is passed over; a transcript that is not
// there has no lines.
func (c Conversation) Lines() ([]Line, error) {
	b, err := os.ReadFile(c.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the transcript: %w", err)
	}
	var lines []Line
	for {
		raw, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			return lines, nil
		}
		b = rest
		var l Line
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", len(lines)+1, c.Path(), err)
		}
		lines = append(lines, l)
	}
}

// Texts is the texts of the lines of one type, in order: Texts("user") is what reached the agent as prompts.
func (c Conversation) Texts(kind string) ([]string, error) {
	lines, err := c.Lines()
	var texts []string
	for _, l := range lines {
		if l.Type == kind {
			texts = append(texts, l.Text)
		}
	}
	return texts, err
}

// Approvals is every approval that was given in a dialog, in order; refusals are not among them.
func (c Conversation) Approvals() ([]string, error) {
	b, err := os.ReadFile(filepath.Join(c.Home, "approved-"+c.Session))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the approvals: %w", err)
	}
	var choices []string
	for entry := range strings.Lines(string(b)) {
		if _, choice, ok := strings.Cut(strings.TrimSpace(entry), " "); ok {
			choices = append(choices, choice)
		}
	}
	return choices, nil
}

// Wait reads the transcript until it is as wanted, and returns it then. The agent is a process of its own, so there is
// nothing to wait on but the file; after the timeout the test fails with what was wanted and what was there.
func (c Conversation) Wait(tb testing.TB, timeout time.Duration, want string, ok func([]Line) bool) []Line {
	tb.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(timeout)
	for {
		lines, err := c.Lines()
		if err != nil {
			tb.Fatal(err)
		}
		if ok(lines) {
			return lines
		}
		select {
		case <-poll.C:
		case <-deadline:
			tb.Fatalf("the transcript does not show %s after %v; it has %d lines, of the types %v", want, timeout, len(lines), types(lines))
		}
	}
}

// WaitUser waits for the prompts to be exactly these, in order.
func (c Conversation) WaitUser(tb testing.TB, timeout time.Duration, want ...string) {
	tb.Helper()
	c.Wait(tb, timeout, fmt.Sprintf("%d prompts as sent", len(want)), func(lines []Line) bool {
		n := 0
		for _, l := range lines {
			if l.Type != "user" {
				continue
			}
			if n == len(want) || l.Text != want[n] {
				return false
			}
			n++
		}
		return n == len(want)
	})
}

func types(lines []Line) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.Type
	}
	return out
}

// Build compiles the agent, once for all tests of a process, and returns the path of the program. The program stays where it is when the tests end: a link that is up to date is not made again.
func Build(tb testing.TB) string {
	tb.Helper()
	program, err := build(needs.Program(tb, "go"))
	if err != nil {
		tb.Fatal(err)
	}
	return program
}

var built struct {
	sync.Once
	program string
	err     error
}

// build compiles the agent of this source tree to a place of its own in the user's cache.
func build(tool string) (string, error) {
	built.Do(func() {
		_, here, _, _ := runtime.Caller(0)
		tree := sha256.Sum256([]byte(here))
		cache, err := os.UserCacheDir()
		if err != nil {
			built.err = fmt.Errorf("there is no place to build the agent: %w", err)
			return
		}
		built.program = filepath.Join(cache, "muxpost-test", fmt.Sprintf("%x", tree[:6]), "fakeagent")
		out, err := exec.Command(tool, "build", "-o", built.program, "muxpost.dev/muxpost/test/fakeagent").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("the agent cannot be built: %w\n%s", err, out)
		}
	})
	return built.program, built.err
}
