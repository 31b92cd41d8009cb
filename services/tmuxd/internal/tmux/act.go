package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Create makes a session, and the server for it where there is none. This is the one command that may start a server. Retention and
// everything the session says of itself are set in the same list, so that an agent that ends at once leaves a readable pane. Where the server is
// then not as we rely on it, the same list ends the session again.
func (c *Client) Create(ctx context.Context, s host.NewSession) (host.Created, error) {
	if !session.ValidDeliveryID(s.Stamp) || len(s.Argv) < 2 {
		// With one word tmux would run a shell.
		return host.Created{}, errors.New("a session needs a stamp and a program with at least one argument")
	}
	n, t := Nonce(), "="+s.Target+":"
	args := []string{"-S", c.Socket(s.Target), "-f", c.conf, "-u",
		"new-session", "-d", "-P", "-F", "OK|" + n + "|#{session_name}|#{session_id}|#{pane_id}|#{pane_pid}|#{pid}|#{start_time}|#{version}",
		"-s", s.Target, "-x", strconv.Itoa(s.Width), "-y", strconv.Itoa(s.Height), "-c", argument(escapeFormat(s.Dir)), "--"}
	for _, arg := range s.Argv {
		if strings.HasSuffix(arg, ";") {
			return host.Created{}, errors.New("an argument that ends in ; would end the command")
		}
		args = append(args, arg)
	}
	set := func(flags, name, value string) { args = append(args, ";", "set-option", flags, t, name, value) }
	set("-wt", "remain-on-exit", "on")
	// A person who sets this for all sessions would lose the agent when its last client leaves, and our own leave when they are idle.
	set("-t", "destroy-unattached", "off")
	set("-t", optStamp, s.Stamp)
	set("-t", optItem, s.Item)
	set("-pt", optStamp, s.Stamp)
	set("-pt", optItem, s.Item)
	set("-pt", optHarness, s.Harness)
	set("-pt", optConversation, s.Conversation)
	set("-pt", optRing, s.Ring.String())
	set("-pt", optFence, strconv.FormatInt(s.Token, 10))
	set("-pFt", optPane, "#{pane_id}")
	set("-pFt", optPid, "#{pane_pid}")
	if s.Title != nil {
		set("-pt", optSays, says(*s.Title))
		args = append(args, ";", "set-hook", "-pt", t, "pane-title-changed", noting(*s.Title))
	}
	args = append(args, ";", "set-option", "-s", optGeneration, s.Generation)
	args = append(append(args, ";"), asserted(s.Target, n)...)
	l := c.lines.get(s.Target)
	if err := l.take(ctx); err != nil {
		return host.Created{}, err
	}
	defer l.give()
	if err := l.vacate(ctx); err != nil {
		return host.Created{}, err
	}
	l.mu.Lock()
	l.anyone = false
	l.mu.Unlock()
	bin, err := c.program(ctx, s.Target)
	if err != nil {
		return host.Created{}, err
	}
	if bin != c.bin {
		args = append([]string{"-N"}, args...) // a server that starts is of the configured release
	}
	r, err := c.exec(ctx, "Create", c.launch, bin, args)
	if err != nil {
		return host.Created{}, err
	}
	f, ok := r.find("OK", n)
	_, whole := r.find("END", n)
	values, bad := r.find(tagBad, n)
	switch {
	case bad:
		return host.Created{}, unlike(values)
	case ok && whole && len(f) == 7 && f[0] == s.Target:
		out := host.Created{Server: parseServer(f[4], f[5], f[6]), SessionID: f[1], Pane: f[2]}
		out.Pid, _ = strconv.Atoi(f[3])
		return out, nil
	case ok:
		return host.Created{}, fmt.Errorf("%w to the end: %s", host.ErrNoAnswer, printable(r.stderr))
	case strings.Contains(r.stderr, "duplicate session"):
		return host.Created{}, host.ErrDuplicate
	case r.stderr != "":
		return host.Created{}, fmt.Errorf("tmux would not make the session: %s", printable(r.stderr))
	}
	return host.Created{}, host.ErrNoAnswer
}

// argument writes a text as an argument of tmux's command line, where one that ends in ; would end the command.
func argument(s string) string {
	if before, ends := strings.CutSuffix(s, ";"); ends {
		return before + `\;`
	}
	return s
}

// Paste puts text into the agent's pane, as a bracketed paste where the program asked for that, and records the phase pasted, in
// one guarded list, only while the screen is as it was looked at, and the delivery has no phase yet (or, with p.Again, is pasted).
func (c *Client) Paste(ctx context.Context, target string, g host.Guard, p host.Text) (host.Ruling, error) {
	buffer := "mux-" + p.ID + "-" + Nonce()
	phase := not(hasAny(p.ID))
	if p.Again {
		phase = hasPhase(p.ID, session.Pasted)
	}
	load, remove, err := c.load(buffer, p.Typed)
	if err != nil {
		return host.Unruled, fmt.Errorf("%w: %w", host.ErrNoAnswer, err)
	}
	defer remove()
	return c.guarded(ctx, "Paste", target, act{before: load, guard: g, conditions: condition(g, append(unanswered(p.Look), phase)...), look: &p.Look,
		do:   leaveModes(g) + "paste-buffer -p -r -d -b " + buffer + " -t " + word(g) + " ; " + record(g, p.Ring),
		undo: "delete-buffer -b " + buffer + " ; "})
}

