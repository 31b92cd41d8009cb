package settings

import "time"

// The programs here hide their cursor and draw one themselves. They take a CR for a new line, or not at all, for some time after a paste.

// gemini was tried with gemini-cli 0.61.0. Its composer has no frame: the rows around it are empty.
func gemini() Harness {
	return Harness{
		Binary: "gemini",
		// The directory is trusted for this start alone.
		Fresh:            []string{"--skip-trust", "--session-id", "{conversation_id}"},
		Resume:           []string{"--skip-trust", "--resume", "{conversation_id}"},
		Task:             []string{"--skip-trust", "--output-format", "text"},
		ConversationID:   ConversationAssigned,
		ConversationForm: uuid,
		Prompt:           `^ > (.*)$`,
		Edge:             `^ *$`,
		// The blanks are the cursor's.
		Placeholder:  `^  Type your message or @path`,
		Footer:       `^ workspace \(/directory\)|^ [/~]`,
		Fold:         `\[Pasted Text: \d+ lines\]`,
		Dialogs:      []string{`^ *(│ *)?● [0-9]+\. `},
		DialogTitles: []string{"✋"},
		Status:       StatusTitle,
		Approval:     `^✋`,
		BusyTitle:    `^✦ `,
		Busy:         `^ \S .*\(esc to cancel`,
		WhenBusy:     BusyHold,
		Settle:       500 * time.Millisecond,
		Survival:     6 * time.Second,
		// The names of the files hold the beginning of the id alone.
		Transcript: "{home}/.gemini/tmp/*/chats/session-*.jsonl",
		Taken:      `"type":"user"`,
	}
}

// qwen was tried with qwen-code 0.15.10.
func qwen() Harness {
	return Harness{
		Binary:           "qwen",
		Fresh:            []string{"--session-id", "{conversation_id}"},
		Resume:           []string{"--resume", "{conversation_id}"},
		Task:             []string{"--output-format", "text"},
		ConversationID:   ConversationAssigned,
		ConversationForm: uuid,
		// Behind the text its cursor leaves a character without width.
		Prompt:      `^> (.*?)[ \x{200B}]*$`,
		Edge:        `^─{20,}$`,
		Placeholder: `^  Type your message or @path`,
		Footer:      `^  \? for shortcuts`,
		Fold:        `\[Pasted Content (\d+) chars\]`,
		Dialogs:     []string{`^ *(│ *)?› [0-9]+\. `, `Waiting for user confirmation`},
		Approval:    `Yes, allow once|Waiting for user confirmation`,
		Busy:        `^  \S .*esc to cancel\)`,
		WhenBusy:    BusyHold,
		Settle:      800 * time.Millisecond,
		Survival:    6 * time.Second,
		Transcript:  "{home}/.qwen/projects/*/chats/{conversation_id}.jsonl",
		Taken:       `"type":"user"`,
	}
}

// claude was not tried: of Claude Code only its documented flags are known for sure. Where its screen reads otherwise, an event is held as
// not_ready or as a draft and nothing is typed. It has no placeholder, because its words could be a person's, and no transcript, because one that is
// looked for in the wrong place would prove what is not so.
func claude() Harness {
	return Harness{
		Binary:           "claude",
		Fresh:            []string{"--session-id", "{conversation_id}"},
		Resume:           []string{"--resume", "{conversation_id}"},
		Task:             []string{"-p"},
		ConversationID:   ConversationAssigned,
		ConversationForm: uuid,
		Prompt:           `^[>❯][ \x{A0}](.*?) *$`,
		Edge:             `^─{20,}$`,
		Footer:           `^  (\? for shortcuts|⏵⏵ )`,
		Fold:             `\[Pasted text #\d+( \+\d+ lines)?\]`,
		Dialogs: []string{`^ *(│ *)?❯ [0-9]+\. `, `^ *(│ *)?Do you want to (proceed|make|create)`,
			`^ *(│ *)?Do you trust the files in this folder`, `Enter to confirm`},
		Approval: `Do you want to (proceed|make|create)`,
		Failures: []Failure{
			{Class: FailureUnknown, Pattern: `^No conversation found with session ID`},
			{Class: FailureInUse, Pattern: `^Error: Session ID .* is already in use`},
		},
		Busy:     `esc to interrupt`,
		WhenBusy: BusyHold,
		Settle:   500 * time.Millisecond,
		Survival: 6 * time.Second,
		Unmeasured: []string{"fresh", "resume", "task", "prompt", "edge", "footer", "fold", "dialogs", "approval", "failures", "busy",
			"settle", "survival"},
	}
}

// cursorAgent was not tried. It has no interactive resume, so that a session whose agent died begins a new conversation. What is said of claude's
// screen holds for its too.
func cursorAgent() Harness {
	return Harness{
		Binary:     "cursor-agent",
		Task:       []string{"-p", "{sentence}"},
		TaskPrompt: TaskPromptSentence,
		Prompt:     `^ *│ → (.*?) *│ *$`,
		Edge:       `^ *[┌╭└╰]─{20,}`,
		Footer:     `^ *(/ commands · @ files|Auto)`,
		Dialogs:    []string{`^ *(│ *)?→ .*\((y|enter)\)`, `^ *(│ *)?Run this command`},
		Approval:   `Run this command`,
		Busy:       `(ctrl\+c|esc) to stop`,
		WhenBusy:   BusyHold,
		Settle:     500 * time.Millisecond,
		Survival:   6 * time.Second,
		Unmeasured: []string{"fresh", "task", "prompt", "edge", "footer", "dialogs", "approval", "busy", "settle", "survival"},
	}
}
