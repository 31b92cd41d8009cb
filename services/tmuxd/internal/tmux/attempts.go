package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// maxOutput is how much of what a pane showed is kept, in bytes, and outputLines how many lines are read for it.
	maxOutput   = 64 << 10
	outputLines = 5000
)

// Attempts are the tmux servers of attempts: the same servers and guards, under the names of attempts.
type Attempts struct {
	c *Client
}

// Attempts returns that view of the client.
func (c *Client) Attempts() Attempts { return Attempts{c} }

// Launch makes the tmux server of an attempt, with its one pane.
func (a Attempts) Launch(ctx context.Context, l attempt.Launch) (attempt.Pane, error) {
	made, err := a.c.Create(ctx, host.NewSession{Target: l.Target, Argv: l.Argv, Dir: l.Dir, Width: l.Width, Height: l.Height, Stamp: l.Stamp,
		Item: l.ID, Harness: "task", Conversation: l.ID, Generation: l.Generation, Token: l.Token})
	if err != nil {
		return attempt.Pane{}, translated(err)
	}
	return attempt.Pane{Stamp: l.Stamp, Generation: l.Generation, SessionID: made.SessionID, ID: made.Pane, Wrapper: attempt.Process{Pid: made.Pid},
		Server: attempt.Process{Pid: made.Server.Pid}, ServerStarted: made.Server.Started}, nil
}

// translated is an error in the words of attempts.
func translated(err error) error {
	if errors.Is(err, host.ErrNoAnswer) {
		return fmt.Errorf("%w: %w", attempt.ErrNoAnswer, err)
	}
	return err
}

// Look says what is to be seen of the pane that carries a stamp.
func (a Attempts) Look(ctx context.Context, target, stamp string) (attempt.Seen, error) {
	if answer := a.c.Dial(target); answer != session.Answered {
		return attempt.Seen{Answer: answer}, nil
	}
	v, err := a.c.Observe(ctx, target)
	if err != nil {
		return attempt.Seen{}, translated(err)
	}
	if !v.PanesRead {
		return attempt.Seen{}, nil
	}
	gone := attempt.Seen{Answer: session.Answered, Pane: task.Gone}
	for _, p := range v.Panes {
		if p.Stamp != stamp || p.ID != p.AgentPane {
			continue
		}
		if strconv.Itoa(p.Pid) != p.AgentPid {
			gone.Respawned = true // which keeps everything but the pid
			continue
		}
		out := attempt.Seen{Answer: session.Answered, Pane: task.Alive, Found: attempt.Pane{Stamp: stamp, Generation: v.Generation,
			SessionID: p.SessionID, ID: p.ID, Wrapper: attempt.Process{Pid: p.Pid}, Server: attempt.Process{Pid: v.Server.Pid},
			ServerStarted: v.Server.Started}}
		if p.Dead {
			out.Pane, out.End = task.Dead, endOf(p)
		}
		return out, nil
	}
	return gone, nil
}

// endOf says what tmux reports of a dead pane's process. It can have missed it.
func endOf(p host.Pane) task.End {
	if n, err := strconv.Atoi(p.Signal); err == nil && n > 0 {
		return task.End{How: task.BySignal, N: n}
	}
	if n, err := strconv.Atoi(p.Status); err == nil {
		return task.End{How: task.ByCode, N: n}
	}
	return task.End{}
}

// Output returns the last of what the pane showed. Rows that the terminal wrapped are joined.
func (a Attempts) Output(ctx context.Context, target string, p attempt.Pane) (out attempt.Output, ok bool, err error) {
	n := Nonce()
	g := guardOf(p)
	r, err := a.c.look(ctx, "Output", target, n, "display-message -p -t "+word(g)+" "+"'C|"+n+"|"+whoseFields+"|#{history_size}' ; display-message -p 'B|"+n+
		"' ; "+shot(" -J -S -"+strconv.Itoa(outputLines), g, n)+" ; display-message -p 'END|"+n+"'")
	if err != nil {
		return out, false, translated(err)
	}
	f, found := r.find("C", n)
	switch _, whole := r.find(tagEnd, n); {
	case found && !isOf(f, g):
		return out, false, nil
	case !whole || len(f) != 4:
		return out, false, translated(r.silent())
	}
	rows := r.shot("B|"+n, tagEnd+"|"+n)
	for i, row := range rows {
		rows[i] = shown(row)
	}
	above, _ := strconv.Atoi(f[3])
	out.Text, out.Cut = tail(rows)
	out.Cut = out.Cut || r.cut || above > outputLines
	return out, true, nil
}

// shown is a row of a screen without what a terminal would act on, and without blanks at its end.
func shown(row string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7F && r <= 0x9F {
			return -1
		}
		return r
	}, strings.ToValidUTF8(row, "?")), " ")
}

// tail joins the last rows that fit, without blank ones at the end. cut is true when there are more.
func tail(rows []string) (text string, cut bool) {
	text = strings.TrimRight(strings.Join(rows, "\n"), "\n")
	if len(text) <= maxOutput {
		return text, false
	}
	text = text[len(text)-maxOutput:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text, true
}

// Free ends the attempt's session, and with it its server, if every pane of it is dead.
func (a Attempts) Free(ctx context.Context, target string, p attempt.Pane) (bool, error) {
	done, err := a.c.Remove(ctx, target, host.Removal{Stamp: p.Stamp, Generation: p.Generation, Dead: true})
	return done, translated(err)
}

func guardOf(p attempt.Pane) host.Guard {
	return host.Guard{Stamp: p.Stamp, Generation: p.Generation, Session: p.SessionID, Pane: p.ID, Pid: p.Wrapper.Pid}
}

// Tidy removes what a server leaves behind that is gone: its socket, and our end of it. The names of attempts are used once.
func (a Attempts) Tidy(target string) {
	a.c.forget(target)
	a.c.Unlink(target)
}

// Nudge has a server look after its children.
func (a Attempts) Nudge(serverPid int) { a.c.Nudge(host.Server{Pid: serverPid}) }

// Reopen has a server make its socket again.
func (a Attempts) Reopen(serverPid int) { a.c.Reopen(host.Server{Pid: serverPid}) }
