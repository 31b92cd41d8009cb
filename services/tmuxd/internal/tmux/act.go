package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/session"
)

// ErrDuplicate means that tmux said that the session exists. It is text, and decides only whether to look again.
var ErrDuplicate = errors.New("tmux says that a session of this name exists")

// NewSession is a session to be made.
type NewSession struct {
	Target string
	// Argv is the program of its pane: run without a shell.
	Argv []string
	// Dir is where a person's further panes start.
	Dir           string
	Width, Height int
	// What the session will say of itself.
	Stamp, Item, Harness, Conversation, Generation string
	Ring                                           session.Ring
	Token                                          int64
}

// Created is a session that was made.
type Created struct {
	Server    Server
	SessionID string
	Pane      string
	Pid       int
}

// Create makes a session, and the server for it where there is none. This is the one command that may start a server. Retention and
// everything the session says of itself are set in the same list, so that an agent that ends at once leaves a readable pane.
func (c *Client) Create(ctx context.Context, socket string, s NewSession) (Created, error) {
	if !session.ValidDeliveryID(s.Stamp) || len(s.Argv) < 2 {
		// With one word tmux would run a shell.
		return Created{}, errors.New("a session needs a stamp and a program with at least one argument")
	}
	n, t := Nonce(), "="+s.Target+":"
	args := []string{"-S", socket, "-f", c.conf, "-u",
		"new-session", "-d", "-P", "-F", "OK|" + n + "|#{session_name}|#{session_id}|#{pane_id}|#{pane_pid}|#{pid}|#{start_time}|#{version}",
		"-s", s.Target, "-x", strconv.Itoa(s.Width), "-y", strconv.Itoa(s.Height), "-c", escapeFormat(s.Dir), "--"}
	for _, arg := range s.Argv {
		if strings.HasSuffix(arg, ";") {
			return Created{}, errors.New("an argument that ends in ; would end the command")
		}
		args = append(args, arg)
	}
	set := func(flags, name, value string) { args = append(args, ";", "set-option", flags, t, name, value) }
	set("-wt", "remain-on-exit", "on")
	set("-t", optStamp, s.Stamp)
	set("-t", optItem, s.Item)
	set("-t", optHarness, s.Harness)
	set("-t", optConversation, s.Conversation)
	set("-t", optRing, s.Ring.String())
	set("-t", optFence, strconv.FormatInt(s.Token, 10))
	set("-Ft", optPane, "#{pane_id}")
	set("-Ft", optPid, "#{pane_pid}")
	args = append(args, ";", "set-option", "-s", optGeneration, s.Generation, ";", "display-message", "-p", "END|"+n)
	r, err := c.exec(ctx, "Create", "", args)
	if err != nil {
		return Created{}, err
	}
	f, ok := r.find("OK", n)
	_, whole := r.find("END", n)
	switch {
	case ok && whole && len(f) == 7 && f[0] == s.Target:
		out := Created{Server: parseServer(f[4], f[5], f[6]), SessionID: f[1], Pane: f[2]}
		out.Pid, _ = strconv.Atoi(f[3])
		return out, nil
	case ok:
		return Created{}, fmt.Errorf("%w to the end: %s", errNoAnswer, printable(r.stderr))
	case strings.Contains(r.stderr, "duplicate session"):
		return Created{}, ErrDuplicate
	case r.stderr != "":
		return Created{}, fmt.Errorf("tmux would not make the session: %s", printable(r.stderr))
	}
	return Created{}, errNoAnswer
}

// Paste puts text into the agent's pane, as a bracketed paste where the program asked for that, and records the phase pasted, in
// one guarded list. The text travels on standard input: a list whose client is killed in between never runs. It is done only if the
// delivery has no phase yet, or again is true and its phase is pasted. done is false when the guard refused.
func (c *Client) Paste(ctx context.Context, socket string, g Guard, id, text string, again bool, ring session.Ring) (done bool, err error) {
	n := Nonce()
	buffer := "mux-" + id + "-" + n
	phase := not(hasAny(id))
	if again {
		phase = hasPhase(id, session.Pasted)
	}
	r, err := c.run(ctx, "Paste", socket, text, "load-buffer", "-b", buffer, "-", ";",
		"if-shell", "-F", "-t", g.Pane, g.condition(phase),
		"copy-mode -q -t "+g.Pane+" ; paste-buffer -p -r -d -b "+buffer+" -t "+g.Pane+" ; "+record(g, ring)+" ; display-message -p 'OK|"+n+"'",
		"delete-buffer -b "+buffer+" ; display-message -p 'NO|"+n+"'")
	return r.verdict(n, err)
}

