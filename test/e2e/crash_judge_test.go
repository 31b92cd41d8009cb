package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/prompt"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
	"muxpost.dev/muxpost/test/stack"
)

// judged is one item with what its agent has to have recorded, and where.
type judged struct {
	number       int
	conversation string
	rows         []*pollerv1.LedgerEntry
	// said is what a person sent to the agent, each once.
	said []string
	// refused is how many dialogs a person answered with no.
	refused int
}

// process is one process of the machine.
type process struct {
	pid  int
	name string
	args []string
	dir  string
}

// processes are those that live. One that ends meanwhile is left out.
func processes(t *testing.T) []process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []process
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
		if err != nil || gone(pid) {
			continue
		}
		all = append(all, process{pid, strings.TrimSpace(string(name)), strings.Split(string(args), "\x00"), cwd})
	}
	return all
}

// agents are the living agents of an item, by the directory in which they work, and servers the tmux servers on its socket.
func (c *crashing) agents(s *dispatcherv1.Session) (agents, servers []int) {
	c.t.Helper()
	for _, p := range processes(c.t) {
		switch {
		case p.name == "fakeagent" && p.dir == s.GetDirectory():
			agents = append(agents, p.pid)
		case strings.HasPrefix(p.name, "tmux: server") && slices.Contains(p.args, s.GetSocketPath()):
			servers = append(servers, p.pid)
		}
	}
	return agents, servers
}

// killAgent ends the agent of an item, whether the services run or not.
func (c *crashing) killAgent(s *dispatcherv1.Session) {
	c.t.Helper()
	agents, _ := c.agents(s)
	if len(agents) != 1 {
		c.t.Fatalf("%s has the agents %v, not one", s.GetWorkItem(), agents)
	}
	if err := syscall.Kill(agents[0], syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	c.until("the agent is gone", func() bool { return gone(agents[0]) })
}

// verdict counts what went wrong.
type verdict struct{ lost, doubled, misplaced, harmed int }

func (v *verdict) add(o verdict) {
	v.lost, v.doubled, v.misplaced, v.harmed = v.lost+o.lost, v.doubled+o.doubled, v.misplaced+o.misplaced, v.harmed+o.harmed
}

// judge compares what every agent of the stack recorded, in all conversations, with the deliveries of one item: each once, in this order,
// in this conversation, nothing else in it, nothing approved, one agent, one tmux server.
func (c *crashing) judge(number int, conversation string, rows []*pollerv1.LedgerEntry) verdict {
	c.t.Helper()
	return c.weigh(judged{number: number, conversation: conversation, rows: rows})
}

func (c *crashing) weigh(j judged) verdict {
	c.t.Helper()
	v := c.verdict(j)
	if v == (verdict{}) {
		*c.all = append(*c.all, j)
	}
	return v
}

func (c *crashing) verdict(j judged) (v verdict) {
	c.t.Helper()
	order := c.recorded(j, &v)
	want := make([]string, len(j.rows))
	for i, r := range j.rows {
		if want[i] = r.GetDeliveryId(); !slices.Contains(order, want[i]) {
			v.lost++
			c.t.Errorf("delivery %s never reached the agent", want[i])
		}
	}
	if v == (verdict{}) && !slices.Equal(order, want) {
		v.misplaced++
		c.t.Errorf("the agent recorded the order %v, not %v", order, want)
	}
	if agents, servers := c.agents(c.session(j.number)); len(agents) != 1 || len(servers) != 1 {
		v.harmed++
		c.t.Errorf("%s has the agents %v and the tmux servers %v, not one of each", stack.Item(j.number), agents, servers)
	}
	return v
}

// recorded returns the deliveries of an item in the order in which agents recorded them, and counts what is amiss with that.
func (c *crashing) recorded(j judged, v *verdict) (order []string) {
	c.t.Helper()
	all, err := c.Conversations()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, conv := range all {
		lines, err := conv.Lines()
		if err != nil {
			c.t.Fatal(err)
		}
		own := conv.Session == j.conversation
		if own {
			lines = c.byPerson(j, lines, v)
		}
		for _, line := range lines {
			at := slices.IndexFunc(j.rows, func(r *pollerv1.LedgerEntry) bool {
				return line.Type == "user" && strings.HasPrefix(line.Text, prompt.Mark(r.GetDeliveryId())+"\n")
			})
			switch {
			case own && slices.Contains([]string{"shell", "approval", "interrupted", "forked", "queued"}, line.Type):
				v.harmed++
				c.t.Errorf("the agent recorded %s: %q", line.Type, line.Text)
			case own && line.Type == "user" && at < 0:
				v.misplaced++
				c.t.Errorf("the conversation holds what is no delivery of its item: %q", line.Text)
			case at < 0:
			case slices.Contains(order, j.rows[at].GetDeliveryId()):
				v.doubled++
				c.t.Errorf("delivery %s was recorded again, in %s", j.rows[at].GetDeliveryId(), conv.Session)
			default:
				order = append(order, j.rows[at].GetDeliveryId())
				if !own {
					v.misplaced++
					c.t.Errorf("delivery %s is in the conversation %s, not in %s", j.rows[at].GetDeliveryId(), conv.Session, j.conversation)
				}
			}
		}
		if approvals, err := conv.Approvals(); err != nil || len(approvals) > 0 {
			v.harmed++
			c.t.Errorf("something was approved in %s: %v %v", conv.Session, approvals, err)
		}
	}
	return order
}

// byPerson takes out of a transcript what a person did, once each, and counts what a person did and the transcript does not have.
func (c *crashing) byPerson(j judged, lines []agenttest.Line, v *verdict) []agenttest.Line {
	c.t.Helper()
	left := slices.Clone(lines)
	take := func(what string, match func(agenttest.Line) bool) {
		at := slices.IndexFunc(left, match)
		if at < 0 {
			v.harmed++
			c.t.Errorf("%s of a person's is not recorded", what)
			return
		}
		left = slices.Delete(left, at, at+1)
	}
	for _, text := range j.said {
		take(fmt.Sprintf("%q", text), func(l agenttest.Line) bool { return l.Type == "user" && l.Text == text })
	}
	for range j.refused {
		take("a no", func(l agenttest.Line) bool { return l.Type == "approval" && l.Choice == "no" })
	}
	return left
}

// again judges every item once more: what happened since may have harmed an earlier one.
func (c *crashing) again() (v verdict) {
	c.t.Helper()
	for _, j := range *c.all {
		v.add(c.verdict(j))
	}
	return v
}