// Submit sends a lone CR and records the phase submitted, in one guarded list that looks for dialogs and the cursor once more. It is
// done only from the phase from. The CR is pasted: keys are read by copy mode and refused to read-only clients, a paste is not.
func (c *Client) Submit(ctx context.Context, target string, g host.Guard, id string, from session.Phase, l host.Look,
	ring session.Ring) (host.Ruling, error) {
	buffer := "mux-cr-" + Nonce()
	return c.guarded(ctx, "Submit", target, act{guard: g, conditions: condition(g, append(unanswered(l), hasPhase(id, from))...), look: &l,
		do: leaveModes(g) + "set-buffer -b " + buffer + ` "\r" ; paste-buffer -r -d -b ` + buffer + " -t " + word(g) + " ; " + record(g, ring)})
}

// Intend writes the ring under the whole guard of a mutation, and types nothing: what follows it goes another way than through the pane.
func (c *Client) Intend(ctx context.Context, target string, g host.Guard, id string, from session.Phase, ring session.Ring) (host.Ruling, error) {
	phase := hasPhase(id, from)
	if from == session.None {
		phase = not(hasAny(id))
	}
	return c.guarded(ctx, "Intend", target, act{guard: g, conditions: condition(g, phase), do: record(g, ring)})
}

// Record writes the ring, if the delivery's phase is still from. It types nothing.
func (c *Client) Record(ctx context.Context, target string, g host.Guard, id string, from session.Phase, ring session.Ring) (host.Ruling, error) {
	return c.guarded(ctx, "Record", target, act{guard: g, do: record(g, ring),
		conditions: all(identity(g), equal(optGeneration, g.Generation), hasPhase(id, from))})
}

// leaveModes ends copy mode and its like: a paste into one arrives without its brackets.
func leaveModes(g host.Guard) string { return "copy-mode -q -t " + word(g) + " ; " }

// record is the part of a list that writes what happened: the ring and the token under which it happened.
func record(g host.Guard, ring session.Ring) string {
	out := "set-option -p -t " + word(g) + " " + optRing + " " + quote(ring.String())
	if g.Token > 0 {
		out += " ; set-option -p -t " + word(g) + " " + optFence + " " + strconv.FormatInt(g.Token, 10)
	}
	return out
}

// Advance gives the server a new generation. Once it has answered, no act of an earlier generation can run any more.
func (c *Client) Advance(ctx context.Context, target, generation string) error {
	n := Nonce()
	r, err := c.ask(ctx, "Advance", target, n, "set-option -s "+optGeneration+" "+quote(generation)+" ; display-message -p 'OK|"+n+
		"|#{"+optGeneration+"}'")
	if err != nil {
		return err
	}
	if f, ok := r.find(tagOK, n); !ok || len(f) != 1 || f[0] != generation {
		return r.silent()
	}
	return nil
}

// Nudge makes the server look after its children: on Debian's 3.3a the end of one in eight killed programs is missed, until the next
// child ends. The signal says nothing that is not true, so it is harmless at any time.
func (c *Client) Nudge(server host.Server) {
	if server.Pid > 0 {
		_ = syscall.Kill(server.Pid, syscall.SIGCHLD)
	}
}

// Reopen makes the server make its socket again, after somebody (a cleaner of temporary files) removed it.
func (c *Client) Reopen(server host.Server) {
	if server.Pid > 0 {
		_ = syscall.Kill(server.Pid, syscall.SIGUSR1)
	}
}

// Unread returns how many bytes the program of a pane has not read yet, of those that the terminal holds. ok is false when it cannot
// be told.
func (c *Client) Unread(tty string) (n int, ok bool) {
	f, err := os.OpenFile(tty, os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	n, err = unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	return n, err == nil
}

// Stopped says whether a program whose terminal this is was stopped: it may hold what it read and show nothing of it. What cannot be
// read counts as not stopped.
func (c *Client) Stopped(tty string) bool {
	var st unix.Stat_t
	if err := unix.Stat(tty, &st); err != nil {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields, err := wrapper.StatFields(pid) // state, parent, group, session, terminal
		if err != nil || fields[0] != "T" && fields[0] != "t" {
			continue
		}
		if n, err := strconv.ParseUint(fields[4], 10, 64); err == nil && sameTerminal(n, st.Rdev) {
			return true
		}
	}
	return false
}

// sameTerminal compares a terminal as /proc numbers it with a device number.
func sameTerminal(n, dev uint64) bool {
	major, minor := uint32(n>>8&0xfff), uint32(n&0xff|n>>12&0xfff00)
	return major == unix.Major(dev) && minor == unix.Minor(dev)
}
