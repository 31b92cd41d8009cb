package harness

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Screen is what a pane shows.
type Screen struct {
	Rows             []string
	CursorX, CursorY int
	CursorShown      bool
	Title            string
	// Width is how many columns the pane has; zero means not known.
	Width int
}

// Reading is what a screen says of the agent. The zero value says that nothing was understood.
type Reading struct {
	// Dialog is true when a dialog waits for a person; DialogRow is the row or title that says so.
	Dialog    bool
	DialogRow string
	// Ready is true when the composer is there: its first row, the cursor in it, and the row below it.
	Ready bool
	// Busy is true when a turn runs.
	Busy bool
	// Text is what stands in the composer, its rows joined by a blank; empty for an empty one.
	Text string
	// Failure is why the program cannot go on, where it says so and nothing was written since; its zero value says nothing.
	Failure Failure
	// Elsewhere has a bit for each dialog pattern that matches a row which is no dialog, but a text that quotes one.
	Elsewhere uint64
}

// Guarded returns the dialog patterns that tmux is to look for: it looks at the whole screen, so those that a text matches would refuse
// every act. What a dialog does to the cursor is guarded besides.
func (h *Harness) Guarded(r Reading) []string {
	var out []string
	for i, d := range h.Dialogs {
		if r.Elsewhere>>i&1 == 0 {
			out = append(out, d)
		}
	}
	return out
}

// AsksApproval reports whether the row or title of a dialog asks to be allowed something.
func (h *Harness) AsksApproval(row string) bool {
	return h.approval != nil && h.approval.MatchString(row)
}

// dialogRows is how many of the last rows can be a dialog: further up is history, which may quote one.
const dialogRows = 15

// Read reads a screen. A dialog that is not there only delays a delivery; a composer that is not there must not be seen: so the cursor
// has to stand in it or, where that hides, the composer has to be the end of the screen.
func (h *Harness) Read(s Screen) Reading {
	var r Reading
	last := len(s.Rows)
	for last > 0 && strings.TrimSpace(s.Rows[last-1]) == "" {
		last--
	}
	for _, title := range h.DialogTitles {
		if strings.HasPrefix(s.Title, title) {
			r.Dialog, r.DialogRow = true, s.Title
		}
	}
	text, top, composed := h.composer(s)
	for y, row := range s.Rows[:last] {
		low := y >= last-dialogRows
		for i, d := range h.dialogs {
			switch match := d.MatchString(row); {
			case match && (!low || composed && h.DialogsHideCursor):
				r.Elsewhere |= 1 << i
			case match && !r.Dialog:
				r.Dialog, r.DialogRow = true, strings.TrimSpace(row)
			}
		}
		if low && h.busy != nil && h.busy.MatchString(row) {
			r.Busy = true
		}
	}
	if h.busyTitle != nil && h.busyTitle.MatchString(s.Title) {
		r.Busy = true
	}
	r.Text, r.Ready = text, composed && !r.Dialog
	if !composed {
		top = last
	}
	switch {
	case r.Dialog:
		r.Failure = h.classify(r.DialogRow, func(f failure) *regexp.Regexp { return f.pattern })
	case !r.Busy:
		r.Failure = h.among(s.Rows[:top], liveRows)
	}
	return r
}

// composer returns the text in the composer and its first row, and whether the composer is there.
func (h *Harness) composer(s Screen) (text string, top int, composed bool) {
	// tmux gives rows without the blanks at their end, and the first row of a text may be an empty one.
	padded := func(y int) string { return s.Rows[y] + " " }
	bounds := h.atCursor
	if h.HidesCursor() {
		bounds = h.atEnd
	}
	top, bottom := bounds(s, padded)
	if top < 0 || bottom < top {
		return "", 0, false
	}
	row := padded(top)
	m := h.prompt.FindStringSubmatchIndex(row)
	first := row[m[2]:m[3]]
	start := utf8.RuneCountInString(row[:m[2]])
	// A person may type the words of the placeholder; only in an empty composer does the cursor stand before them. Where it hides, nothing else
	// may stand there, and the pattern has to tell by the blanks before the words.
	before := s.CursorY == top && s.CursorX <= start || h.HidesCursor() && top == bottom
	if h.placeholder != nil && before && h.placeholder.MatchString(first) {
		return "", top, true
	}
	rows := []string{strings.TrimSpace(first)}
	for y := top + 1; y <= bottom; y++ {
		rows = append(rows, strings.TrimSpace(h.inside(padded(y))))
	}
	return strings.TrimSpace(strings.Join(rows, " ")), top, true
}

