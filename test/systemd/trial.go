package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// agent is an agent as it was met: its process, and its conversation.
type agent struct{ pid, conversation string }

// trial is what was sent, and who was met.
type trial struct {
	sent   int
	agents map[string]agent
	// same is how many agents are the ones that were met first.
	same int
}

func item(i int) string { return fmt.Sprintf("github:octo/widget-%d#7", i) }

// send sends each item its next event, and waits until all are delivered.
func (t *trial) send(ctx context.Context) error {
	n := t.sent
	t.sent++
	failures := make(chan error, items)
	for i := range items {
		go func() {
			_, err := muxpost(ctx, "send", "--wait", "--timeout", patience.String(), item(i), fmt.Sprintf("(event %d of %d)", n, i))
			failures <- err
		}()
	}
	var all error
	for range items {
		all = errors.Join(all, <-failures)
	}
	return all
}

// meet looks at the agents. Those that were met before have to be the same.
func (t *trial) meet(ctx context.Context) error {
	met, err := look(ctx)
	if err != nil {
		return err
	}
	if t.agents == nil {
		t.agents = met
	}
	t.same = 0
	for name, was := range t.agents {
		if met[name] == was {
			t.same++
		} else {
			err = errors.Join(err, fmt.Errorf("the agent of %s was %+v and is %+v", name, was, met[name]))
		}
	}
	return err
}

// look returns the agents by their items.
func look(ctx context.Context) (map[string]agent, error) {
	out, err := muxpost(ctx, "sessions", "--json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Sessions []struct{ WorkItem, Target, ConversationID, State string }
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, err
	}
	met := map[string]agent{}
	for _, s := range answer.Sessions {
		// The pane's process is the wrapper, and its child the agent.
		pid, err := host.sh(ctx, `pane=$(runuser -u muxpost-agents -- tmux -N -S /var/lib/muxpost-agents/tmuxd/`+s.Target+`.sock list-panes -a -F '#{pane_pid}'); pgrep -P $pane`)
		if err != nil {
			return nil, err
		}
		met[s.WorkItem] = agent{strings.TrimSpace(pid), s.ConversationID}
	}
	if len(met) != items {
		return nil, fmt.Errorf("%d items have agents: %s", len(met), out)
	}
	return met, nil
}

// takeDown ends everything on the host, as a person does who wants to have it for himself.
func (t *trial) takeDown(ctx context.Context) error {
	if _, err := host.sh(ctx, "systemctl stop muxpost-tmuxd.service muxpost-agents.socket muxpost-agents.slice"); err != nil {
		return err
	}
	left, err := host.sh(ctx, "ps -o pid,args -u muxpost-agents --no-headers || true; systemctl list-units --no-legend 'muxpost-agents@*'")
	if err != nil || strings.TrimSpace(left) != "" {
		return errors.Join(err, fmt.Errorf("these are left:\n%s", left))
	}
	return nil
}

// comeBack starts the host again: other processes, with the conversations that were.
func (t *trial) comeBack(ctx context.Context) error {
	if _, err := host.sh(ctx, "systemctl start muxpost-tmuxd.service"); err != nil {
		return err
	}
	if err := t.send(ctx); err != nil {
		return err
	}
	met, err := look(ctx)
	for name, was := range t.agents {
		if is := met[name]; err == nil && (is.pid == was.pid || is.conversation != was.conversation) {
			err = fmt.Errorf("the agent of %s was %+v and is %+v", name, was, is)
		}
	}
	t.agents = met
	return err
}

// judge counts what the agents' own transcripts say that they were told.
func (t *trial) judge(ctx context.Context) (delivered, lost, doubled int, err error) {
	text, err := host.sh(ctx, `find /var/lib/muxpost-agents/tmuxd/harness/fakeagent/sessions -name '*.jsonl' -exec sed -n '/"type":"user"/p' {} +`)
	if err != nil {
		return 0, 0, 0, err
	}
	times := map[[2]int]int{}
	for _, m := range regexp.MustCompile(`\(event (\d+) of (\d+)\)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		i, _ := strconv.Atoi(m[2])
		times[[2]int{n, i}]++
	}
	for n := range t.sent {
		for i := range items {
			switch times[[2]int{n, i}] {
			case 0:
				lost++
			case 1:
				delivered++
			default:
				doubled++
			}
		}
	}
	return delivered, lost, doubled, nil
}
