package drill

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// proc is one process of the machine, as the kernel tells of it.
type proc struct {
	pid, parent int
	// server is the tmux server of an agent, the parent of its wrapper; 0 where that was gone when it was looked at.
	server int
	// started is when, in the kernel's own count: with the pid it names a process for good.
	started string
	args    []string
	// host and target say of an agent where it works, and of a tmux server whose it is.
	host, target string
}

func (p proc) id() string { return fmt.Sprintf("%d@%s", p.pid, p.started) }

// conversation is that which an agent was started with.
func (p proc) conversation() string {
	for i, a := range p.args {
		if (a == "--session-id" || a == "--resume") && i+1 < len(p.args) {
			return p.args[i+1]
		}
	}
	return ""
}

// life is one process of an agent, as the agent's own record names it.
type life struct {
	pid          int
	conversation string
}

// socket is that of a tmux server.
func (p proc) socket() string {
	if i := slices.Index(p.args, "-S"); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}

// census is who lives on the hosts.
type census struct{ agents, servers []proc }

// of returns the agents of an item.
func (c census) of(target string) (out []proc) {
	for _, a := range c.agents {
		if a.target == target {
			out = append(out, a)
		}
	}
	return out
}

// server returns the tmux server of an item.
func (c census) server(target string) (proc, bool) {
	i := slices.IndexFunc(c.servers, func(s proc) bool { return s.target == target })
	if i < 0 {
		return proc{}, false
	}
	return c.servers[i], true
}

// scan looks at every process. Those that are dead and not buried count as gone.
func scan(f *fleet) (c census) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[shut+1:]))
		name := string(stat[open+1 : shut])
		agent := name == "fakeagent"
		if !agent && !strings.HasPrefix(name, "tmux: server") || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		p := proc{started: fields[19]}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.parent, _ = strconv.Atoi(fields[1])
		line, _ := os.ReadFile(dir + "/cmdline")
		p.args = strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		place := p.socket()
		if agent {
			place, _ = os.Readlink(dir + "/cwd")
			p.server = parentOf(p.parent)
		}
		rest, ok := strings.CutPrefix(place, f.Dir+"/")
		if !ok {
			continue
		}
		p.host, _, _ = strings.Cut(rest, "/")
		p.target = strings.TrimSuffix(filepath.Base(place), ".sock")
		if agent {
			c.agents = append(c.agents, p)
		} else {
			c.servers = append(c.servers, p)
		}
	}
	return c
}

// parentOf is the parent of a process; 0 of one that is gone.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// children are the processes that a process has started.
func children(pid int) (out []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// watcher sees who lives and who is gone, and knows of whom the nemesis said that it would kill them.
type watcher struct {
	fleet *fleet

	mu     sync.Mutex
	alive  map[string]proc // agents
	gone   []proc
	doomed map[string]proc
	// ended are the tmux servers that the nemesis ended, with whoever was being started in them, and whose they were.
	ended map[int]string
	// servers are those that live, by what names them, with the agents that were seen in each.
	servers map[string][]string
	// lost are servers that ended together with an agent that nobody had doomed, by the agent.
	lost map[string]int
	// seen are all agents that were ever seen, or doomed.
	seen map[life]bool
	// twins are items with two living agents at once.
	twins map[string]string
}

func newWatcher(f *fleet) *watcher {
	return &watcher{fleet: f, alive: map[string]proc{}, doomed: map[string]proc{}, ended: map[int]string{}, servers: map[string][]string{}, twins: map[string]string{}, lost: map[string]int{},
		seen: map[life]bool{}}
}

// doom says that an agent will be dead by the drill's own doing.
func (w *watcher) doom(p proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doomed[p.id()] = p
	w.seen[life{p.pid, p.conversation()}] = true
}

// end says that a tmux server will be ended by the drill's own doing, with every agent in it.
func (w *watcher) end(server proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[server.pid] = server.target
}

// spared reports whether an agent that is gone was let live by the nemesis.
func (w *watcher) spared(a proc) bool {
	_, doomed := w.doomed[a.id()]
	_, ended := w.ended[a.server]
	return !doomed && !ended
}

// deaths counts the agents that ended, by item: those that were seen, and those that were killed before anybody saw them.
func (w *watcher) deaths() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, seen := map[string]int{}, map[string]bool{}
	for _, a := range w.gone {
		out[a.target]++
		seen[a.id()] = true
	}
	for id, a := range w.doomed {
		if !seen[id] {
			out[a.target]++
		}
	}
	for _, target := range w.ended {
		out[target]++
	}
	return out
}

// run looks until done is closed, and once more then.
func (w *watcher) run(done <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			w.look()
			return
		case <-tick.C:
			w.look()
		}
	}
}

func (w *watcher) look() {
	w.note(scan(w.fleet))
}

// note compares who lives with who lived.
func (w *watcher) note(c census) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[string]proc{}
	byTarget := map[string]string{}
	for _, a := range c.agents {
		// What was seen first tells most: of one that is ending less can be read.
		if _, known := w.alive[a.id()]; !known {
			w.alive[a.id()] = a
			w.seen[life{a.pid, a.conversation()}] = true
		}
		now[a.id()] = a
		if other, ok := byTarget[a.target]; ok {
			w.twins[a.target] = other + " and " + a.id()
		}
		byTarget[a.target] = a.id()
	}
	dead := map[string]bool{}
	for id, a := range w.alive {
		if _, ok := now[id]; !ok {
			w.gone, dead[id] = append(w.gone, a), true
			delete(w.alive, id)
			if w.spared(a) {
				w.fleet.Log("the agent of %s on %s (process %d, tmux server %d) has ended", a.target, a.host, a.pid, a.server)
			}
		}
	}
	present := map[string]bool{}
	for _, s := range c.servers {
		present[s.id()] = true
		for _, a := range c.of(s.target) {
			if a.host == s.host && !slices.Contains(w.servers[s.id()], a.id()) {
				w.servers[s.id()] = append(w.servers[s.id()], a.id())
			}
		}
	}
	for id, agents := range w.servers {
		if present[id] {
			continue
		}
		delete(w.servers, id)
		for _, a := range agents {
			_, ended := w.ended[serverPid(id)]
			if _, doomed := w.doomed[a]; dead[a] && !doomed && !ended {
				w.lost[a] = serverPid(id)
			}
		}
	}
}

func serverPid(id string) int {
	pid, _, _ := strings.Cut(id, "@")
	n, _ := strconv.Atoi(pid)
	return n
}
