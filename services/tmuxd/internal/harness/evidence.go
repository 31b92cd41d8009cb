package harness

import (
	"bytes"
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
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace
	return strings.NewReplacer("{conversation_id}", "*", "{dir}", escape(dir), "{home}", escape(h.home), "{state}", escape(h.state)).
		Replace(h.Transcript)
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
