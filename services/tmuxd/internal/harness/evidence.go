package harness

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
)

// LeavesEvidence reports whether the harness records conversations where that can be read.
func (h *Harness) LeavesEvidence() bool { return h.Transcript != "" }

// Transcripts returns the pattern (as in path/filepath) of the files in which conversations are recorded; empty when there are none
// that can be read. It names those of every conversation: a person may have begun another one in the same session.
func (h *Harness) Transcripts(dir string) string {
	if h.Transcript == "" {
		return ""
	}
	return h.transcripts("*", dir)
}

// RecordsTurns reports whether the transcript of a conversation tells how a turn ended.
func (h *Harness) RecordsTurns() bool {
	return h.turnEnds != nil && strings.Contains(h.Transcript, "{conversation_id}")
}

// TranscriptOf returns the pattern of the file in which a conversation is recorded.
func (h *Harness) TranscriptOf(conversation, dir string) string {
	return h.transcripts(escapePattern(conversation), dir)
}

// escapePattern writes a text so that a pattern of files reads it as itself.
func escapePattern(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

func (h *Harness) transcripts(conversation, dir string) string {
	escape := escapePattern
	return strings.NewReplacer("{conversation_id}", conversation, "{dir}", escape(dir), "{home}", escape(h.home), "{state}", escape(h.state)).
		Replace(h.Transcript)
}

// ConversationOf returns the id of the conversation that a transcript records, by its path; empty when that does not tell.
func (h *Harness) ConversationOf(path, dir string) string {
	if !strings.Contains(h.Transcript, "{conversation_id}") {
		return ""
	}
	form := cmp.Or(h.ConversationForm, conversationForm)
	// The words and the wildcards of the pattern, which is quoted by then. Only the first mention of the id is taken.
	pattern := regexp.QuoteMeta(h.Transcript)
	for _, r := range []struct{ word, means string }{
		{`\{dir\}`, regexp.QuoteMeta(dir)}, {`\{home\}`, regexp.QuoteMeta(h.home)}, {`\{state\}`, regexp.QuoteMeta(h.state)},
		{`\*`, `[^/]*`}, {`\?`, `[^/]`},
	} {
		pattern = strings.ReplaceAll(pattern, r.word, r.means)
	}
	pattern = strings.Replace(pattern, `\{conversation_id\}`, "("+form+")", 1)
	re, err := regexp.Compile("^" + strings.ReplaceAll(pattern, `\{conversation_id\}`, "(?:"+form+")") + "$")
	if err != nil {
		return ""
	}
	if m := re.FindStringSubmatch(path); len(m) > 1 && h.ValidConversation(m[1]) {
		return m[1]
	}
	return ""
}

// Mention is how a line of a transcript names a delivery.
type Mention uint8

// How a line can name a delivery.
const (
	// NotMentioned means that it does not.
	NotMentioned Mention = iota
	// Mentioned means that it holds the mark somewhere: another message may quote it.
	Mentioned
	// Takes means that a message begins with the mark: the agent took the delivery.
	Takes
)

// Reads says how a line names the delivery with this mark.
func (h *Harness) Reads(line []byte, mark string) Mention {
	if !bytes.Contains(line, []byte(mark)) {
		return NotMentioned
	}
	if h.taken != nil && !h.taken.Match(line) {
		return NotMentioned
	}
	// The text begins where its JSON string does: behind a quote that is not itself part of a text.
	begin := []byte(`"` + mark)
	for rest := line; ; {
		i := bytes.Index(rest, begin)
		if i < 0 {
			return Mentioned
		}
		if at := len(line) - len(rest) + i; at == 0 || line[at-1] != '\\' {
			return Takes
		}
		rest = rest[i+1:]
	}
}
