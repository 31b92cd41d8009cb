package view

import (
	"cmp"
	"strings"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// Harnesses writes the entries of a host's harness table, and what to do about those whose programs are not there. first is the harness of first
// sessions.
func (p Printer) Harnesses(harnesses []*tmuxdv1.HarnessInfo, first string) {
	var missing []string
	rows := make([][]Cell, 0, len(harnesses))
	for _, h := range harnesses {
		program := Text(h.GetBinary())
		if h.GetBinary() == "" {
			missing = append(missing, Clean(h.GetName()))
			if program = (Cell{Text: "not installed", Tone: Dim}); h.GetName() == first {
				program.Tone = Bad
			}
		}
		resumes, prompt, conversation := yes(h.GetResumes()), "pasted", Word(h.GetConversationSource().String(), "CONVERSATION_SOURCE_")
		channel := "-"
		if h.GetChannel() != tmuxdv1.Channel_CHANNEL_UNSPECIFIED {
			channel = strings.ReplaceAll(Word(h.GetChannel().String(), "CHANNEL_"), "_", "-") // as the configuration has it
		}
		switch {
		case h.GetTakesPrompt():
			prompt = "at start"
		case h.GetChannel() == tmuxdv1.Channel_CHANNEL_APP_SERVER:
			prompt = "handed over"
		}
		if !h.GetRunsSessions() {
			resumes, prompt, channel, conversation = "-", "-", "-", "-"
		}
		rows = append(rows, []Cell{
			Text(h.GetName()), program, Text(cmp.Or(h.GetVersion(), h.GetVersionProblem(), "-")), Text(resumes), Text(prompt), Text(channel),
			Text(yes(h.GetRunsTasks())), Text(conversation), Text(cmp.Or(strings.Join(h.GetUnmeasured(), ", "), "-")),
		})
	}
	p.Table("the host has no harness",
		[]string{"HARNESS", "PROGRAM", "VERSION", "RESUMES", "FIRST PROMPT", "CHANNEL", "TASKS", "CONVERSATION", "UNMEASURED"}, rows)
	if first != "" {
		p.Line("\nFirst sessions are started with %s (dispatcher.harness).", Clean(first))
	}
	if len(missing) > 0 {
		p.Line("Not installed: %s. To use one, install it where tmuxd finds it on its PATH, or write its path as\n"+
			"tmuxd.harnesses.NAME.binary; then muxpost down && muxpost up. docs/harnesses.md names the packages.", strings.Join(missing, ", "))
	}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
