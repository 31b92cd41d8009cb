package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/stack"
)

// moment is when a person acts, seen from a delivery.
type moment struct {
	name string
	// place is where tmuxd is stopped for the act; empty for before the delivery.
	place string
	// killed says that tmuxd never goes on from there.
	killed bool
}

// typed says whether the delivery's text stands in the composer at this moment.
func (m moment) typed() bool { return m.place != "" && m.place != "tmuxd.paste.intended" }

var moments = []moment{
	{"person first", "", false},
	// What happens between the last look and the act, only the guard inside tmux sees.
	{"person at the paste", "tmuxd.paste.intended", false},
	{"person at the submit", "tmuxd.paste.submitting", false},
	{"person and kill", "tmuxd.paste.journalled", true},
}

// act is what a person does at an agent's session, or what befalls it there.
type act struct {
	name string
	do   func(*person)
	// waits is in the reason for which the delivery waits until undo has ended the act; empty for one that it does not wait for.
	waits string
	undo  func(*person)
	// ends says that the agent's life ends by it: it comes back with its conversation, and with the delivery.
	ends bool
}

// guests run in a person's own panes and show what is typed there, a lone CR too.
const guests = "stty -icrnl; exec cat -v"

var acts = []act{
	{name: "splits the window", do: func(p *person) { p.tmux("split-window", "-t", p.pane, guests) }},
	{name: "zooms another pane", do: func(p *person) {
		p.tmux("split-window", "-t", p.pane, guests)
		p.tmux("resize-pane", "-Z", "-t", p.tmux("display-message", "-p", "-t", "="+p.session.GetTarget()+":", "#{pane_id}"))
	}},
	{name: "renames the session", do: func(p *person) { p.tmux("rename-session", "-t", "="+p.session.GetTarget()+":", "mine") }},
	{name: "renames the window", do: func(p *person) { p.tmux("rename-window", "-t", p.pane, "mine") }},
	{name: "is in copy mode", do: func(p *person) { p.tmux("copy-mode", "-t", p.pane) }},
	{name: "watches", do: func(p *person) { p.attach("-r") }},
	{name: "attaches and types", waits: "draft", do: func(p *person) {
		p.attach()
		p.press("-l", "@")
		p.shows("@", "the key") // what is read and not drawn yet no guard can see
	}, undo: func(p *person) { p.press("BSpace") }},
	{name: "leaves a draft", waits: "draft", do: func(p *person) {
		p.tmux("send-keys", "-t", p.pane, "-l", draft)
		p.shows(draft, "the draft")
	}, undo: func(p *person) {
		if p.moment.typed() { // it stands behind the delivery's text
			p.tmux("send-keys", "-t", p.pane, "-N", fmt.Sprint(len(draft)), "BSpace")
			return
		}
		p.tmux("send-keys", "-t", p.pane, "Enter")
		p.said = append(p.said, draft)
	}},
	{name: "is asked by a dialog", waits: "dialog", do: func(p *person) {
		p.c.signal(p.agent(), syscall.SIGUSR1)
		p.shows("Would you like to run", "the dialog")
	}, undo: func(p *person) {
		p.tmux("send-keys", "-t", p.pane, "3")
		p.refused++
	}},
	{name: "starts the pane again", ends: true, do: func(p *person) { p.tmux("respawn-pane", "-k", "-t", p.pane) }},
	// The cursor stands where the agent's stood: only the process tells who lives there.
	{name: "takes the pane", ends: true, waits: "session-occupied", do: func(p *person) {
		cursor := p.tmux("display-message", "-p", "-t", p.pane, "#{e|+:#{cursor_y},1};#{e|+:#{cursor_x},1}")
		p.tmux("respawn-pane", "-k", "-t", p.pane, "printf '\\033["+cursor+"H'; "+guests)
		p.c.until("the cursor is there", func() bool {
			return p.tmux("display-message", "-p", "-t", p.pane, "#{e|+:#{cursor_y},1};#{e|+:#{cursor_x},1}") == cursor
		})
	}, undo: func(p *person) { p.tmux("kill-pane", "-t", p.pane) }},
	{name: "kills the pane", ends: true, do: func(p *person) { p.tmux("kill-pane", "-t", p.pane) }},
	// The other session keeps the server: on tmux 3.3a a paste into what is left of the pane would end it.
	{name: "finds the agent dead", ends: true, do: func(p *person) {
		p.tmux("new-session", "-d", "-s", "bystander", guests)
		p.c.killAgent(p.session)
		p.c.until("the pane is dead", func() bool { return p.tmux("display-message", "-p", "-t", p.pane, "#{pane_dead}") == "1" })
	}},
	{name: "loses the socket", do: func(p *person) {
		if err := os.Remove(p.session.GetSocketPath()); err != nil {
			p.c.t.Error(err)
		}
	}},
}

