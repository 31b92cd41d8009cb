package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/failpoint"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// scenario is a way in which an event reaches its agent.
type scenario uint8

const (
	// first: the item has no session yet.
	first scenario = 1 << iota
	// living: the event goes into a living agent.
	living
	// respawn: the agent was killed before, and comes back with its conversation.
	respawn
	// bereft: as living, and the agent is killed too while the service is away.
	bereft
)

// scenarios are all, by name.
var scenarios = []struct {
	name string
	scenario
}{{"first", first}, {"living", living}, {"respawn", respawn}, {"bereft", bereft}}

// places says which scenarios pass which place, and so in which ones a process dies there. Every place stands here.
var places = map[string]scenario{
	"poller.poll.inserted":        first | living | respawn,
	"poller.poll.recorded":        first | living | respawn,
	"poller.forward.claimed":      first | living | respawn,
	"poller.forward.answered":     first | living | respawn | bereft,
	"poller.forward.finished":     first | living | respawn,
	"dispatcher.deliver.begun":    first | living | respawn,
	"dispatcher.deliver.leased":   first | living | respawn,
	"dispatcher.probe.answered":   first | living | respawn | bereft,
	"dispatcher.spawn.announced":  first | respawn,
	"dispatcher.spawn.answered":   first | respawn,
	"dispatcher.session.recorded": first | respawn,
	"dispatcher.paste.answered":   living | bereft,
	"dispatcher.outcome.decided":  first | living | respawn | bereft,
	"dispatcher.outcome.saved":    first | living | respawn,
	"tmuxd.fence.raised":          first | living | respawn,
	"tmuxd.spawn.cleared":         respawn,
	"tmuxd.spawn.journalled":      first | respawn,
	"tmuxd.spawn.prepared":        first | respawn,
	"tmuxd.spawn.remembered":      first | respawn,
	"tmuxd.spawn.created":         first | respawn,
	"tmuxd.spawn.proven":          first | respawn,
	"tmuxd.spawn.answering":       first | respawn,
	"tmuxd.paste.intended":        living | bereft,
	"tmuxd.paste.typed":           living | bereft,
	"tmuxd.paste.journalled":      living | bereft,
	"tmuxd.paste.seen":            living | bereft,
	"tmuxd.paste.submitting":      living | bereft,
	"tmuxd.paste.submitted":       living | bereft,
	"tmuxd.paste.proven":          living | bereft,
	"tmuxd.paste.answering":       living | bereft,
}

func TestCrash_MatrixNamesEveryPlace(t *testing.T) {
	for _, name := range failpoint.Names() {
		if places[name] == 0 {
			t.Errorf("no process dies at %s", name)
		}
	}
	for name := range places {
		if !slices.Contains(failpoint.Names(), name) {
			t.Errorf("there is no place %s", name)
		}
	}
}

// tally is what the whole matrix came to.
type tally struct {
	mu           sync.Mutex
	begun, steps int
	took         []time.Duration
	verdict
}

// TestCrash_Matrix kills each service at each place that a delivery passes, starts it again, and judges by what the agents recorded.
func TestCrash_Matrix(t *testing.T) {
	t.Parallel()
	var sum tally
	t.Run("all", func(t *testing.T) {
		for _, s := range scenarios {
			var steps []string
			for _, name := range failpoint.Names() {
				if places[name]&s.scenario != 0 {
					steps = append(steps, name)
				}
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				c := crashStack(t, 5*time.Minute)
				for _, name := range steps {
					ok := t.Run(name, func(t *testing.T) {
						sum.mu.Lock()
						sum.begun++
						sum.mu.Unlock()
						began := time.Now()
						v := c.on(t).step(name, s.scenario)
						sum.mu.Lock()
						defer sum.mu.Unlock()
						sum.steps++
						sum.took = append(sum.took, time.Since(began))
						sum.add(v)
					})
					if !ok {
						_, _ = c.Run(c.ctx, "up") // so that the other steps can show what they do
					}
				}
				v := c.again()
				sum.mu.Lock()
				defer sum.mu.Unlock()
				sum.add(v)
			})
		}
	})
	fmt.Printf("crash: steps=%d lost=%d doubled=%d misplaced=%d harmed=%d\n", sum.steps, sum.lost, sum.doubled, sum.misplaced, sum.harmed)
	if sum.steps != sum.begun || sum.verdict != (verdict{}) {
		t.Errorf("%d of %d steps came to their end: %+v", sum.steps, sum.begun, sum.verdict)
	}
	if len(sum.took) > 0 {
		slices.Sort(sum.took)
		t.Logf("a step took %v at the median, %v at most", sum.took[len(sum.took)/2], sum.took[len(sum.took)-1])
	}
}

// step lets one process die at one place, on an item of its own.
func (c *crashing) step(place string, s scenario) verdict {
	c.t.Helper()
	service, _, _ := strings.Cut(place, ".")
	if s == first {
		marker := c.arm(place + "=kill")
		number := c.open()
		c.pollNow()
		c.died(marker, service)
		c.up()
		c.pollNow()
		c.ended(number, 1)
		c.say(number, "And afterwards.")
		c.pollNow()
		return c.judge(number, c.session(number).GetConversationId(), c.ended(number, 2))
	}
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	session := c.session(number)
	before := c.stateOf(number)
	if s == respawn {
		c.killAgent(session)
		c.until("the session is dead", func() bool { return c.stateOf(number).GetState() == tmuxdv1.State_STATE_DEAD })
	}
	marker := c.arm(place + "=kill")
	c.say(number, "This is on its way when a process dies.")
	c.say(number, "And this comes after it.")
	c.pollNow()
	c.died(marker, service)
	if s == bereft {
		c.killAgent(session)
	}
	c.up()
	c.pollNow()
	v := c.judge(number, session.GetConversationId(), c.ended(number, 3))
	after := c.stateOf(number)
	if same := after.GetIncarnation().GetStamp() == before.GetIncarnation().GetStamp(); s == living && !same {
		v.harmed++
		c.t.Errorf("the agent that lived was replaced: %v, then %v", before, after)
	}
	return v
}