// Look is what must show on the screen for a submit.
type Look struct {
	// Dialogs are patterns (POSIX extended) of which no row may match one.
	Dialogs []string
	// DialogTitles are beginnings that the pane's title may not have.
	DialogTitles []string
}

// Submit sends a lone CR and records the phase submitted, in one guarded list that looks for dialogs and the cursor once more. It is
// done only from the phase from. The CR is pasted: keys are read by copy mode and refused to read-only clients, a paste is not.
func (c *Client) Submit(ctx context.Context, socket string, g Guard, id string, from session.Phase, l Look, ring session.Ring) (bool, error) {
	n := Nonce()
	buffer := "mux-cr-" + n
	conditions := []string{hasPhase(id, from), equal("cursor_flag", "1")}
	for _, d := range l.Dialogs {
		conditions = append(conditions, not(shows(d)))
	}
	for _, t := range l.DialogTitles {
		conditions = append(conditions, not(titleHas(t)))
	}
	r, err := c.run(ctx, "Submit", socket, "",
		"if-shell", "-F", "-t", g.Pane, g.condition(conditions...),
		"copy-mode -q -t "+g.Pane+" ; set-buffer -b "+buffer+` "\r" ; paste-buffer -r -d -b `+buffer+" -t "+g.Pane+" ; "+record(g, ring)+
			" ; display-message -p 'OK|"+n+"'",
		"display-message -p 'NO|"+n+"'")
	return r.verdict(n, err)
}

// Record writes the ring, if the delivery's phase is still from. It types nothing.
func (c *Client) Record(ctx context.Context, socket string, g Guard, id string, from session.Phase, ring session.Ring) (bool, error) {
	n := Nonce()
	r, err := c.run(ctx, "Record", socket, "",
		"if-shell", "-F", "-t", g.Pane, all(g.identity(), equal(optGeneration, g.Generation), hasPhase(id, from)),
		record(g, ring)+" ; display-message -p 'OK|"+n+"'", "display-message -p 'NO|"+n+"'")
	return r.verdict(n, err)
}

// record is the part of a list that writes what happened: the ring and the token under which it happened.
func record(g Guard, ring session.Ring) string {
	out := "set-option -t " + g.Pane + " " + optRing + " " + quote(ring.String())
	if g.Token > 0 {
		out += " ; set-option -t " + g.Pane + " " + optFence + " " + strconv.FormatInt(g.Token, 10)
	}
	return out
}

// Advance gives the server a new generation. Once it has answered, no act of an earlier generation can run any more.
func (c *Client) Advance(ctx context.Context, socket, generation string) error {
	n := Nonce()
	r, err := c.run(ctx, "Advance", socket, "", "set-option", "-s", optGeneration, generation, ";", "display-message", "-p",
		"OK|"+n+"|#{"+optGeneration+"}")
	if err != nil {
		return err
	}
	if f, ok := r.find("OK", n); !ok || len(f) != 1 || f[0] != generation {
		return r.silent()
	}
	return nil
}

// Clear ends a session whose incarnation was seen dead, if inside the server it still is that one and every pane of the session is
// dead. done is false when the guard refused.
func (c *Client) Clear(ctx context.Context, socket, target string, g Guard) (done bool, err error) {
	n, t := Nonce(), "="+target+":"
	everyPaneDead := "#{==:#{m:*0*,#{W:#{P:#{pane_dead}}}},0}"
	r, err := c.run(ctx, "Clear", socket, "",
		"if-shell", "-F", "-t", t, all(equal("session_name", target), equal(optStamp, g.Stamp), equal(optGeneration, g.Generation),
			"#{e|<=:#{"+optFence+"},"+strconv.FormatInt(g.Token, 10)+"}", everyPaneDead),
		// The answer is printed first: with its last session the server may be gone before it could say anything.
		"display-message -p 'OK|"+n+"' ; kill-session -t '"+t+"'", "display-message -p 'NO|"+n+"'")
	return r.verdict(n, err)
}

// LastLines returns the last lines that show in a pane of this incarnation, alive or dead.
func (c *Client) LastLines(ctx context.Context, socket string, g Guard, count int) []string {
	s, ok, err := c.Capture(ctx, socket, g)
	if err != nil || !ok {
		return nil
	}
	rows := s.Rows
	for len(rows) > 0 && strings.TrimSpace(rows[len(rows)-1]) == "" {
		rows = rows[:len(rows)-1]
	}
	rows = rows[max(0, len(rows)-count):]
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = strings.TrimRight(row, " ")
	}
	return out
}

// verdict reads the answer of a guarded list.
func (r reply) verdict(n string, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	if _, ok := r.find("OK", n); ok {
		return true, nil
	}
	if _, no := r.find("NO", n); no {
		return false, nil
	}
	return false, r.silent()
}
