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
	"muxpost.dev/muxpost/test/stack"
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
	// adopted: as living, and the session has no record.
	adopted
	// unprompted: as first, and the agent takes no prompt at its start: it is registered, and then pasted into.
	unprompted
)

// scenarios are all, by name, with what they change of the configuration.
var scenarios = []struct {
	name string
	scenario
	change func(*world)
}{
	{"first", first, nil}, {"living", living, nil}, {"respawn", respawn, nil}, {"bereft", bereft, nil}, {"adopted", adopted, nil},
	{"unprompted", unprompted, func(w *world) {
		w.configure("  host: laptop\n", "  host: laptop\n  harnesses: {fakeagent: {prompt_args: []}}\n")
	}},
}

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
	"dispatcher.spawn.answered":   first | respawn | unprompted,
	"dispatcher.session.recorded": first | respawn | adopted | unprompted,
	"dispatcher.paste.answered":   living | bereft | adopted | unprompted,
	"dispatcher.outcome.decided":  first | living | respawn | bereft,
	"dispatcher.outcome.saved":    first | living | respawn,
	"tmuxd.fence.raised":          first | living | respawn,
	"tmuxd.spawn.cleared":         respawn,
	"tmuxd.spawn.journalled":      first | respawn,
	"tmuxd.spawn.prepared":        first | respawn,
	"tmuxd.spawn.remembered":      first | respawn,
	"tmuxd.spawn.created":         first | respawn,
	"tmuxd.spawn.proven":          first | respawn,
	"tmuxd.spawn.answering":       first | respawn | unprompted,
	"tmuxd.paste.intended":        living | bereft,
	"tmuxd.paste.typed":           living | bereft | unprompted,
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

// step is one line of the matrix: what happens to one delivery, on an item of its own.
type step struct {
	name string
	run  func(*crashing) verdict
}

// tally is what the whole matrix came to.
type tally struct {
	mu           sync.Mutex
	begun, steps int
	took         []time.Duration
	verdict
}

// TestCrash_Matrix kills each service at each place that a delivery passes, starts it again, and judges by what the agents recorded. So it
// does with what people do at an agent's session, and with a tmux server that does not answer.
func TestCrash_Matrix(t *testing.T) {
	t.Parallel()
	var sum tally
	t.Run("all", func(t *testing.T) {
		for _, s := range scenarios {
			var steps []step
			for _, name := range failpoint.Names() {
				if places[name]&s.scenario != 0 {
					steps = append(steps, step{name, func(c *crashing) verdict { return c.dies(name, s.scenario) }})
				}
			}
			sum.each(t, s.name, steps, s.change)
		}
		for _, m := range moments {
			sum.each(t, m.name, personSteps(m), nil)
		}
		sum.each(t, "frozen", frozenSteps(), nil)
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

// each takes steps one after the other on a stack of their own, and judges everything once more in the end.
func (sum *tally) each(t *testing.T, name string, steps []step, change func(*world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		c := crashStack(t, 5*time.Minute, change)
		for _, s := range steps {
			ok := t.Run(s.name, func(t *testing.T) {
				sum.count(func() { sum.begun++ })
				began := time.Now()
				v := s.run(c.on(t))
				sum.count(func() {
					sum.steps++
					sum.took = append(sum.took, time.Since(began))
					sum.add(v)
				})
			})
			if !ok {
				_, _ = c.Run(c.ctx, "up") // so that the other steps can show what they do
			}
		}
		v := c.again()
		sum.count(func() { sum.add(v) })
	})
}

func (sum *tally) count(change func()) {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	change()
}

// dies lets one process die at one place.
func (c *crashing) dies(place string, s scenario) verdict {
	c.t.Helper()
	service, _, _ := strings.Cut(place, ".")
	if s == first || s == unprompted {
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
	switch s {
	case respawn:
		c.killAgent(session)
		c.until("the session is dead", func() bool { return c.stateOf(number).GetState() == tmuxdv1.State_STATE_DEAD })
	case adopted:
		c.forget(number)
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
	if s == living || s == adopted {
		v.add(c.same(number, before))
	}
	return v
}

// same counts an agent that lived and is another one now.
func (c *crashing) same(number int, before *tmuxdv1.SessionStateResponse) (v verdict) {
	c.t.Helper()
	if after := c.stateOf(number); after.GetIncarnation().GetStamp() != before.GetIncarnation().GetStamp() {
		v.harmed++
		c.t.Errorf("the agent that lived was replaced: %v, then %v", before, after)
	}
	return v
}

// forget removes the record of a session that lives: the dispatcher then adopts it, and pastes into it.
func (c *crashing) forget(number int) {
	c.t.Helper()
	gone, err := c.pool.Exec(c.ctx, `delete from dispatcher.sessions where work_item = $1`, stack.Item(number))
	if err != nil || gone.RowsAffected() != 1 {
		c.t.Fatalf("%v %v", gone, err)
	}
}
