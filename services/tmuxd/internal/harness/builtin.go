package harness

import "time"

// Builtin returns the entries that every host has unless its configuration says otherwise.
func Builtin() map[string]Entry {
	return map[string]Entry{
		// The bundled agent: a stand-in that behaves like real ones, for trying muxpost out and for its tests.
		"fakeagent": {
			Binary:         "fakeagent",
			Fresh:          []string{"--session-id", "{conversation_id}"},
			Resume:         []string{"--resume", "{conversation_id}"},
			PromptArgs:     []string{"--prompt-file", "{prompt_file}"},
			ConversationID: "assigned",
			Env:            map[string]string{"FAKEAGENT_HOME": "{state}"},
			PassEnv: []string{"FAKEAGENT_READY_AFTER", "FAKEAGENT_PASTE_SETTLE", "FAKEAGENT_FOLD", "FAKEAGENT_TURN",
				"FAKEAGENT_DIE_AFTER", "FAKEAGENT_EXIT_AFTER", "FAKEAGENT_EXIT_CODE", "FAKEAGENT_TRUST_DIALOG"},
			Prompt:       `^› (.*)$`,
			Placeholder:  `^Ask fakeagent to do anything`,
			Footer:       `^  fake-1 · `,
			Fold:         `\[Pasted Content (\d+) chars\]`,
			Dialogs:      []string{`^› 1\. `, `^Press enter to confirm`, `open in another app`},
			DialogTitles: []string{"[ ! ] Action Required"},
			BusyTitle:    `^[\x{2800}-\x{28FF}] `,
			Busy:         `^  fake-1 · .* · esc to interrupt`,
			WhenBusy:     "hold",
			Settle:       200 * time.Millisecond,
			Survival:     1500 * time.Millisecond,
			Transcript:   "{state}/sessions/{conversation_id}.jsonl",
			Taken:        `"type":"user"`,
		},
	}
}
