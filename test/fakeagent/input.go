package main

import (
	"strings"
	"time"
	"unicode/utf8"
)

// The ways to answer a dialog.
const (
	choiceYes    = "yes"
	choiceAlways = "always"
	choiceNo     = "no"
	choiceTrust  = "trust"
)

// input takes the events of one read. That they came together matters: a CR among typed text is a program pasting
// without brackets, and real composers take it for a line break.
func (m *model) input(now time.Time, events []event) []effect {
	m.now = now
	typed := 0
	for _, e := range events {
		if e.kind == evText {
			typed += utf8.RuneCountInString(e.text)
		}
	}
	var out []effect
	for _, e := range events {
		switch {
		case m.doom != "":
			// Nothing is there to take it.
		case m.dialog != noDialog:
			out = append(out, m.answer(e)...)
		default:
			out = append(out, m.edit(e, typed > 0)...)
		}
	}
	if typed >= burstRunes {
		m.burstEnd = now
	}
	return out
}

// edit takes an event in the composer.
func (m *model) edit(e event, burst bool) []effect {
	switch e.kind {
	case evText:
		m.box.insert(e.text)
	case evPaste:
		m.box.paste(e.text, m.fold)
		m.pasteEnd = m.now
	case evNewline:
		m.box.insert("\n")
	case evBackspace:
		m.box.backspace()
	case evKill:
		m.box.killLine()
	case evTab:
		if burst {
			m.box.insert("\t")
		} else if m.busy() {
			return m.submit()
		}
	case evEnter:
		return m.enter(burst)
	case evInterrupt:
		return m.controlC()
	case evEscape:
		if m.busy() {
			return m.interrupt()
		}
	}
	return nil
}

// enter takes a CR in the composer. It submits only when the program is ready and no paste has just come in.
func (m *model) enter(burst bool) []effect {
	switch {
	case !m.ready:
		return nil
	case burst || m.within(m.burstEnd):
		m.box.insert("\n")
		return nil
	case m.within(m.pasteEnd):
		return nil
	}
	return m.submit()
}

// within says that less than the settle time has passed since t.
func (m *model) within(t time.Time) bool {
	return !t.IsZero() && m.now.Sub(t) < m.pasteSettle
}

// controlC clears a draft, or interrupts a turn, or ends the program: whichever comes first.
func (m *model) controlC() []effect {
	switch {
	case !m.box.empty():
		m.box.clear()
		return nil
	case m.busy():
		return m.interrupt()
	}
	return leave(0)
}

// answer takes an event while a dialog is open. A paste is dropped, text selects by its letters, Enter takes the first
// choice; whatever follows the answer goes to the composer.
func (m *model) answer(e event) []effect {
	if m.dialog == lockedDialog {
		if e.kind == evInterrupt || e.kind == evText && strings.ContainsRune(e.text, 'q') {
			return leave(0)
		}
		return nil
	}
	switch e.kind {
	case evEnter:
		return m.choose('1')
	case evEscape, evInterrupt:
		return m.choose('3')
	case evText:
		for i, r := range e.text {
			if !m.offers(r) {
				continue
			}
			out := m.choose(r)
			rest := event{kind: evText, text: e.text[i+utf8.RuneLen(r):]}
			if m.dialog != noDialog {
				return append(out, m.answer(rest)...)
			}
			return append(out, m.edit(rest, true)...)
		}
	}
	return nil
}

// offers says that the open dialog has a choice with this letter.
func (m *model) offers(r rune) bool {
	if m.dialog == trustDialog {
		return r == '1' || r == '2'
	}
	return r == '1' || r == '2' || r == '3' || r == 'y' || r == 'p'
}

// choose closes the dialog with a choice.
func (m *model) choose(r rune) []effect {
	open := m.dialog
	m.dialog = noDialog
	if open == trustDialog {
		if r != '1' {
			return leave(0)
		}
		return append(approval(choiceTrust), m.begin()...)
	}
	switch r {
	case '1', 'y':
		return approval(choiceYes)
	case '2', 'p':
		return approval(choiceAlways)
	}
	out := approval(choiceNo)
	if m.busy() {
		out = append(out, m.interrupt()...)
	}
	return out
}
