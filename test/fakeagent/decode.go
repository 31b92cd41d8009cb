package main

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// eventKind says what a person or a program did at the keyboard.
type eventKind uint8

const (
	evNone      eventKind = iota // a key without a meaning here: arrows, function keys, Alt chords
	evText                       // printable text outside a paste
	evPaste                      // one whole bracketed paste
	evEnter                      // CR
	evNewline                    // LF, or Alt+Enter
	evTab                        // HT
	evBackspace                  // DEL or BS
	evKill                       // C-u
	evInterrupt                  // C-c
	evEscape                     // a lone ESC
)

// event is one thing that happened at the keyboard; text is set for evText and evPaste and is always valid UTF-8.
type event struct {
	kind eventKind
	text string
}

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	// maxSequence bounds a control sequence without an end, so that garbage cannot swallow the keyboard for ever.
	maxSequence = 64
)

// decoder turns the bytes of a terminal into events. How the bytes were cut into reads never changes the events, except
// that text may come in more pieces: what is incomplete waits for the next feed, or for flush.
type decoder struct {
	pending []byte
	paste   []byte
	pasting bool
}

// waiting says that a key is incomplete: it may be a lone Escape, so the caller flushes it when no more bytes come.
func (d *decoder) waiting() bool { return len(d.pending) > 0 }

// feed decodes the bytes of one read.
func (d *decoder) feed(p []byte) []event {
	var out []event
	for len(p) > 0 {
		if d.pasting {
			p, out = d.feedPaste(p, out)
		} else {
			p, out = d.feedKeys(p, out)
		}
	}
	return out
}

// flush ends an incomplete key: a lone ESC is the Escape key, half a rune is U+FFFD. A paste ends by its marker alone.
func (d *decoder) flush() []event {
	pending := d.pending
	d.pending = nil
	switch {
	case len(pending) == 0:
		return nil
	case len(pending) == 1 && pending[0] == 0x1b:
		return []event{{kind: evEscape}}
	case pending[0] == 0x1b:
		return nil
	default:
		return []event{{kind: evText, text: string(utf8.RuneError)}}
	}
}

// feedPaste looks for the end marker only in what is new and the five bytes before it, so a paste costs time in proportion
// to its size however it is cut.
func (d *decoder) feedPaste(p []byte, out []event) ([]byte, []event) {
	from := max(0, len(d.paste)-len(pasteEnd)+1)
	d.paste = append(d.paste, p...)
	i := bytes.Index(d.paste[from:], []byte(pasteEnd))
	if i < 0 {
		return nil, out
	}
	end := from + i
	rest := p[len(p)-(len(d.paste)-end-len(pasteEnd)):]
	out = append(out, event{kind: evPaste, text: pasted(d.paste[:end])})
	d.paste, d.pasting = nil, false
	return rest, out
}

// pasted cleans the text of a paste as real composers do: one kind of line end, valid UTF-8.
func pasted(b []byte) string {
	s := strings.ToValidUTF8(string(b), string(utf8.RuneError))
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// feedKeys decodes up to the end of the bytes or the begin of a paste, and returns what is left.
func (d *decoder) feedKeys(p []byte, out []event) ([]byte, []event) {
	if len(d.pending) > 0 {
		p = append(bytes.Clone(d.pending), p...)
		d.pending = nil
	}
	var run []byte
	endRun := func() {
		if len(run) > 0 {
			out = append(out, event{kind: evText, text: string(run)})
			run = nil
		}
	}
	for len(p) > 0 {
		n, kind := key(p)
		if n == 0 {
			d.pending = bytes.Clone(p)
			break
		}
		if kind == evText {
			r, _ := utf8.DecodeRune(p)
			run = utf8.AppendRune(run, r)
			p = p[n:]
			continue
		}
		endRun()
		if kind == evPaste {
			d.pasting = true
			return p[n:], out
		}
		if kind != evNone {
			out = append(out, event{kind: kind})
		}
		p = p[n:]
	}
	endRun()
	return nil, out
}

// key reads one key from the front of p: how many bytes it takes, and its kind. No bytes means that it is incomplete.
// evPaste stands for the begin marker.
func key(p []byte) (int, eventKind) {
	switch c := p[0]; {
	case c == 0x1b:
		return escape(p)
	case c == '\r':
		return 1, evEnter
	case c == '\n':
		return 1, evNewline
	case c == '\t':
		return 1, evTab
	case c == 0x7f || c == 0x08:
		return 1, evBackspace
	case c == 0x15:
		return 1, evKill
	case c == 0x03:
		return 1, evInterrupt
	case c < 0x20:
		return 1, evNone
	case !utf8.FullRune(p):
		return 0, evNone
	}
	_, n := utf8.DecodeRune(p)
	return n, evText
}

// escape reads a key that starts with ESC.
func escape(p []byte) (int, eventKind) {
	if len(p) == 1 {
		return 0, evNone
	}
	switch p[1] {
	case '[':
		return control(p)
	case 'O':
		if len(p) < 3 {
			return 0, evNone
		}
		return 3, evNone
	case 0x1b:
		return 1, evEscape
	case '\r':
		return 2, evNewline
	}
	if !utf8.FullRune(p[1:]) {
		return 0, evNone
	}
	_, n := utf8.DecodeRune(p[1:])
	return 1 + n, evNone
}

// control reads a control sequence, ESC [ parameters final. A byte that cannot be part of one ends it unused.
func control(p []byte) (int, eventKind) {
	for i := 2; i < len(p); i++ {
		switch c := p[i]; {
		case i >= maxSequence:
			return i, evNone
		case c >= 0x20 && c <= 0x3f:
			continue
		case c >= 0x40 && c <= 0x7e:
			if string(p[:i+1]) == pasteBegin {
				return i + 1, evPaste
			}
			return i + 1, evNone
		default:
			return i, evNone
		}
	}
	return 0, evNone
}
