package e2e

import (
	"syscall"
	"time"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/stack"
)

// frozenSteps let a tmux server stop answering, before a delivery or in the middle of one, until the time of the delivery is up; then it
// wakes, with what was sent to it still in its socket.
func frozenSteps() []step {
	freeze := func(place string, killed bool) func(*crashing) verdict {
		return func(c *crashing) verdict { return c.frozen(place, killed) }
	}
	return []step{
		{"before", freeze("", false)},
		{"tmuxd.paste.intended", freeze("tmuxd.paste.intended", false)},
		{"tmuxd.paste.submitting", freeze("tmuxd.paste.submitting", false)},
		{"tmuxd.paste.submitting, and tmuxd dies", freeze("tmuxd.paste.submitting", true)},
	}
}

// frozen stops the server when a delivery has come to a place; with none, before it begins. tmuxd goes on then, or is killed.
func (c *crashing) frozen(place string, killed bool) verdict {
	c.t.Helper()
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	session, before := c.session(number), c.stateOf(number)
	_, servers := c.agents(session)
	if len(servers) != 1 {
		c.t.Fatalf("the tmux servers are %v", servers)
	}
	server := servers[0]
	var marker string
	if place != "" {
		marker = c.arm(place + "=stop")
	} else {
		c.signal(server, syscall.SIGSTOP)
	}
	defer c.signal(server, syscall.SIGCONT)
	c.say(number, "This meets a server that does not answer.")
	c.say(number, "And this comes after it.")
	c.pollNow()
	if place != "" {
		pid := c.reached(marker, "tmuxd")
		c.signal(server, syscall.SIGSTOP)
		if killed {
			c.kill("tmuxd")
			c.up()
		} else {
			c.signal(pid, syscall.SIGCONT)
		}
	}
	frozen := time.Now()
	var row *pollerv1.LedgerEntry
	c.soon("the event is shown as waiting", func() bool {
		rows, err := c.Events(c.ctx, stack.Item(number))
		if err != nil || len(rows) < 2 {
			return false
		}
		row = rows[1]
		return waits(row.GetState()) && row.GetState() != pollerv1.LedgerState_LEDGER_STATE_LEASED && row.GetReason() != "" &&
			time.Since(frozen) > 12*time.Second
	})
	c.t.Logf("while the server is frozen: %v %s: %s", row.GetState(), row.GetReason(), row.GetDetail())
	c.signal(server, syscall.SIGCONT)
	v := c.judge(number, session.GetConversationId(), c.ended(number, 3))
	v.add(c.same(number, before))
	return v
}

func (c *crashing) signal(pid int, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.t.Error(err)
	}
}