// draft is so short that the agent does not take it for a paste.
const draft = "h?"

// person is somebody at the session of one item.
type person struct {
	c       *crashing
	number  int
	session *dispatcherv1.Session
	moment  moment
	// pane is the agent's; terminal is the socket of what stands for the person's own terminal.
	pane, terminal string
	said           []string
	refused        int
}

func personSteps(m moment) []step {
	var steps []step
	for _, a := range acts {
		steps = append(steps, step{a.name, func(c *crashing) verdict { return c.acted(a, m) }})
	}
	return steps
}

// acted has a person act at one moment of a delivery.
func (c *crashing) acted(a act, m moment) verdict {
	c.t.Helper()
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	before := c.stateOf(number)
	p := &person{c: c, number: number, session: c.session(number), moment: m, pane: before.GetIncarnation().GetPaneId()}
	c.until("the first turn is over", func() bool { return p.tmux("display-message", "-p", "-t", p.pane, "#{pane_title}") == "fakeagent" })
	var own map[int]string
	if m.place == "" {
		a.do(p)
		own = p.own()
		p.speak()
	} else {
		marker := c.arm(m.place + "=stop")
		p.speak()
		pid := c.reached(marker, "tmuxd")
		a.do(p)
		own = p.own()
		if m.killed {
			c.kill("tmuxd")
			c.up()
		} else {
			c.signal(pid, syscall.SIGCONT)
		}
	}
	var v verdict
	if a.waits != "" {
		p.waits(a.waits)
		v.add(p.harm(own))
		a.undo(p)
		own = p.own()
		p.retry()
	}
	if a.ends && m.place != "" && !m.killed {
		c.tries = 1 // a paste under way that is answered "the session has ended" is an answered failure
	}
	rows := c.ended(number, 3)
	if !a.ends {
		v.add(c.same(number, before))
	}
	v.add(p.harm(own))
	v.add(c.weigh(judged{number: number, conversation: p.session.GetConversationId(), rows: rows, said: p.said, refused: p.refused}))
	return v
}

// speak writes what is to be delivered.
func (p *person) speak() {
	p.c.t.Helper()
	p.c.say(p.number, "This meets a person.")
	p.c.say(p.number, "And this comes after it.")
	p.c.pollNow()
}

// tmux does something at the session's server, as a person would, and returns what was printed.
func (p *person) tmux(args ...string) string {
	p.c.t.Helper()
	return p.at(p.session.GetSocketPath(), append([]string{"-N"}, args...)...)
}

func (p *person) at(socket string, args ...string) string {
	p.c.t.Helper()
	out, err := exec.CommandContext(p.c.ctx, "tmux", append([]string{"-S", socket}, args...)...).CombinedOutput()
	if err != nil {
		p.c.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// attach lets the person in, in a terminal: a pane of another tmux server.
func (p *person) attach(flags ...string) {
	p.c.t.Helper()
	p.terminal = filepath.Join(p.c.Dir, "terminal-"+random())
	inside := `unset TMUX; exec tmux -N -S "$SESSION_SOCKET" attach-session ` + strings.Join(flags, " ")
	cmd := exec.CommandContext(p.c.ctx, "tmux", "-S", p.terminal, "-f", "/dev/null", "new-session", "-d", "-P", "-F", "#{pid}",
		"-x", "200", "-y", "50", inside)
	// Not as an argument: a server that names the socket there is taken for the session's.
	cmd.Env = append(os.Environ(), "SESSION_SOCKET="+p.session.GetSocketPath())
	out, err := cmd.Output()
	var pid int
	if _, scanErr := fmt.Sscan(string(out), &pid); err != nil || scanErr != nil {
		p.c.t.Fatalf("%v: %s", err, out)
	}
	p.c.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGTERM) })
	p.c.until("the person is attached", func() bool {
		return strings.Contains(p.tmux("list-clients", "-F", "#{client_control_mode}"), "0")
	})
}

