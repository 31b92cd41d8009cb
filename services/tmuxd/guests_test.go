package main

import (
	"context"
	"os/user"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// disguised is a guest whose command would act on a terminal, and reads like words of ours.
const disguised = `exec -a "$(printf 'vi\033[2J\r(pid\302\2331),pane-%%9\342\200\256runs')" sleep 600`

// Who is told that a name is taken by guests is told who they are, in every answer that says so.
func TestGuests_AreNamedToWhoeverIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	of := r.started("", "").Incarnation
	r.ready()
	for range 4 {
		r.person("new-window", "-d", "-t", "="+r.item.Target()+":", "exec cat")
	}
	r.person("new-window", "-d", "-t", "="+r.item.Target()+":", "bash", "-c", disguised)
	r.attach("-r")
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.until("it is dead, with guests", func() bool { st := r.state(); return st.State == session.Dead && st.Flags == session.Guests })
	clients, _ := r.cmd("list-clients", "-F", "#{client_tty}") // ours has none
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func() string{
		"the state": func() string { return r.state().Detail },
		"the spawn": func() string { return r.spawn(d1, "x y").Detail },
		"the kill": func() string {
			got, err := r.Kill(r.ctx(), host.KillRequest{Item: r.item, Stamp: of.Stamp, Token: r.token()})
			if err != nil || got.Cause != host.RefusedGuests {
				t.Errorf("%+v, %v", got, err)
			}
			return got.Detail
		},
	}
	for name, ask := range tests {
		said := ask()
		panes := regexp.MustCompile(`pane (%\d+) runs "cat" \(pid (\d+)\)`).FindAllStringSubmatch(said, -1)
		if len(panes) != 3 || !strings.Contains(said, " and 2 more") || len(said) > 500 {
			t.Errorf("%s: %s", name, said)
		}
		for _, p := range panes {
			if out, _ := r.cmd("display-message", "-p", "-t", p[1], "#{pane_pid}"); strings.TrimSpace(out) != p[2] {
				t.Errorf("%s: pane %s has the process %s", name, p[1], out)
			}
		}
		if !strings.Contains(said, "; attached: "+strings.TrimSpace(clients)+" ("+me.Username+")") {
			t.Errorf("%s: %q is not told: %s", name, clients, said)
		}
	}
	// The others leave, and the one is told that would write on the screen of whoever reads it. Some releases of tmux do not tell its command.
	for _, p := range []string{"%1", "%2", "%3", "%4"} {
		r.person("kill-pane", "-t", p)
	}
	r.until("the disguised one is there alone", func() bool { return !strings.Contains(r.state().Detail, "%4") })
	said := r.state().Detail
	if strings.ContainsFunc(said, func(c rune) bool { return !unicode.IsPrint(c) }) || strings.Contains(said, `\x1b`) || !strings.Contains(said, "pane %5 ") ||
		strings.Count(said, `"`) > 2 {
		t.Errorf("%q", said)
	}
}

// A session without guests costs no question about them.
func TestGuests_AreAskedForWhereThereAreSome(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	asked := &companions{Tmux: r.Tmux}
	r.Tmux = asked
	r.started("", "")
	r.ready()
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	if asked.times != 0 {
		t.Errorf("asked %d times", asked.times)
	}
	r.person("split-window", "-d", "-t", "%0", "exec cat")
	if st := r.state(); st.Flags != session.Guests || asked.times != 1 {
		t.Errorf("asked %d times: %+v", asked.times, st)
	}
	asked.silent = true
	if st := r.state(); st.Flags != session.Guests || !strings.Contains(st.Detail, "pane %1 (pid ") {
		t.Errorf("%+v", st)
	}
}

// companions is the rig's tmux, with a count of the questions about guests.
type companions struct {
	host.Tmux
	times  int
	silent bool
}

func (c *companions) Company(ctx context.Context, target string) (host.Company, error) {
	if c.times++; c.silent {
		return host.Company{}, host.ErrNoAnswer
	}
	return c.Tmux.Company(ctx, target)
}
