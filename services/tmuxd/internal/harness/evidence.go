package harness

import "bytes"

// LeavesEvidence reports whether the harness records conversations where that can be read.
func (h *Harness) LeavesEvidence() bool { return h.Transcript != "" }

// TranscriptPath returns the file in which a conversation is recorded; empty when there is none that can be read.
func (h *Harness) TranscriptPath(conversationID, dir string) string {
	if h.Transcript == "" || conversationID == "" {
		return ""
	}
	return h.expand(h.Transcript, Vars{ConversationID: conversationID, Dir: dir})
}

// Takes reports whether a line of the transcript proves that the agent took the message that holds the mark.
func (h *Harness) Takes(line []byte, mark string) bool {
	return bytes.Contains(line, []byte(mark)) && (h.taken == nil || h.taken.Match(line))
}