// atCursor returns the first and the last row of the composer in which the cursor stands, -1 when it stands in none: the first is looked for
// upwards from the cursor; the footer is the last row that can be one, for a text may hold a line that looks like it.
func (h *Harness) atCursor(s Screen, padded func(int) string) (top, bottom int) {
	if !s.CursorShown || s.CursorY >= len(s.Rows) || s.CursorY < 0 {
		return -1, -1
	}
	top, bottom = h.top(s, padded), s.CursorY
	if h.footer != nil {
		bottom = len(s.Rows) - 1
		for bottom > s.CursorY && !h.footer.MatchString(s.Rows[bottom]) {
			bottom--
		}
		if bottom--; bottom < s.CursorY {
			return -1, -1 // there is none below the cursor
		}
	}
	return top, bottom
}

// atEnd returns the first and the last row of the composer at the end of the screen, -1 when something else is there. What a dialog shows, an
// agent can have made up, but not that nothing follows it.
func (h *Harness) atEnd(s Screen, padded func(int) string) (top, bottom int) {
	last := len(s.Rows) - 1
	for last >= 0 && strings.TrimSpace(s.Rows[last]) == "" {
		last--
	}
	edge := last
	for edge >= 0 && h.footer.MatchString(s.Rows[edge]) {
		edge--
	}
	if s.CursorShown || edge < 1 || edge == last || !h.edge.MatchString(s.Rows[edge]) {
		return -1, -1
	}
	for top = edge - 1; top > 0; top-- {
		if h.prompt.MatchString(padded(top)) && h.edge.MatchString(s.Rows[top-1]) {
			return top, edge - 1
		}
	}
	return -1, -1
}

// top returns the first row of the composer, looked for upwards from the cursor; -1 when there is none. In a frame every row looks like the
// first: it begins below the frame's last empty row.
func (h *Harness) top(s Screen, padded func(int) string) int {
	y := s.CursorY
	for y >= 0 && !h.prompt.MatchString(padded(y)) {
		y--
	}
	for h.Framed && y > 0 && h.prompt.MatchString(padded(y-1)) && strings.TrimSpace(h.inside(padded(y-1))) != "" {
		y--
	}
	return y
}

// inside returns what stands in a row of the composer, without its frame.
func (h *Harness) inside(row string) string {
	if m := h.prompt.FindStringSubmatch(row); m != nil && h.Framed {
		return m[1]
	}
	return row
}

// Shows says how a typed text stands in the composer.
type Shows uint8

// How a text can stand in the composer.
const (
	// ShowsNothing means that the composer is empty.
	ShowsNothing Shows = iota
	// ShowsText means that what stands there is the text, its end, or what the program puts in its place, and nothing else.
	ShowsText
	// ShowsMore means that the text stands there together with something else.
	ShowsMore
	// ShowsOther means that something else stands there.
	ShowsOther
)

// completed are the characters that begin a word which programs complete: a file, a skill. While a list of what it may become is open, a
// submit chooses from it and changes the text.
const completed = "@$"

// Closed returns a text as it is to be typed: where its last word could be completed, a blank ends that word.
func Closed(typed string) string {
	if strings.ContainsAny(typed[strings.LastIndexFunc(typed, unicode.IsSpace)+1:], completed) {
		return typed + " "
	}
	return typed
}

// tail is how much of the end of a text must show to be taken for it: a composer shows no more than its last rows.
const tail = 24

// Composed says how typed stands in the composer. mark is the part of it that nothing else holds.
func (h *Harness) Composed(r Reading, typed, mark string) Shows {
	if r.Text == "" {
		return ShowsNothing
	}
	// Rows are wrapped and filled up in ways that say nothing of the text.
	want, have := squeeze(typed), squeeze(r.Text)
	if strings.HasSuffix(want, have) && (len(have) >= tail || len(have) == len(want)) {
		return ShowsText
	}
	if m, fits := h.folded(r.Text, typed); m != nil && fits {
		if m[0] == 0 && m[1] == len(r.Text) {
			return ShowsText
		}
		return ShowsMore
	}
	if strings.Contains(have, squeeze(mark)) {
		return ShowsMore
	}
	return ShowsOther
}

// folded finds what stands for a long paste, and whether the number in it fits the text.
func (h *Harness) folded(composer, typed string) (m []int, fits bool) {
	if h.fold == nil {
		return nil, false
	}
	if m = h.fold.FindStringSubmatchIndex(composer); m == nil {
		return nil, false
	}
	if len(m) < 4 || m[2] < 0 {
		return m, true
	}
	n, err := strconv.Atoi(composer[m[2]:m[3]])
	return m, err == nil && n == utf8.RuneCountInString(typed)
}

// squeeze keeps what a screen surely shows as it was typed: white space is wrapped and filled up, and terminals drop or replace marks,
// pictures and characters that they do not know.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.Sm, unicode.Sc) {
			return -1
		}
		return r
	}, s)
}
