// Package harness is the table of the programs that run agents: what to start for a fresh or a resumed conversation, how to read
// their screen, and where their own record of a conversation lies. A caller names an entry and can never send a command of its own.
//
// Everything here is data and reading: it opens no file, types nothing, and knows nothing of tmux's commands.
package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// Harness is an entry that was checked, with its patterns compiled.
type Harness struct {
	settings.Harness
	Name   string
	binary string   // resolved; empty when it was not found
	first  []string // the arguments that stand with the binary
	state  string
	home   string

	prompt, edge, placeholder, footer, fold, busyTitle, busy, approval, taken, form *regexp.Regexp
	dialogs                                                                         []*regexp.Regexp
	failures                                                                        []failure
	turnEnds                                                                        *regexp.Regexp
}

// Table is the harnesses of a host, by name.
type Table map[string]*Harness

// New checks the entries, fills in what they leave out and compiles them. The error is fault.Invalid with the reason bad_config, and
// names each wrong key. stateDir holds a directory for each harness; home is the user's; lookPath finds a program.
func New(entries map[string]settings.Harness, stateDir, home string, lookPath func(string) (string, error)) (Table, error) {
	checked, err := settings.CheckHarnesses(entries)
	if err != nil {
		return nil, err
	}
	t := Table{}
	for _, name := range sortedKeys(checked) {
		h, err := compile(name, checked[name])
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "tmuxd.harnesses."+name, err)
		}
		h.state, h.home = filepath.Join(stateDir, "harness", name), home
		words := strings.Fields(h.Binary) // a check has found one at least
		h.binary, _ = lookPath(h.expand(words[0], Vars{}))
		h.first = words[1:]
		t[name] = h
	}
	return t, nil
}

func compile(name string, e settings.Harness) (*Harness, error) {
	h := &Harness{Harness: e, Name: name}
	var err error
	pattern := func(key, expr string) *regexp.Regexp {
		if expr == "" || err != nil {
			return nil
		}
		re, compileErr := regexp.Compile(expr)
		if compileErr != nil {
			err = fmt.Errorf("%s: %w", key, compileErr)
		}
		return re
	}
	h.prompt, h.placeholder, h.footer = pattern("prompt", h.Prompt), pattern("placeholder", h.Placeholder), pattern("footer", h.Footer)
	h.edge = pattern("edge", h.Edge)
	h.fold, h.busyTitle, h.busy = pattern("fold", h.Fold), pattern("busy_title", h.BusyTitle), pattern("busy", h.Busy)
	h.approval, h.taken = pattern("approval", h.Approval), pattern("taken", h.Taken)
	h.form = pattern("conversation_form", "^(?:"+cmp.Or(h.ConversationForm, conversationForm)+")$")
	h.turnEnds = pattern("turn_ends", h.TurnEnds)
	for _, f := range h.Failures {
		h.failures = append(h.failures, failure{f.Class, pattern("failures", f.Pattern), pattern("failures", f.Told)})
	}
	for _, d := range h.Dialogs {
		h.dialogs = append(h.dialogs, pattern("dialogs", d))
	}
	return h, err
}

// Find returns a harness. The error is fault.Invalid with the reason unknown_harness and lists what there is.
func (t Table) Find(name string) (*Harness, error) {
	if h, ok := t[name]; ok {
		return h, nil
	}
	have := "the table is empty"
	if len(t) > 0 {
		have = "this host has: " + strings.Join(t.Names(), ", ")
	}
	return nil, fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the harness %q is not in this host's table", name).
		WithRemedy(have + "; add it under tmuxd.harnesses in the host's configuration")
}

// Names returns the names, sorted.
func (t Table) Names() []string { return sortedKeys(t) }

// Resolved returns the path of the binary, empty when it was not found.
func (h *Harness) Resolved() string { return h.binary }

// HidesCursor reports whether its cursor hides while it can be typed at; otherwise a hidden one says that it cannot.
func (h *Harness) HidesCursor() bool { return h.edge != nil }

// Resumes reports whether it can resume a conversation.
func (h *Harness) Resumes() bool { return len(h.Resume) > 0 }

// HandsOver reports whether it takes deliveries over a channel of its own, rather than in its terminal.
func (h *Harness) HandsOver() bool { return h.Channel != settings.ChannelPaste }

// TakesPrompt reports whether it takes its first message at its start.
func (h *Harness) TakesPrompt() bool { return len(h.PromptArgs) > 0 }