// press has the person press keys in that terminal.
func (p *person) press(keys ...string) {
	p.c.t.Helper()
	p.at(p.terminal, append([]string{"send-keys"}, keys...)...)
}

// shows waits until the agent's pane shows a text.
func (p *person) shows(text, what string) {
	p.c.t.Helper()
	p.c.until(what+" shows", func() bool { return strings.Contains(p.tmux("capture-pane", "-p", "-t", p.pane), text) })
}

func (p *person) agent() int {
	p.c.t.Helper()
	agents, _ := p.c.agents(p.session)
	if len(agents) != 1 {
		p.c.t.Fatalf("%s has the agents %v, not one", p.session.GetWorkItem(), agents)
	}
	return agents[0]
}

// waits waits until the delivery is shown as waiting for the person, or as dropped because of one.
func (p *person) waits(reason string) {
	p.c.t.Helper()
	dropped := pollerv1.LedgerState_LEDGER_STATE_DROPPED
	var row *pollerv1.LedgerEntry
	p.c.soon("the event waits for the person: "+reason, func() bool {
		rows, err := p.c.Events(p.c.ctx, stack.Item(p.number))
		if err != nil || len(rows) < 3 {
			return false
		}
		row = rows[1]
		if !strings.Contains(row.GetReason()+" "+row.GetDetail(), reason) {
			return false
		}
		// One that was dropped holds back none: the next is dropped as well.
		return row.GetState() == pollerv1.LedgerState_LEDGER_STATE_HELD || row.GetState() == dropped && rows[2].GetState() == dropped
	})
	p.c.t.Logf("%v %s: %s", row.GetState(), row.GetReason(), row.GetDetail())
}

// retry asks again for what was dropped meanwhile, as an operator does once the name is free.
func (p *person) retry() {
	p.c.t.Helper()
	rows, err := p.c.Events(p.c.ctx, stack.Item(p.number))
	if err != nil {
		p.c.t.Fatal(err)
	}
	for _, r := range rows {
		if r.GetState() == pollerv1.LedgerState_LEDGER_STATE_DROPPED {
			if _, err := p.c.Poller.Retry(p.c.ctx, &pollerv1.RetryRequest{DeliveryId: r.GetDeliveryId()}); err != nil {
				p.c.t.Error(err)
			}
		}
	}
}

// own are the panes of the person's, by their processes.
func (p *person) own() map[int]string {
	p.c.t.Helper()
	out, err := exec.CommandContext(p.c.ctx, "tmux", "-N", "-S", p.session.GetSocketPath(), "list-panes", "-a", "-F",
		"#{pane_pid} #{pane_id} #{pane_start_command}").Output()
	if err != nil {
		return nil // there is no server, or no way to it
	}
	panes := map[int]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if pid, _ := strconv.Atoi(f[0]); !strings.Contains(line, "muxpost-exec") && !gone(pid) {
			panes[pid] = f[1]
		}
	}
	return panes
}

// harm counts what was typed into the person's panes, where nothing ever is, and those of before that are gone.
func (p *person) harm(before map[int]string) (v verdict) {
	p.c.t.Helper()
	now := p.own()
	for pid, pane := range before {
		if gone(pid) {
			v.harmed++
			p.c.t.Errorf("the pane %s of the person's is gone", pane)
		} else if now[pid] == "" {
			continue
		} else if screen := p.tmux("capture-pane", "-p", "-t", pane); screen != "" {
			v.misplaced++
			p.c.t.Errorf("%s shows %q", pane, screen)
		}
	}
	return v
}
