package harnesses

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
	"muxpost.dev/muxpost/test/fakemodel"
)

// program is an agent program whose entry is tried.
type program struct {
	name string
	// channel is the one that its entry says, unless it is named here.
	channel string
	path    func(testing.TB) string
	// turn is a text that starts a turn of so many seconds; ask is one that has the program ask before it makes a file.
	turn func(seconds int) string
	ask  func(file string) string
	// asks is what its question shows, and allow the key with which a person allows it once.
	asks, allow string
	// anew is the command with which a person begins another conversation.
	anew string
	// login and limit are texts that have the turn fail: because nobody is logged in, and at a limit of use.
	login, limit string
	// unknown is the id of a conversation that it does not have.
	unknown string
	// heard reads what reached it, and allowed how often it was allowed something.
	heard   func(*rig) ([]heard, error)
	allowed func(*rig) (int, error)
}

// heard is one prompt that arrived.
type heard struct {
	text, conversation string
	at                 time.Time
}

// programs are the bundled agent, and those whose entries were tried on the real ones.
func programs() []program {
	real := program{
		anew:    "/new",
		turn:    func(seconds int) string { return fmt.Sprintf("zz:dur=%d", seconds) },
		login:   "zz:http=401",
		limit:   "zz:http=429",
		ask:     func(file string) string { return "zz:tool=touch " + file },
		heard:   modelHeard,
		allowed: func(r *rig) (int, error) { return count(filepath.Join(r.directory, "allowed-*")) },
	}
	codex, opencode := real, real
	codex.name, codex.asks, codex.allow, codex.unknown = "codex", "Would you like to run", "y", uuid.NewString()
	opencode.name, opencode.asks, opencode.allow, opencode.unknown = "opencode", "Permission required", "Enter", "ses_"+strings.Repeat("f", 26)
	opencode.limit = "" // it tries again by itself, for long
	for _, p := range []*program{&codex, &opencode} {
		p.path = func(t testing.TB) string { return needs.Agent(t, p.name) }
	}
	fake := program{
		name: "fakeagent", path: agenttest.Build, anew: "/clear",
		turn:  func(seconds int) string { return fmt.Sprintf("zz:dur=%ds", seconds) },
		ask:   func(string) string { return "zz:dialog" },
		login: "zz:fail=login", limit: "zz:fail=limit",
		asks: "Press enter to confirm", allow: "y", unknown: uuid.NewString(),
		heard: agentHeard, allowed: agentAllowed,
	}
	over := func(p program, channel string) program { p.channel = channel; return p }
	return []program{fake, over(fake, settings.ChannelSocket), codex, over(codex, settings.ChannelPaste), opencode, over(opencode, settings.ChannelPaste)}
}

// title is what the program is called in results.
func (p program) title() string {
	if p.channel == "" {
		return p.name
	}
	return p.name + " over " + p.channel
}

// handsOver reports whether deliveries go past its composer.
func (p program) handsOver() bool {
	return cmp.Or(p.channel, settings.BuiltinHarnesses()[p.name].Channel, settings.ChannelPaste) != settings.ChannelPaste
}

// companion reports whether a session has one beside the program.
func (p program) companion() bool {
	return p.handsOver() && len(settings.BuiltinHarnesses()[p.name].Companion) > 0
}

// each tries every program, one after the other: two at once hinder each other.
func each(t *testing.T, f func(r *rig)) {
	for _, p := range programs() {
		t.Run(p.title(), func(t *testing.T) { f(newRig(t, p)) })
	}
}

// modelHeard is what the model received.
func modelHeard(r *rig) (out []heard, err error) {
	for _, m := range fakemodel.Prompts(r.model.Received()) {
		out = append(out, heard{m.Text, m.Conversation, m.Time})
	}
	return out, nil
}

// agentHome is where the bundled agent keeps its records.
func (r *rig) agentHome() string {
	return filepath.Join(r.dir, "data", "tmuxd", "harness", "fakeagent")
}

func agentHeard(r *rig) (out []heard, err error) {
	sessions, err := filepath.Glob(filepath.Join(r.agentHome(), "sessions", "*.jsonl"))
	for _, path := range sessions {
		lines, err := agenttest.Conversation{Home: r.agentHome(), Session: strings.TrimSuffix(filepath.Base(path), ".jsonl")}.Lines()
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			if l.Type == "user" {
				out = append(out, heard{l.Text, l.Session, l.Time})
			}
		}
	}
	return out, err
}

func agentAllowed(r *rig) (n int, err error) {
	const prefix = "approved-"
	files, err := filepath.Glob(filepath.Join(r.agentHome(), prefix+"*"))
	for _, path := range files {
		choices, err := agenttest.Conversation{Home: r.agentHome(), Session: strings.TrimPrefix(filepath.Base(path), prefix)}.Approvals()
		if err != nil {
			return 0, err
		}
		n += len(choices)
	}
	return n, err
}

func count(pattern string) (int, error) {
	files, err := filepath.Glob(pattern)
	return len(files), err
}
