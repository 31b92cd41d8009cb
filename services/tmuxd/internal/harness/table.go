// Package harness is the table of the programs that run agents: what to start for a fresh or a resumed conversation, how to read
// their screen, and where their own record of a conversation lies. A caller names an entry and can never send a command of its own.
//
// Everything here is data and reading: it opens no file, types nothing, and knows nothing of tmux's commands.
package harness

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// Entry is one harness, as the configuration writes it. In argv, env and transcript these words are replaced: {conversation_id},
// {prompt_file}, {dir}, {home} (the user's home directory) and {state} (the harness's own directory below the state directory).
type Entry struct {
	// Binary is the program, by name or path.
	Binary string `conf:"binary"`
	// Fresh and Resume are the arguments for a new and an earlier conversation. No Resume means that it cannot.
	Fresh  []string `conf:"fresh"`
	Resume []string `conf:"resume"`
	// PromptArgs are added when the session starts with an event. They must hold {prompt_file}. None means that the first event is
	// pasted once the composer is there: prompt text never stands on a command line.
	PromptArgs []string `conf:"prompt_args"`
	// ConversationID says where the id comes from: "assigned" (we make a UUID and pass it) or "none".
	ConversationID string `conf:"conversation_id"`
	// Env is added to the environment, as KEY: value.
	Env map[string]string `conf:"env"`
	// PassEnv names variables that are passed on from tmuxd's own environment (keys of models, for example).
	PassEnv []string `conf:"pass_env"`
	// Prompt matches the first row of the composer; its first group is the text in it.
	Prompt string `conf:"prompt"`
	// Placeholder matches the text of an empty composer.
	Placeholder string `conf:"placeholder"`
	// Footer matches the row below the composer.
	Footer string `conf:"footer"`
	// Fold matches the text that stands for a long paste; its first group, if any, is the number of characters.
	Fold string `conf:"fold"`
	// Dialogs match rows of a dialog that waits for a person. They are also looked for by tmux, so they must mean the same as POSIX
	// extended regular expressions.
	Dialogs []string `conf:"dialogs"`
	// DialogTitles are beginnings of the pane's title while a dialog waits.
	DialogTitles []string `conf:"dialog_titles"`
	// BusyTitle matches the pane's title, Busy a row of the last ones, while a turn runs.
	BusyTitle string `conf:"busy_title"`
	Busy      string `conf:"busy"`
	// WhenBusy says what to do with an event during a turn: "deliver" (the program queues it) or "hold".
	WhenBusy string `conf:"when_busy"`
	// NoBracketedPaste is true for programs without bracketed paste: a text is made one line for them.
	NoBracketedPaste bool `conf:"no_bracketed_paste"`
	// Settle is how long after a paste the program takes a submit.
	Settle time.Duration `conf:"settle"`
	// Survival is how long a start is watched before it counts.
	Survival time.Duration `conf:"survival"`
	// Transcript is the file in which the program records the conversation; empty when there is none that can be read.
	Transcript string `conf:"transcript"`
	// Taken matches the lines of the transcript that prove that the agent took a message.
	Taken string `conf:"taken"`
}

// Harness is an entry that was checked, with its patterns compiled.
type Harness struct {
	Entry
	Name   string
	binary string // resolved; empty when it was not found
	state  string
	home   string

	prompt, placeholder, footer, fold, busyTitle, busy, taken *regexp.Regexp
	dialogs                                                   []*regexp.Regexp
}

// Table is the harnesses of a host, by name.
type Table map[string]*Harness

const (
	defaultSettle   = 50 * time.Millisecond
	defaultSurvival = 2 * time.Second
	maxSurvival     = 10 * time.Second // a spawn is answered within 15 s
)

// New checks the entries. The error is fault.Invalid with the reason bad_config, and names the entry and the key. stateDir holds a
// directory for each harness; home is the user's;
// lookPath finds a program.
func New(entries map[string]Entry, stateDir, home string, lookPath func(string) (string, error)) (Table, error) {
	t := Table{}
	for _, name := range sortedKeys(entries) {
		h, err := compile(name, entries[name])
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "tmuxd.harnesses."+name, err)
		}
		h.state, h.home = filepath.Join(stateDir, "harness", name), home
		h.binary, _ = lookPath(h.expand(h.Binary, Vars{}))
		t[name] = h
	}
	return t, nil
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