// conversationForm keeps anything that could be read as a flag or a path from a command line.
const conversationForm = `[A-Za-z0-9][A-Za-z0-9_-]{0,127}`

// ValidConversation reports whether an id can be one of this harness's conversations, so that it may stand on a command line.
func (h *Harness) ValidConversation(id string) bool { return h.form.MatchString(id) }

// Assigns reports whether the program takes the id of a new conversation from us.
func (h *Harness) Assigns() bool { return h.ConversationID == settings.ConversationAssigned }

// Tells reports whether the program is started so that it tells what it does.
func (h *Harness) Tells() bool { return h.Status != "" }

// TellsByTitle reports whether it does so by the title of its pane.
func (h *Harness) TellsByTitle() bool { return h.Status == settings.StatusTitle }

// Learns reports whether the program makes the ids of its conversations.
func (h *Harness) Learns() bool { return h.ConversationID == settings.ConversationLearned }

// Files are what the program finds at its start: texts by path.
func (h *Harness) Files() map[string]string {
	out := map[string]string{}
	for path, text := range h.Harness.Files {
		out[h.expand(path, Vars{})] = text
	}
	return out
}

// Vars are what the words in braces stand for.
type Vars struct {
	ConversationID string
	PromptFile     string
	Dir            string
	// Socket is where the agent of a session listens; empty for a task.
	Socket string
	// Note is where the program is to tell what it does.
	Note string
	// AttemptID and Prompt are for tasks; Prompt only where the text itself goes on the command line.
	AttemptID string
	Prompt    string
}

func (h *Harness) expand(s string, v Vars) string {
	// One pass: what is put in is never read again.
	return strings.NewReplacer("{conversation_id}", v.ConversationID, "{prompt_file}", v.PromptFile, "{dir}", v.Dir, "{socket}", v.Socket,
		"{dir_quoted}", quoted(v.Dir), "{home}", h.home,
		"{state}", h.state, "{note}", v.Note, "{attempt_id}", v.AttemptID, "{sentence}", sentence(v.PromptFile), "{prompt}", v.Prompt).Replace(s)
}

// quoted returns a string as JSON has it, which TOML reads too.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // no string fails
	return strings.TrimSpace(b.String())
}

// Argv returns the command for a conversation, fresh or resumed, with or without a first message in v.PromptFile.
func (h *Harness) Argv(resume bool, v Vars) []string {
	args, over := h.Fresh, h.ChannelFresh
	if resume {
		args, over = h.Resume, h.ChannelResume
	}
	if h.HandsOver() && len(over) > 0 {
		args = over
	}
	if v.PromptFile != "" {
		args = append(args[:len(args):len(args)], h.PromptArgs...)
	}
	return h.command(args, v)
}

// CompanionArgv returns the command that serves the program's channel beside it; empty when there is none.
func (h *Harness) CompanionArgv(v Vars) []string {
	if !h.HandsOver() || len(h.Companion) == 0 {
		return nil
	}
	return h.command(h.Companion, v)
}

// VersionArgv returns the command with which it is asked for its version.
func (h *Harness) VersionArgv() []string { return h.command([]string{"--version"}, Vars{}) }

// command returns the program with arguments, in which the words are replaced.
func (h *Harness) command(args []string, v Vars) []string {
	argv := []string{h.binary}
	if h.binary == "" {
		argv[0] = h.expand(strings.Fields(h.Binary)[0], v)
	}
	for _, a := range append(h.first[:len(h.first):len(h.first)], args...) {
		argv = append(argv, h.expand(a, v))
	}
	return argv
}

// inherited are the variables that every agent gets from tmuxd's environment. Those of tmux itself are not among them: a program that
// sees TMUX thinks that it may drive the user's tmux.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
	"XDG_CACHE_HOME", "XDG_STATE_HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy",
}

// Environ returns the environment of an agent: what is passed on, what the entry adds, and the terminal's own.
func (h *Harness) Environ(lookup func(string) (string, bool), v Vars) []string {
	env := map[string]string{"TERM": "tmux-256color", "LANG": "C.UTF-8"}
	for _, key := range append(inherited[:len(inherited):len(inherited)], h.PassEnv...) {
		if value, ok := lookup(key); ok {
			env[key] = value
		}
	}
	for key, value := range h.Env {
		env[key] = h.expand(value, v)
	}
	out := make([]string, 0, len(env))
	for _, key := range sortedKeys(env) {
		out = append(out, key+"="+env[key])
	}
	return out
}

// StateDir is the harness's own directory, for {state}.
func (h *Harness) StateDir() string { return h.state }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
