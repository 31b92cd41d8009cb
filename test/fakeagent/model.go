package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// settings are what a run is told at its start; none changes afterwards.
type settings struct {
	cwd         string
	readyAfter  time.Duration
	pasteSettle time.Duration
	pasteDraw   time.Duration // a paste that was read shows no sooner
	turn        time.Duration
	fold        int
	trust       bool          // a trust dialog opens before the composer
	prompt      string        // submitted as the first message; empty for none
	exitAfter   time.Duration // zero for never
	exitCode    int
	exitMessage string
	doom        string        // a run that only pretends to start: what it says when it dies
	dieAfter    time.Duration // and when
	locked      bool          // the conversation is open in another process
	newID       func() string // a fresh conversation id, for /clear
}

// dialog is a question that stands in the place of the composer.
type dialog uint8

const (
	noDialog dialog = iota
	trustDialog
	permissionDialog
	lockedDialog // nothing can be done but to leave
)

// entry is one message of the visible conversation.
type entry struct {
	lead string // two columns: who speaks
	text string
}

const (
	leadUser      = "> "
	leadAgent     = "• "
	leadShell     = "! "
	leadInterrupt = "■ "

	historyEntries = 200
	historyBytes   = 16 << 10
	spinnerStep    = 100 * time.Millisecond
	// burstRunes is how much unbracketed text in one read counts as a paste by a program and not as typing.
	burstRunes = 3
)

// model is the state of the agent. It changes by events and by time only, and says what must be recorded as effects.
type model struct {
	settings
	session string
	now     time.Time
	readyAt time.Time
	exitAt  time.Time
	dieAt   time.Time

	ready   bool
	dialog  dialog
	owed    bool // a permission dialog was asked for before the composer was ready
	box     box
	turn    *turn
	queue   []message
	history []entry

	// deliveries are those that were handed over and are in a conversation.
	deliveries map[string]bool

	pasteEnd time.Time
	burstEnd time.Time
}

// message is what somebody said to the agent.
type message struct {
	text     string
	delivery string // empty for what was typed
}

// newModel is the state at the start of a run.
func newModel(s settings, session string, history []entry, now time.Time) *model {
	m := &model{settings: s, session: session, now: now, readyAt: now.Add(s.readyAfter), deliveries: map[string]bool{}}
	for _, e := range history {
		m.say(e.lead, e.text)
	}
	if s.exitAfter > 0 {
		m.exitAt = now.Add(s.exitAfter)
	}
	if s.doom != "" {
		m.dieAt = now.Add(s.dieAfter)
	}
	return m
}

// busy says that a turn is running or waits for an answer.
func (m *model) busy() bool { return m.turn != nil }

// say adds a message to the visible conversation, only as much as a screen could ever need.
func (m *model) say(lead, text string) {
	if cut := len(text) - historyBytes; cut > 0 {
		for cut < len(text) && !utf8.RuneStart(text[cut]) {
			cut++
		}
		text = "…" + text[cut:]
	}
	m.history = append(m.history, entry{lead: lead, text: text})
	if n := len(m.history) - historyEntries; n > 0 {
		m.history = slices.Delete(m.history, 0, n)
	}
}

// wake is the next time at which tick has something to do; ok is false when only input can change anything.
func (m *model) wake() (at time.Time, ok bool) {
	consider := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	consider(m.exitAt)
	consider(m.dieAt)
	if !m.ready && m.doom == "" {
		consider(m.readyAt)
	}
	if m.turn != nil && m.dialog == noDialog {
		consider(m.turn.end)
		if m.turn.ask && !m.turn.asked {
			consider(m.turn.askAt)
		}
		steps := m.now.Sub(m.turn.start)/spinnerStep + 1
		consider(m.turn.start.Add(steps * spinnerStep))
	}
	return at, ok
}

