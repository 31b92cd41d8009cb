package main

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// piece is a part of the composer's text: plain text, or one folded paste that is shown as a placeholder.
type piece struct {
	text []byte
	fold bool
}

// box is the composer's content. The cursor always stands at its end.
type box struct {
	pieces []piece
}

// foldMark is what stands on the screen for a folded paste of n runes.
func foldMark(n int) string { return "[Pasted Content " + strconv.Itoa(n) + " chars]" }

func (b *box) empty() bool { return len(b.pieces) == 0 }

func (b *box) clear() { b.pieces = nil }

// insert appends text that is shown as it is.
func (b *box) insert(s string) {
	if s == "" {
		return
	}
	if n := len(b.pieces); n > 0 && !b.pieces[n-1].fold {
		b.pieces[n-1].text = append(b.pieces[n-1].text, s...)
		return
	}
	b.pieces = append(b.pieces, piece{text: []byte(s)})
}

// paste appends a paste to whatever stands in the box, folded when it has more than fold runes.
func (b *box) paste(s string, fold int) {
	if utf8.RuneCountInString(s) > fold {
		b.pieces = append(b.pieces, piece{text: []byte(s), fold: true})
		return
	}
	b.insert(s)
}

// backspace removes the last rune, or a whole folded paste.
func (b *box) backspace() {
	n := len(b.pieces)
	if n == 0 {
		return
	}
	last := &b.pieces[n-1]
	if !last.fold {
		_, size := utf8.DecodeLastRune(last.text)
		last.text = last.text[:len(last.text)-size]
	}
	if last.fold || len(last.text) == 0 {
		b.pieces = b.pieces[:n-1]
	}
}

// killLine removes the last line, and at the start of a line the newline before it. It does not empty a box of many lines.
func (b *box) killLine() {
	for removed := false; len(b.pieces) > 0; removed = true {
		last := &b.pieces[len(b.pieces)-1]
		i := -1
		if !last.fold {
			i = bytes.LastIndexByte(last.text, '\n')
		}
		if i >= 0 && (removed || i+1 < len(last.text)) {
			last.text = last.text[:i+1]
			return
		}
		if i >= 0 {
			b.backspace()
			return
		}
		b.pieces = b.pieces[:len(b.pieces)-1]
	}
}

// text is what would be submitted: folds are expanded.
func (b *box) text() string { return b.join(false) }

// shown is what stands on the screen: folds are placeholders.
func (b *box) shown() string { return b.join(true) }

func (b *box) join(folded bool) string {
	var s strings.Builder
	for _, p := range b.pieces {
		if folded && p.fold {
			s.WriteString(foldMark(utf8.RuneCount(p.text)))
		} else {
			s.Write(p.text)
		}
	}
	return s.String()
}