func compile(name string, e Entry) (*Harness, error) {
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("a name has 1 to 32 of a-z, 0-9 and -, and begins with a letter")
	}
	h := &Harness{Entry: e, Name: name}
	if h.Settle == 0 {
		h.Settle = defaultSettle
	}
	if h.Survival == 0 {
		h.Survival = defaultSurvival
	}
	if h.WhenBusy == "" {
		h.WhenBusy = "hold"
	}
	if h.ConversationID == "" {
		h.ConversationID = "none"
	}
	for _, c := range []struct {
		bad  bool
		what string
	}{
		{h.Binary == "", "binary: name the program"},
		{h.Prompt == "", "prompt: a pattern for the first row of the composer is needed, or nothing could be submitted safely"},
		{h.Survival < 0 || h.Survival > maxSurvival, "survival: between 0s and 10s"},
		{h.Settle < 0 || h.Settle > 5*time.Second, "settle: between 0s and 5s"},
		{h.WhenBusy != "hold" && h.WhenBusy != "deliver", `when_busy: "hold" or "deliver"`},
		{h.ConversationID != "assigned" && h.ConversationID != "none", `conversation_id: "assigned" or "none"`},
		{h.ConversationID == "assigned" && !holds(h.Fresh, "{conversation_id}"), "fresh: needs {conversation_id}, since conversation_id is assigned"},
		{len(h.Resume) > 0 && !holds(h.Resume, "{conversation_id}"), "resume: needs {conversation_id}"},
		{len(h.PromptArgs) > 0 && !holds(h.PromptArgs, "{prompt_file}"), "prompt_args: needs {prompt_file}"},
		{h.Transcript != "" && !filepath.IsAbs(strings.NewReplacer("{home}", "/h", "{state}", "/s").Replace(h.Transcript)),
			"transcript: an absolute path, or one that begins with {home} or {state}"},
	} {
		if c.bad {
			return nil, fmt.Errorf("%s", c.what)
		}
	}
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
	h.fold, h.busyTitle, h.busy = pattern("fold", h.Fold), pattern("busy_title", h.BusyTitle), pattern("busy", h.Busy)
	h.taken = pattern("taken", h.Taken)
	for _, d := range h.Dialogs {
		if _, posixErr := regexp.CompilePOSIX(d); posixErr != nil && err == nil {
			err = fmt.Errorf("dialogs: %q is not a POSIX regular expression, which tmux needs: %w", d, posixErr)
		}
		h.dialogs = append(h.dialogs, pattern("dialogs", d))
	}
	if err == nil && h.prompt.NumSubexp() != 1 {
		err = fmt.Errorf("prompt: needs exactly one group, the text in the composer")
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

// Resumes reports whether it can resume a conversation.
func (h *Harness) Resumes() bool { return len(h.Resume) > 0 }

// TakesPrompt reports whether it takes its first message at its start.
func (h *Harness) TakesPrompt() bool { return len(h.PromptArgs) > 0 }

// Vars are what the words in braces stand for.
type Vars struct {
	ConversationID string
	PromptFile     string
	Dir            string
}

func (h *Harness) expand(s string, v Vars) string {
	// One pass: what is put in is never read again.
	return strings.NewReplacer("{conversation_id}", v.ConversationID, "{prompt_file}", v.PromptFile, "{dir}", v.Dir, "{home}", h.home,
		"{state}", h.state).Replace(s)
}

// Argv returns the command for a conversation, fresh or resumed, with or without a first message in v.PromptFile.
func (h *Harness) Argv(resume bool, v Vars) []string {
	args := h.Fresh
	if resume {
		args = h.Resume
	}
	if v.PromptFile != "" {
		args = append(args[:len(args):len(args)], h.PromptArgs...)
	}
	binary := h.binary
	if binary == "" {
		binary = h.expand(h.Binary, v)
	}
	argv := []string{binary}
	for _, a := range args {
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

func holds(args []string, word string) bool {
	return strings.Contains(strings.Join(args, "\x00"), word)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
