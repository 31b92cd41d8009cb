package e2e

import (
	"syscall"
	"testing"
	"time"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/stack"
)

// The tmux server stops answering, before a delivery or in the middle of one, until the time of the delivery is up; then it wakes, with
// what was sent to it still in its socket.
func TestCrash_FrozenTmux(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 3*time.Minute)
	for _, place := range []string{"", "tmuxd.paste.intended", "tmuxd.paste.submitting"} {
		name := place
		if name == "" {
			name = "before"
		}
		t.Run(name, func(t *testing.T) { c.on(t).frozen(place) })
	}
}

// frozen stops the server when a delivery has come to a place; with none, before it begins.
func (c *crashing) frozen(place string) {
	c.t.Helper()
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	session := c.session(number)
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
		c.signal(pid, syscall.SIGCONT)
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
	c.judge(number, session.GetConversationId(), c.ended(number, 3))
}

func (c *crashing) signal(pid int, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.t.Error(err)
	}
}
