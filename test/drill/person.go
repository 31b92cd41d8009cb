package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// person is somebody at the session of an item: with a tmux client, as people have it.
type person struct {
	n      *nemesis
	agent  proc
	socket string
	pane   string
}

// tmuxTime is how long tmux may take to answer a person, who gives up then.
const tmuxTime = 3 * time.Second

// visit finds the session of a fault's item, and the agent's pane in it.
func (n *nemesis) visit(f Fault) (*person, bool) {
	c := scan(n.fleet)
	s, ok := c.server(targetOf(f.Item))
	if !ok {
		return nil, false
	}
	p := &person{n: n, socket: s.socket()}
	out, err := p.tmux("list-panes", "-a", "-F", "#{pane_pid} #{pane_id}")
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(out) {
		pid, pane, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, a := range c.of(s.target) {
			if fmt.Sprint(a.parent) == pid {
				p.agent, p.pane = a, pane
			}
		}
	}
	return p, p.pane != ""
}

func (p *person) tmux(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tmuxTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-N", "-S", p.socket}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// split opens a pane beside the agent's, which writes down what is typed there.
func split(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok {
		return nil, false
	}
	file := n.fleet.path("guest-" + fmt.Sprint(f.Index))
	pane, err := p.tmux("split-window", "-d", "-P", "-F", "#{pane_id}", "-t", p.pane, "stty -icrnl; exec cat > "+file)
	if err != nil {
		return nil, false
	}
	if f.Dice%2 == 0 { // the person stays in it
		_, _ = p.tmux("select-pane", "-t", pane)
	}
	n.mu.Lock()
	n.guests = append(n.guests, file)
	n.mu.Unlock()
	return func() { _, _ = p.tmux("kill-pane", "-t", pane) }, true
}

func scroll(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok {
		return nil, false
	}
	_, err := p.tmux("copy-mode", "-t", p.pane)
	return func() { _, _ = p.tmux("send-keys", "-t", p.pane, "-X", "cancel") }, err == nil
}

// draftWord begins everything that people type and do not send.
const draftWord = "dr"

// draft types something and goes on with it for as long as it lasts, then takes it back, a key at a time.
func draft(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok {
		return nil, false
	}
	_, err := p.tmux("send-keys", "-t", p.pane, "-l", draftWord)
	return p.erase, err == nil
}

// watch attaches read-only, in a terminal of its own.
func watch(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok {
		return nil, false
	}
	cmd := exec.Command("script", "-qfc", "exec tmux -N -S "+p.socket+" attach -r", "/dev/null") //nolint:noctx // it is ended by its pid
	cmd.Env = append(os.Environ(), "TERM=xterm", "TMUX=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	silent, _, err := os.Pipe()
	if err != nil {
		return nil, false
	}
	cmd.Stdin = silent
	if err := cmd.Start(); err != nil {
		return nil, false
	}
	return func() {
		for _, child := range children(cmd.Process.Pid) {
			_ = syscall.Kill(child, syscall.SIGHUP)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = silent.Close()
	}, true
}

// dialog has the agent ask for something, until a person says no.
func dialog(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok || syscall.Kill(p.agent.pid, syscall.SIGUSR1) != nil {
		return nil, false
	}
	return p.refuse, true
}

// erase takes a draft back. People look before they do: the agent may have been started again meanwhile.
func (p *person) erase() {
	screen, _ := p.tmux("capture-pane", "-p", "-J", "-t", p.pane)
	for line := range strings.Lines(screen) {
		if strings.HasSuffix(strings.TrimSpace(line), draftWord) {
			_, _ = p.tmux("send-keys", "-t", p.pane, "-N", fmt.Sprint(len(draftWord)), "BSpace")
			return
		}
	}
}

// refuse says no to a question that is open.
func (p *person) refuse() {
	if screen, err := p.tmux("capture-pane", "-p", "-t", p.pane); err == nil && strings.Contains(screen, "Would you like to run") {
		_, _ = p.tmux("send-keys", "-t", p.pane, "3")
	}
}

// tidy has people go round once nothing breaks any more: a question may have come up after whoever asked for it had left.
func (n *nemesis) tidy() {
	for item := range n.fleet.Items {
		if p, ok := n.visit(Fault{Item: item}); ok {
			p.refuse()
			p.erase()
		}
	}
}

func rename(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	p, ok := n.visit(f)
	if !ok {
		return nil, false
	}
	_, err := p.tmux("rename-window", "-t", p.pane, "mine")
	return nil, err == nil
}

// control asks the server that speaks GitHub's API for something.
func (n *nemesis) control(path string, body any) error { return n.fleet.control(path, body) }

func (f *fleet) control(path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, f.githubURL+"/_fake/"+path, bytes.NewReader(data)) //nolint:noctx // it answers at once
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is answered %s", path, res.Status)
	}
	return nil
}

// holdHooks keeps webhooks back, and lets them go in another order.
func holdHooks(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	n.must("hold webhooks", n.control("deliveries", map[string]any{"hold": true}))
	return func() {
		n.must("release webhooks", n.control("deliveries", map[string]any{"shuffle": f.Dice, "hold": false}))
	}, true
}

// loseHooks has webhooks be lost: only a look finds what they told.
func loseHooks(_ context.Context, n *nemesis, _ Fault) (func(), bool) {
	n.must("hold webhooks", n.control("deliveries", map[string]any{"hold": true}))
	return func() {
		n.must("lose webhooks", n.control("deliveries", map[string]any{"drop": true, "hold": false}))
	}, true
}

// redeliver sends a webhook again, as a person may who presses the button, under the same id or another.
func redeliver(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	res, err := http.Get(n.fleet.githubURL + "/_fake/deliveries") //nolint:noctx // it answers at once
	if err != nil {
		return nil, false
	}
	defer res.Body.Close()
	var made []struct{ GUID string }
	if json.NewDecoder(res.Body).Decode(&made) != nil || len(made) == 0 {
		return nil, false
	}
	key := []string{"redeliver", "redeliver_as"}[f.Dice%2]
	return nil, n.control("deliveries", map[string]any{key: made[int(f.Dice/2)%len(made)].GUID}) == nil
}

// failGitHub has the next requests fail, one way or another.
func failGitHub(_ context.Context, n *nemesis, f Fault) (func(), bool) {
	kind := []string{"bad_gateway", "secondary_limit", "truncate", "forbidden"}[f.Dice%4]
	return nil, n.control("faults", map[string]any{"kind": kind, "times": 1 + f.Dice/4%4, "retry_after": 2}) == nil
}

// typedAtGuests returns what was typed into people's panes.
func (n *nemesis) typedAtGuests() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{}
	for _, file := range n.guests {
		if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
			out[filepath.Base(file)] = string(data)
		}
	}
	return out
}