// tick lets time pass.
func (m *model) tick(now time.Time) []effect {
	m.now = now
	switch {
	case !m.dieAt.IsZero() && !now.Before(m.dieAt):
		return []effect{{kind: effExit, code: 1, text: m.doom}}
	case !m.exitAt.IsZero() && !now.Before(m.exitAt):
		out := leave(m.exitCode)
		out[len(out)-1].text = m.exitMessage
		return out
	case m.doom != "":
		return nil
	}
	if !m.ready && !now.Before(m.readyAt) {
		m.ready = true
		switch {
		case m.locked:
			m.dialog = lockedDialog
		case m.trust:
			m.dialog = trustDialog
		default:
			return m.begin()
		}
	}
	return m.work()
}

// begin shows the composer for the first time and submits the prompt of the start.
func (m *model) begin() []effect {
	var out []effect
	if m.prompt != "" {
		out = m.startTurn(message{text: m.prompt})
	}
	if m.owed {
		m.owed = false
		m.dialog = permissionDialog
	}
	return out
}

// work moves the running turn on. A turn waits while a dialog is open.
func (m *model) work() []effect {
	if m.turn == nil || m.dialog != noDialog {
		return nil
	}
	if t := m.turn; t.ask && !t.asked && !m.now.Before(t.askAt) {
		t.asked = true
		m.dialog = permissionDialog
		return nil
	}
	if m.now.Before(m.turn.end) {
		return nil
	}
	lead, kind, answer := leadAgent, "assistant", fmt.Sprintf("ok (%d chars)", m.turn.runes)
	if problem, fails := problems[m.turn.fail]; fails {
		lead, kind, answer = leadInterrupt, "error", problem
	}
	m.say(lead, answer)
	out := []effect{record(kind, answer)}
	if m.turn.exit {
		return append(out, leave(m.turn.code)...)
	}
	m.turn = nil
	return append(out, m.nextTurn()...)
}

// openDialog opens a permission dialog now, or when the program is ready. A dialog that is open stays.
func (m *model) openDialog() {
	switch {
	case !m.ready || m.dialog == trustDialog:
		m.owed = true
	case m.dialog == noDialog:
		m.dialog = permissionDialog
	}
}

func (m *model) startTurn(s message) []effect {
	m.turn = newTurn(s.text, utf8.RuneCountInString(s.text), m.now, m.settings.turn)
	m.say(leadUser, s.text)
	if s.delivery != "" {
		m.deliveries[s.delivery] = true
	}
	return []effect{{kind: effRecord, line: line{Type: "user", Text: s.text, Delivery: s.delivery}}}
}

func (m *model) nextTurn() []effect {
	if len(m.queue) == 0 {
		return nil
	}
	next := m.queue[0]
	m.queue = m.queue[1:]
	return m.startTurn(next)
}

// interrupt ends the turn without an answer. Queued messages are sent next, as they are by real agents.
func (m *model) interrupt() []effect {
	m.turn = nil
	m.say(leadInterrupt, "Conversation interrupted")
	return append([]effect{record("interrupted", "")}, m.nextTurn()...)
}

// submit acts on what stands in the box.
func (m *model) submit() []effect {
	text := m.box.text()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	switch {
	case text[0] == '/':
		return m.command(text)
	case text[0] == '!':
		m.box.clear()
		m.say(leadShell, text[1:])
		return []effect{record("shell", text)}
	case m.busy():
		m.box.clear()
		m.queue = append(m.queue, message{text: text})
		return []effect{record("queued", text)}
	}
	m.box.clear()
	return m.startTurn(message{text: text})
}

// command acts on a text that starts with a slash. One that is not known, or not possible now, stays in the box.
func (m *model) command(text string) []effect {
	name := strings.Fields(text)[0]
	switch {
	case name == "/quit":
		return leave(0)
	case name == "/clear" && m.busy():
		m.say(leadAgent, "'/clear' is disabled while a task is in progress")
		return nil
	case name == "/clear":
		m.session = m.newID()
		m.box.clear()
		m.history = nil
		return []effect{{kind: effFork, text: m.session}}
	}
	m.say(leadAgent, "Unrecognized command '"+shorten(name, 40)+"'")
	return nil
}

// shorten keeps the first n runes.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
