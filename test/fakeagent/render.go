package main

import (
	"fmt"
	"strings"
)

const (
	leadBox     = "› "
	leadMore    = "  "
	placeholder = "Ask fakeagent to do anything"
	modelName   = "fake-1"
	idleTitle   = "fakeagent"
	askTitle    = "[ ! ] Action Required | fakeagent"
	composerMax = 10
)

// row is one row of the screen: lead stands as it is, text may be dim.
type row struct {
	lead string
	text string
	dim  bool
}

// frame is a whole screen. The cursor is hidden unless cursor is set; x and y count from zero.
type frame struct {
	w, h   int
	rows   []row
	title  string // empty: leave it as it is
	cursor bool
	x, y   int
}

// render draws the model on a screen of w columns and h rows.
func render(m *model, w, h int) frame {
	w, h = max(w, 1), max(h, 1)
	f := frame{w: w, h: h, title: m.title()}
	head := []row{{text: "fakeagent " + version + " · session " + m.session}, {}}
	foot := m.foot(&f)
	foot = foot[max(0, len(foot)-h):]
	head = head[:min(len(head), h-len(foot))]
	room := h - len(head) - len(foot)
	f.rows = append(append(f.rows, head...), m.talk(w, room)...)
	for len(f.rows) < h-len(foot) {
		f.rows = append(f.rows, row{})
	}
	f.rows = append(f.rows, foot...)
	return f
}

// title is what the pane is called: it alone tells idle from streaming.
func (m *model) title() string {
	switch {
	case m.dialog == permissionDialog:
		return askTitle
	case !m.ready || m.dialog == trustDialog:
		return ""
	case m.busy():
		spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		step := int(m.now.Sub(m.turn.start)/spinnerStep) % len(spinner)
		return string(spinner[max(step, 0)]) + " " + idleTitle
	}
	return idleTitle
}

// foot is what stands at the bottom: the composer with its footer, or a dialog. It places the cursor in the frame.
func (m *model) foot(f *frame) []row {
	switch {
	case m.dialog != noDialog:
		return question(m.dialog)
	case !m.ready:
		return []row{{text: "Starting…", dim: true}}
	}
	var rows []row
	for _, q := range m.queue[max(0, len(m.queue)-3):] {
		rows = append(rows, row{text: fmt.Sprintf("↳ queued: %d chars", len([]rune(q.text)))})
	}
	rows = append(rows, row{})
	f.cursor, f.x, f.y = true, min(2, f.w-1), max(f.h-2, 0)
	if m.box.empty() {
		rows = append(rows, row{lead: leadBox, text: placeholder, dim: true})
	} else {
		lines, _ := wrapTail(m.box.shown(), f.w-3, max(1, min(composerMax, f.h-4)))
		rows = append(rows, block(leadBox, lines)...)
		f.x = min(2+width(lines[len(lines)-1]), f.w-1)
	}
	return append(rows, m.footer(f.w))
}

// footer is the row below the composer. The directory gives way when the row is too short for all of it.
func (m *model) footer(w int) row {
	left, right := leadMore+modelName+" · ", ""
	if m.busy() && !m.turn.stream {
		right = " · esc to interrupt"
	}
	return row{text: left + clip(m.cwd, w-width(left)-width(right)) + right}
}

// question is the rows of a dialog.
func question(d dialog) []row {
	lines := []string{
		"", "Would you like to run the following command?", "",
		"› 1. Yes, proceed (y)",
		"  2. Yes, and don't ask again (p)",
		"  3. No, and tell the agent what to do differently (esc)",
		"", "Press enter to confirm or esc to cancel",
	}
	switch d {
	case trustDialog:
		lines = []string{
			"", "Trust this folder?", "", "› 1. Trust and continue", "  2. Quit", "", "Press enter to confirm or esc to cancel",
		}
	case lockedDialog:
		lines = []string{"", "This conversation is open in another app", "", "q exit"}
	}
	rows := make([]row, len(lines))
	for i, s := range lines {
		rows[i].text = s
	}
	return rows
}

// talk is the end of the conversation, as much as fits.
func (m *model) talk(w, room int) []row {
	var parts [][]row
	for i := len(m.history) - 1; i >= 0 && room > 0; i-- {
		e := m.history[i]
		lines, whole := wrapTail(e.text, w-2, room)
		lead := e.lead
		if !whole {
			lead = leadMore
		}
		parts = append(parts, block(lead, lines))
		room -= len(lines)
	}
	var rows []row
	for i := len(parts) - 1; i >= 0; i-- {
		rows = append(rows, parts[i]...)
	}
	return rows
}

// block puts the lead before the first line and indents the others.
func block(lead string, lines []string) []row {
	rows := make([]row, len(lines))
	for i, s := range lines {
		rows[i] = row{lead: leadMore, text: s}
	}
	rows[0].lead = lead
	return rows
}

// paint is the bytes that turn the screen prev into next: one write, only the rows that changed, nothing if none did.
func paint(prev *frame, next frame) []byte {
	var b strings.Builder
	fresh := prev == nil || prev.w != next.w || prev.h != next.h
	if fresh {
		prev = &frame{rows: make([]row, len(next.rows))}
		b.WriteString("\x1b[0m\x1b[?25l\x1b[2J")
	}
	for i, r := range next.rows {
		if r == prev.rows[i] {
			continue
		}
		lead := clip(r.lead, next.w)
		text := clip(r.text, next.w-width(lead))
		if r.dim {
			text = "\x1b[2m" + text + "\x1b[22m"
		}
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s%s", i+1, lead, text)
	}
	if next.title != "" && next.title != prev.title {
		b.WriteString("\x1b]2;" + next.title + "\x07")
	}
	moved := next.x != prev.x || next.y != prev.y || next.cursor != prev.cursor
	if b.Len() == 0 && !moved {
		return nil
	}
	fmt.Fprintf(&b, "\x1b[%d;%dH", next.y+1, next.x+1)
	if next.cursor != prev.cursor {
		b.WriteString(map[bool]string{true: "\x1b[?25h", false: "\x1b[?25l"}[next.cursor])
	}
	return []byte(b.String())
}
