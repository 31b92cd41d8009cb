package drill

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/rpc"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// process is one of the product's programs, which can be killed and comes back.
type process struct {
	name string
	argv []string
	env  []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...) //nolint:noctx // it is ended by its pid
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	return nil
}

// kill ends it without a warning; start brings it back.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// host is a machine with a tmuxd: a directory of its own here.
type host struct {
	name, dir string
	tmuxd     *process
	wire      *wire
	client    tmuxdv1.TmuxdServiceClient
}

// fleet is everything that runs.
type fleet struct {
	dir, bin    string
	hosts       []*host
	dispatchers []*process
	pollers     []*process
	submit      []pollerv1.PollerServiceClient
	closers     []func()
}

// How many of each there are.
const (
	hostCount    = 3
	replicaCount = 2
)

// newFleet starts everything on a database.
func newFleet(dir, bin, url string) (f *fleet, err error) {
	f = &fleet{dir: dir, bin: bin}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var hosts strings.Builder
	for i := range hostCount {
		h, err := f.addHost(string(rune('a' + i)))
		if err != nil {
			return f, err
		}
		fmt.Fprintf(&hosts, "    - {name: %s, address: %q}\n", h.name, "unix:"+filepath.Join(h.dir, "wire.sock"))
	}
	for i := range replicaCount {
		sock := func(service string) string { return "unix:" + filepath.Join(dir, fmt.Sprintf("%s%d.sock", service, i)) }
		file := filepath.Join(dir, fmt.Sprintf("center%d.yaml", i))
		// Agents are killed here more often than an item may bear without being parked.
		config := fmt.Sprintf("dispatcher:\n  listen: %s\n  data_dir: %s\n  database_url: %q\n  harness: fakeagent\n  log_level: ERROR\n"+
			"  breaker: {deaths: 0}\n  hosts:\n%s"+
			"poller:\n  listen: %s\n  data_dir: %[2]s\n  database_url: %[3]q\n  dispatcher: %[1]s\n  log_level: ERROR\n  sources: []\n",
			sock("d"), filepath.Join(dir, fmt.Sprintf("center%d", i)), url, hosts.String(), sock("p"))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return f, err
		}
		d := &process{name: fmt.Sprintf("dispatcher %d", i), argv: []string{filepath.Join(bin, "muxpost-dispatcher"), "--config", file}}
		p := &process{name: fmt.Sprintf("poller %d", i), argv: []string{filepath.Join(bin, "muxpost-poller"), "--config", file}}
		f.dispatchers, f.pollers = append(f.dispatchers, d), append(f.pollers, p)
		if err := errors.Join(d.start(), p.start()); err != nil {
			return f, err
		}
		conn, err := rpc.Dial(sock("p"), rpc.DialOptions{Name: "the poller", Timeout: 5 * time.Second})
		if err != nil {
			return f, err
		}
		f.closers = append(f.closers, func() { _ = conn.Close() })
		f.submit = append(f.submit, pollerv1.NewPollerServiceClient(conn))
	}
	return f, nil
}

func (f *fleet) addHost(name string) (*host, error) {
	h := &host{name: name, dir: filepath.Join(f.dir, name)}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		return nil, err
	}
	file, sock := filepath.Join(h.dir, "m.yaml"), filepath.Join(h.dir, "t.sock")
	config := fmt.Sprintf("tmuxd:\n  host: %s\n  data_dir: %s\n  listen: unix:%s\n  log_level: ERROR\n  make_directory: true\n", name, h.dir, sock)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	h.tmuxd = &process{name: "tmuxd " + name, argv: []string{filepath.Join(f.bin, "muxpost-tmuxd"), "--config", file},
		env: []string{"FAKEAGENT_TURN=20ms", "FAKEAGENT_READY_AFTER=50ms"}}
	var err error
	if h.wire, err = newWire(filepath.Join(h.dir, "wire.sock"), sock); err != nil {
		return nil, err
	}
	conn, err := rpc.Dial("unix:"+sock, rpc.DialOptions{Name: "tmuxd " + name, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, func() { _ = conn.Close() })
	h.client = tmuxdv1.NewTmuxdServiceClient(conn)
	f.hosts = append(f.hosts, h)
	return h, h.tmuxd.start()
}

// Close ends everything, the agents' tmux servers too.
func (f *fleet) Close() {
	for _, p := range append(append([]*process{}, f.dispatchers...), f.pollers...) {
		p.kill()
	}
	for _, h := range f.hosts {
		h.tmuxd.kill()
		for _, pid := range h.servers() {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		h.wire.Close()
	}
	for _, closer := range f.closers {
		closer()
	}
}

// servers are the tmux servers of a host, as its tmuxd remembers them.
func (h *host) servers() (pids []int) {
	files, _ := filepath.Glob(filepath.Join(h.dir, "tmuxd", "sessions", "*.json"))
	for _, file := range files {
		var memory struct{ Server struct{ Pid int } }
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &memory) != nil || memory.Server.Pid <= 0 {
			continue
		}
		// The pid may be another process's by now.
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", memory.Server.Pid)); err == nil && bytes.Contains(line, []byte(h.dir)) {
			pids = append(pids, memory.Server.Pid)
		}
	}
	return pids
}
