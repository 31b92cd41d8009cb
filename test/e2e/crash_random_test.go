package e2e

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// With nobody to help: the leases of the dead end by themselves, and what waits is looked at when its time comes.
func TestCrash_TimeAloneIsEnough(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 3*time.Minute, nil)
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	conversation := c.session(number).GetConversationId()
	c.patience, c.idle = 90*time.Second, true
	marker := c.arm("dispatcher.paste.answered=stop")
	c.say(number, "The dispatcher and the poller die of this.")
	c.say(number, "And this comes after it.")
	c.pollNow()
	c.reached(marker, "dispatcher")
	c.kill("poller") // while it waits for the answer
	c.kill("dispatcher")
	began := time.Now()
	c.up()
	rows := c.ended(number, 3)
	t.Logf("delivered %v after the deaths", time.Since(began).Round(time.Second))
	c.judge(number, conversation, rows)
}

// Services die at places that have no name, while events come in for several items.
func TestCrash_AtAnyTime(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // Any bits will do.
	t.Logf("the seed is %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It must be possible to repeat it.
	c := crashStack(t, 3*time.Minute, nil)
	c.patience = 60 * time.Second
	items, events := []int{c.open(), c.open(), c.open()}, map[int]int{}
	c.pollNow()
	for range 15 {
		for range 1 + dice.IntN(3) {
			number := items[dice.IntN(len(items))]
			c.say(number, "This is one of many.")
			events[number]++
		}
		c.pollNow()
		service := []string{"tmuxd", "dispatcher", "poller"}[dice.IntN(3)]
		time.Sleep(time.Duration(dice.IntN(1200)) * time.Millisecond)
		c.kill(service)
		c.endLeases(service)
		c.up()
	}
	c.pollNow()
	for _, number := range items {
		rows := c.ended(number, 1+events[number])
		c.judge(number, c.session(number).GetConversationId(), rows)
	}
}

// tmuxd dies before it can remember which server it started. The server is found all the same once its socket was removed, as those who
// clean /tmp do.
func TestCrash_TheServerOfAHalfRememberedStartIsFound(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 2*time.Minute, nil)
	marker := c.arm("tmuxd.spawn.created=kill")
	number := c.open()
	c.pollNow()
	c.died(marker, "tmuxd")
	c.up()
	c.ended(number, 1)
	c.say(number, "This is remembered with the server.")
	c.pollNow()
	c.ended(number, 2)
	session := c.session(number)
	if err := os.Remove(session.GetSocketPath()); err != nil {
		t.Fatal(err)
	}
	c.stop("tmuxd") // it holds a connection
	c.up()
	c.say(number, "And this comes when the socket is gone.")
	c.pollNow()
	c.judge(number, session.GetConversationId(), c.ended(number, 3))
}
