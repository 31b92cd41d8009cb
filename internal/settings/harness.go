package settings

import (
	_ "embed" // for the files of harnesses
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The words of a harness's settings.
const (
	// ConversationAssigned and the others are what Harness.ConversationID may be: we make a UUID and pass it; the program makes one, and the
	// name of the transcript that has our first message tells it; or there is none that we could know.
	ConversationAssigned = "assigned"
	ConversationLearned  = "learned"
	ConversationNone     = "none"
	// ChannelPaste and the others are what Harness.Channel may be: the text is pasted into its terminal; or it is handed over on the socket
	// {socket}, in the channel protocol (docs/harnesses.md) or in that of codex's app-server.
	ChannelPaste     = "paste"
	ChannelSocket    = "socket"
	ChannelAppServer = "app-server"
	// BusyHold and BusyDeliver are what Harness.WhenBusy may be.
	BusyHold    = "hold"
	BusyDeliver = "deliver"
	// StatusTitle and StatusNote are what Harness.Status may be: the title of its pane tells; or it writes a note, whose path it gets as {note}.
	StatusTitle = "title"
	StatusNote  = "note"
	// FailureUnknown and the others are what Failure.Class may be: the program does not know the conversation; that is open in another process; a limit
	// of use is reached; it is not logged in.
	FailureUnknown = "conversation_unknown"
	FailureInUse   = "conversation_in_use"
	FailureLimit   = "usage_limit"
	FailureAuth    = "auth"
	// TaskPromptStdin and the others are what Harness.TaskPrompt may be: the prompt is the standard input; it is that and a file besides, whose
	// name Task has as {prompt_file}; Task has one sentence ({sentence}) that points to the file; Task has the text itself ({prompt}), where
	// every user of the host can read it.
	TaskPromptStdin    = "stdin"
	TaskPromptFile     = "file"
	TaskPromptSentence = "sentence"
	TaskPromptText     = "text"
)

var (
	//go:embed harnesses/opencode.js
	opencodePlugin string
	//go:embed harnesses/opencode-channel.js
	opencodeChannel string
)

// uuid is the form of ids that we make, and that some programs make alike.
const uuid = `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`

// spinning matches a title that begins with a frame of the usual spinner. tmux reads it too, and knows no range of such characters.
const spinning = `^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] `

// codexStart are the first arguments of every codex.
func codexStart() []string {
	return append([]string{"--no-daemon", "-c", codexTrust}, codexScreen()...)
}

// codexRemote are the first arguments of one whose app-server is beside it, where it decides about trust.
func codexRemote() []string {
	return append([]string{"--remote", "unix://{socket}", "-c", "features.daemon_auto_start=false"}, codexScreen()...)
}

// codexScreen are arguments for a screen that can be read.
func codexScreen() []string {
	return []string{"-c", "check_for_update_on_startup=false", "-c", "tui.animations=true"}
}

// codexTrust trusts the directory for one start.
const codexTrust = `projects={{dir_quoted}={trust_level="trusted"}}`

// servers are words that make a program a server, which never ends by itself.
var servers = []string{"serve", "app-server"}

const (
	defaultSettle   = 50 * time.Millisecond
	maxSettle       = 5 * time.Second
	defaultSurvival = 2 * time.Second
	maxSurvival     = 10 * time.Second // a spawn is answered within 15 s
)

// StandIn is the harness of the bundled agent, which no model stands behind: for trying muxpost out, and for its tests.
const StandIn = "fakeagent"

// BuiltinHarnesses returns the entries that every host has unless its configuration says otherwise.
func BuiltinHarnesses() map[string]Harness {
	return map[string]Harness{
		StandIn: {
			Binary:         StandIn,
			Fresh:          []string{"--session-id", "{conversation_id}"},
			Resume:         []string{"--resume", "{conversation_id}"},
			PromptArgs:     []string{"--prompt-file", "{prompt_file}"},
			Task:           []string{"--task", "--session-id", "{attempt_id}"},
			TaskPrompt:     TaskPromptStdin,
			ConversationID: ConversationAssigned,
			Env:            map[string]string{"FAKEAGENT_HOME": "{state}", "FAKEAGENT_CHANNEL": "{socket}"},
			PassEnv: []string{"FAKEAGENT_READY_AFTER", "FAKEAGENT_PASTE_SETTLE", "FAKEAGENT_PASTE_DRAW", "FAKEAGENT_FOLD", "FAKEAGENT_TURN",
				"FAKEAGENT_DIE_AFTER", "FAKEAGENT_EXIT_AFTER", "FAKEAGENT_EXIT_CODE", "FAKEAGENT_EXIT_MESSAGE", "FAKEAGENT_TRUST_DIALOG"},
			Prompt:            `^› (.*)$`,
			Placeholder:       `^Ask fakeagent to do anything`,
			Footer:            `^  fake-1 · `,
			Fold:              `\[Pasted Content (\d+) chars\]`,
			Dialogs:           []string{`^› 1\. `, `^Press enter to confirm`, `^This conversation is open in another app`},
			DialogTitles:      []string{"[ ! ] Action Required"},
			DialogsHideCursor: true,
			Status:            StatusTitle,
			Approval:          `^\[ ! \] Action Required|^› 1\. Yes`,
			Failures: []Failure{
				{Class: FailureUnknown, Pattern: `^ERROR: No saved session found`},
				{Class: FailureInUse, Pattern: `^This conversation is open in another app`},
				{Class: FailureLimit, Pattern: `^■ .*usage limit`, Told: `"type":"error".*"text":"([^"]*usage limit[^"]*)`},
				{Class: FailureAuth, Pattern: `^■ .*not logged in`, Told: `"type":"error".*"text":"([^"]*not logged in[^"]*)`},
			},
			TurnEnds:   `^\{"time":"[^"]*","seq":\d+,"type":"(assistant|error|interrupted)"`,
			BusyTitle:  spinning,
			Busy:       `^  fake-1 · .* · esc to interrupt`,
			WhenBusy:   BusyHold,
			Settle:     200 * time.Millisecond,
			Survival:   1500 * time.Millisecond,
			Transcript: "{state}/sessions/{conversation_id}.jsonl",
			Taken:      `"type":"user"`,
		},
		// Tried with codex-cli 0.171.0. Its daemon is kept out: it would outlive the session. The directory is trusted for this start alone, and
		// nothing is written into the user's own configuration.
		"codex": {
			Binary:       "codex",
			Channel:      ChannelAppServer,
			ChannelFresh: append(codexRemote(), "-C", "{dir}"),
			// Over its app-server it resumes with the policy that the conversation had, and takes no other.
			ChannelResume: append(codexRemote(), "resume", "-C", "{dir}", "{conversation_id}"),
			Companion:     []string{"app-server", "-c", codexTrust, "-c", "check_for_update_on_startup=false", "--listen", "unix://{socket}"},
			Fresh:         append(codexStart(), "-C", "{dir}"),
			// A conversation that was born in a task would go on without ever asking for approval.
			Resume:           append(codexStart(), "resume", "-a", "on-request", "-C", "{dir}", "{conversation_id}"),
			Task:             []string{"exec", "-"},
			ConversationID:   ConversationLearned,
			ConversationForm: uuid,
			Prompt:           `^› (.*)$`,
			Placeholder:      `^Ask Codex to do anything`,
			Footer:           `^  \S.* · [/~]`,
			Fold:             `\[Pasted Content (\d+) chars\]`,
			Dialogs: []string{`^› [0-9]+\. `, `^  *Trust this folder\?`, `Press enter to confirm`, `Hooks need review`, `Working directory · resume`,
				`open in another app`, `Sign in with ChatGPT`},
			DialogTitles:      []string{"[ ! ] Action Required", "[ . ] Action Required"},
			DialogsHideCursor: true,
			Status:            StatusTitle,
			Approval:          `^\[ [!.] \] Action Required`,
			Failures: []Failure{
				{Class: FailureUnknown, Pattern: `^ERROR: No saved session found with ID`},
				{Class: FailureInUse, Pattern: `open in another app`},
				{Class: FailureLimit, Pattern: `^■ .*(?:429 Too Many Requests|[Uu]sage limit)`,
					Told: `"error":\{"message":"([^"]*(?:429 Too Many Requests|[Uu]sage limit)[^"]*)`},
				{Class: FailureAuth, Pattern: `^■ .*(?:401 Unauthorized|403 Forbidden)`, Told: `"error":\{"message":"([^"]*(?:401 Unauthorized|403 Forbidden)[^"]*)`},
			},
			TurnEnds:   `^\{[^{]*"type":"event_msg","payload":\{"type":"(task_complete|turn_aborted)"`,
			BusyTitle:  spinning,
			Busy:       `^[•◦] .+ \(\d.* • esc to interrupt\)|^ *Waiting for startup · esc cancel`,
			WhenBusy:   BusyHold,
			Settle:     100 * time.Millisecond,
			Survival:   3 * time.Second,
			Transcript: "{home}/.codex/sessions/*/*/*/rollout-*-{conversation_id}.jsonl",
			Taken:      `"role":"user"`,
		},
		// Tried with opencode 1.18.33. Plugins in a directory of muxpost's own tell what it took, and take deliveries; the user's configuration
		// stays as it is.
		"opencode": {
			Binary:           "opencode",
			Channel:          ChannelSocket,
			Fresh:            []string{"{dir}"},
			Resume:           []string{"{dir}", "-s", "{conversation_id}"},
			Task:             []string{"run"},
			ConversationID:   ConversationLearned,
			ConversationForm: `ses_[A-Za-z0-9]+`,
			Env: map[string]string{"OPENCODE_CONFIG_DIR": "{state}/config", "MUXPOST_SESSIONS": "{state}/sessions",
				"MUXPOST_NOTE": "{note}", "MUXPOST_CHANNEL": "{socket}", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
			Files: map[string]string{"{state}/config/plugin/muxpost.js": opencodePlugin,
				"{state}/config/plugin/muxpost-channel.js": opencodeChannel},
			// Beside a wide one stands more, behind a gap.
			Prompt:            `^ *┃ {0,4}(.*?)(?: {8,}.*)?$`,
			Framed:            true,
			Placeholder:       `^Ask anything`,
			Footer:            `^ *┃  \S+ · \S`,
			Fold:              `\[Pasted ~\d+ lines?\]`,
			Dialogs:           []string{`Permission required`, `Allow once +Allow always`},
			DialogsHideCursor: true,
			Busy:              `^ *[■⬝]+ +(esc (again to )?interrupt|.* \[retrying )`,
			WhenBusy:          BusyHold,
			Status:            StatusNote,
			Approval:          `Permission required|Allow once`,
			// At a limit of use it tries again by itself.
			Failures: []Failure{
				{Class: FailureUnknown, Pattern: `^Error: (?:Session not found|Invalid session ID)`},
				{Class: FailureAuth, Told: `^error (ProviderAuthError.*|\S+ (?:401|403) .*)`},
			},
			Settle:     100 * time.Millisecond,
			Survival:   3 * time.Second,
			Transcript: "{state}/sessions/{conversation_id}.jsonl",
			Taken:      `"type":"user"`,
		},
		"gemini":       gemini(),
		"qwen":         qwen(),
		"claude":       claude(),
		"cursor-agent": cursorAgent(),
		// These are known by how they run a task alone; how their screens read, an entry of the host's own says.
		"oh-my-opencode": {Binary: "oh-my-opencode", Task: []string{"run"}, TaskPrompt: TaskPromptStdin, Unmeasured: []string{"task"}},
		"omx":            {Binary: "omx", Task: []string{"team", "{sentence}"}, TaskPrompt: TaskPromptSentence, Unmeasured: []string{"task"}},
		"omc":            {Binary: "omc", Task: []string{"team", "{sentence}"}, TaskPrompt: TaskPromptSentence, Unmeasured: []string{"task"}},
	}
}

// withDefaults fills in what an entry leaves out.
func (h Harness) withDefaults() Harness {
	if h.Settle == 0 {
		h.Settle = defaultSettle
	}
	if h.Survival == 0 {
		h.Survival = defaultSurvival
	}
	if h.Channel == "" {
		h.Channel = ChannelPaste
	}
	if h.WhenBusy == "" {
		h.WhenBusy = BusyHold
	}
	if h.ConversationID == "" {
		h.ConversationID = ConversationNone
	}
	if h.TaskPrompt == "" {
		h.TaskPrompt = TaskPromptStdin
	}
	return h
}

var harnessName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// check finds the mistakes of an entry; key is where it stands.
func (h Harness) check(p *problems, name string) {
	key := "harnesses." + name
	p.add(!harnessName.MatchString(name), "%s: a name has 1 to 32 of a-z, 0-9 and -, and begins with a letter", key)
	p.add(strings.TrimSpace(h.Binary) == "", "%s.binary: name the program", key)
	p.add(h.Prompt == "" && !h.tasksAlone(), "%s.prompt: a pattern for the first row of the composer is needed, or nothing could be submitted "+
		"safely; only an entry with task, and without fresh and resume, does without", key)
	h.checkTask(p, key)
	p.add(h.Survival < 0 || h.Survival > maxSurvival, "%s.survival is %v: it must be 0s to %v", key, h.Survival, maxSurvival)
	h.checkStatus(p, key)
	h.checkFailures(p, key)
	p.add(h.Settle < 0 || h.Settle > maxSettle, "%s.settle is %v: it must be 0s to %v", key, h.Settle, maxSettle)
	p.add(h.WhenBusy != BusyHold && h.WhenBusy != BusyDeliver, "%s.when_busy is %q: write %q or %q", key, h.WhenBusy, BusyHold, BusyDeliver)
	h.checkChannel(p, key)
	assigned, learned := h.ConversationID == ConversationAssigned, h.ConversationID == ConversationLearned
	p.add(!assigned && !learned && h.ConversationID != ConversationNone, "%s.conversation_id is %q: write %q, %q or %q", key, h.ConversationID,
		ConversationAssigned, ConversationLearned, ConversationNone)
	p.add(learned && !strings.Contains(h.Transcript, "{conversation_id}"), "%s.transcript needs {conversation_id}, since conversation_id is learned", key)
	for _, path := range sortedKeys(h.Files) {
		rest, ok := strings.CutPrefix(path, "{state}/")
		p.add(!ok || !filepath.IsLocal(rest), "%s.files: %q must be a path that begins with {state}/", key, path)
	}
	p.add(h.Edge != "" && h.Footer == "", "%s.footer is needed, since edge is set: it is what may stand below the composer", key)
	p.add(h.Edge != "" && h.Framed, "%s.framed does not go with edge", key)
	p.add(assigned && !holds(h.Fresh, "{conversation_id}"), "%s.fresh needs {conversation_id}, since conversation_id is assigned", key)
	p.add(len(h.Resume) > 0 && !holds(h.Resume, "{conversation_id}"), "%s.resume needs {conversation_id}", key)
	p.add(len(h.ChannelResume) > 0 && !holds(h.ChannelResume, "{conversation_id}"), "%s.channel_resume needs {conversation_id}", key)
	p.add(assigned && len(h.ChannelFresh) > 0 && !holds(h.ChannelFresh, "{conversation_id}"), "%s.channel_fresh needs {conversation_id}, since "+
		"conversation_id is assigned", key)
	p.add(len(h.PromptArgs) > 0 && !holds(h.PromptArgs, "{prompt_file}"), "%s.prompt_args needs {prompt_file}", key)
	p.add(h.Transcript != "" && !filepath.IsAbs(strings.NewReplacer("{home}", "/h", "{state}", "/s").Replace(h.Transcript)),
		"%s.transcript must be an absolute path, or one that begins with {home} or {state}", key)
	h.checkPatterns(p, key)
}

// checkChannel finds the mistakes in how deliveries reach the program.
func (h Harness) checkChannel(p *problems, key string) {
	p.add(!slices.Contains([]string{ChannelPaste, ChannelSocket, ChannelAppServer}, h.Channel), "%s.channel is %q: write %q, %q or %q", key, h.Channel,
		ChannelPaste, ChannelSocket, ChannelAppServer)
	told := holds(slices.Concat(h.ChannelFresh, h.Companion, slices.Collect(maps.Values(h.Env))), "{socket}")
	p.add(h.Channel != ChannelPaste && !told, "%s.channel is %s, and nothing tells the program where to listen: write {socket} in env, channel_fresh or "+
		"companion", key, h.Channel)
	p.add(len(h.Companion) > 0 && !holds(h.Companion, "{socket}"), "%s.companion needs {socket}", key)
}

// tasksAlone reports whether the entry is for tasks and not for sessions.
func (h Harness) tasksAlone() bool { return len(h.Task) > 0 && len(h.Fresh) == 0 && len(h.Resume) == 0 }

// Interactive reports whether the entry can run a session.
func (h Harness) Interactive() bool { return h.Prompt != "" }

// checkStatus finds the mistakes in how an entry tells what it does.
func (h Harness) checkStatus(p *problems, key string) {
	_, posixErr := regexp.CompilePOSIX(h.BusyTitle)
	switch h.Status {
	case "":
	case StatusTitle:
		p.add(h.BusyTitle == "", "%s.busy_title is needed, since status is %s", key, StatusTitle)
		p.add(strings.Contains(h.BusyTitle, `\x`), "%s.busy_title holds a character as a number, which tmux does not read: write the character itself", key)
		p.add(posixErr != nil, "%s.busy_title is a pattern that tmux reads too, since status is %s, and is not a POSIX regular expression: %v", key, StatusTitle, posixErr)
	case StatusNote:
		p.add(!holds(append(slices.Collect(maps.Values(h.Env)), h.Fresh...), "{note}"), "%s.env needs {note}, since status is %s", key, StatusNote)
	default:
		p.add(true, "%s.status is %q: write %q, %q or nothing", key, h.Status, StatusTitle, StatusNote)
	}
}

// checkFailures finds the mistakes in how an entry classifies failures.
func (h Harness) checkFailures(p *problems, key string) {
	for i, f := range h.Failures {
		at := fmt.Sprintf("%s.failures[%d]", key, i)
		p.add(!slices.Contains([]string{FailureUnknown, FailureInUse, FailureLimit, FailureAuth}, f.Class), "%s.class is %q: write %s, %s, %s or %s", at, f.Class,
			FailureUnknown, FailureInUse, FailureLimit, FailureAuth)
		p.add(f.Pattern == "" && f.Told == "", "%s: a pattern is needed, in pattern or told", at)
		for word, pattern := range map[string]string{"pattern": f.Pattern, "told": f.Told} {
			_, err := regexp.Compile(pattern)
			p.add(err != nil, "%s.%s: %v", at, word, err)
		}
	}
	_, err := regexp.Compile(h.TurnEnds)
	p.add(err != nil, "%s.turn_ends: %v", key, err)
}

// checkTask finds the mistakes in how an entry runs a task.
func (h Harness) checkTask(p *problems, key string) {
	words := map[string]string{TaskPromptStdin: "", TaskPromptFile: "{prompt_file}", TaskPromptSentence: "{sentence}", TaskPromptText: "{prompt}"}
	word, known := words[h.TaskPrompt]
	p.add(!known, "%s.task_prompt is %q: write stdin, file, sentence or text", key, h.TaskPrompt)
	p.add(h.Check && !h.tasksAlone(), "%s.check goes with an entry that has task, and neither fresh nor resume", key)
	if len(h.Task) == 0 {
		return
	}
	p.add(known && word != "" && !holds(h.Task, word), "%s.task needs %s, since task_prompt is %s", key, word, h.TaskPrompt)
	for _, other := range []string{"{sentence}", "{prompt}"} {
		p.add(other != word && holds(h.Task, other), "%s.task has %s, which goes with another task_prompt than %s", key, other, h.TaskPrompt)
	}
	for _, arg := range append(strings.Fields(h.Binary), h.Task...) {
		p.add(slices.Contains(servers, arg), "%s.task: %s starts a server, which never ends: name the command that does one task and exits", key, arg)
	}
}

func (h Harness) checkPatterns(p *problems, key string) {
	for _, c := range []struct{ key, pattern string }{
		{"prompt", h.Prompt}, {"edge", h.Edge}, {"placeholder", h.Placeholder}, {"footer", h.Footer}, {"fold", h.Fold}, {"busy_title", h.BusyTitle},
		{"approval", h.Approval}, {"busy", h.Busy}, {"taken", h.Taken}, {"conversation_form", h.ConversationForm},
	} {
		re, err := regexp.Compile(c.pattern)
		p.add(err != nil, "%s.%s: %v", key, c.key, err)
		p.add(err == nil && c.key == "prompt" && c.pattern != "" && re.NumSubexp() != 1,
			"%s.prompt needs exactly one group, the text in the composer", key)
	}
	for i, d := range h.Dialogs {
		_, err := regexp.CompilePOSIX(d)
		p.add(err != nil, "%s.dialogs[%d] is not a POSIX regular expression, which tmux needs: %v", key, i, err)
		if err == nil {
			_, err = regexp.Compile(d)
			p.add(err != nil, "%s.dialogs[%d]: %v", key, i, err)
		}
	}
}

// CheckHarnesses fills in what the entries of a table leave out and finds all their mistakes, as one error of kind fault.Invalid.
func CheckHarnesses(table map[string]Harness) (map[string]Harness, error) {
	p := problems{section: "tmuxd"}
	out := map[string]Harness{}
	for _, name := range sortedKeys(table) {
		out[name] = table[name].withDefaults()
		out[name].check(&p, name)
	}
	return out, p.fault("")
}

func holds(args []string, word string) bool {
	return strings.Contains(strings.Join(args, "\x00"), word)
}
