package drill

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// line is the way between one dispatcher and one host. Faults on it may overlap: each adds what it does, and takes that away again.
type line interface {
	// Break adds a fault: Cut, Deaf (the host hears nothing), Mute (it is not heard), or Refuse.
	Break(Kind)
	// Mend takes one away.
	Mend(Kind)
	// Reset breaks the connections that there are, where that can be done.
	Reset()
}

// node is a machine on the network: a namespace, kept by a process that does nothing else.
type node struct {
	address string
	keeper  *exec.Cmd
}

// network is a switch with machines on it.
type network struct {
	bridge *node
	nodes  []*node
}

func newNode(address string) (*node, error) {
	n := &node{address: address, keeper: exec.Command("sleep", "infinity")} //nolint:noctx // it is ended by its pid
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return n, n.keeper.Start()
}

// within is what runs a program on the machine.
func (n *node) within() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.keeper.Process.Pid), "--"}
}

func (n *node) run(argv ...string) error { return command(append(n.within(), argv...)...) }

func (n *node) close() {
	_ = n.keeper.Process.Kill()
	_ = n.keeper.Wait()
}

func newNetwork() (*network, error) {
	bridge, err := newNode("")
	if err != nil {
		return nil, err
	}
	w := &network{bridge: bridge}
	for _, argv := range [][]string{{"ip", "link", "add", "br0", "type", "bridge"}, {"ip", "link", "set", "br0", "up"}} {
		if err := bridge.run(argv...); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// add puts a machine on the network. Addresses are of the range that is kept for such trials.
func (w *network) add() (*node, error) {
	n, err := newNode(fmt.Sprintf("198.18.77.%d", len(w.nodes)+1))
	if err != nil {
		return nil, err
	}
	w.nodes = append(w.nodes, n)
	port, bridge := fmt.Sprintf("p%d", len(w.nodes)), fmt.Sprint(w.bridge.keeper.Process.Pid)
	for _, step := range []struct {
		on   *node
		argv []string
	}{
		{n, []string{"ip", "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", bridge}},
		{w.bridge, []string{"ip", "link", "set", port, "master", "br0", "up"}},
		{n, []string{"ip", "addr", "add", n.address + "/24", "dev", "eth0"}},
		{n, []string{"ip", "link", "set", "eth0", "up"}},
		{n, []string{"ip", "link", "set", "lo", "up"}},
	} {
		if err := step.on.run(step.argv...); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (w *network) close() {
	for _, n := range append(w.nodes, w.bridge) {
		n.close()
	}
}

// filter is the packet filter of a host, with what is broken on each of its lines.
type filter struct {
	host *node
	log  func(format string, args ...any)

	mu     sync.Mutex
	broken map[string][]Kind // by the dispatcher's address
}

// apply replaces the host's rules in one go.
func (f *filter) apply() {
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n")
	for address, kinds := range f.broken {
		for _, k := range kinds {
			if k == Cut || k == Deaf {
				fmt.Fprintf(&b, "-A INPUT -s %s -j DROP\n", address)
			}
			if k == Cut || k == Mute {
				fmt.Fprintf(&b, "-A OUTPUT -d %s -j DROP\n", address)
			}
			if k == Refuse {
				fmt.Fprintf(&b, "-A INPUT -s %s -p tcp -j REJECT --reject-with tcp-reset\n", address)
			}
		}
	}
	b.WriteString("COMMIT\n")
	argv := append(f.host.within(), "iptables-restore")
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // a moment
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		f.log("the packet filter cannot be set: %v: %s", err, out)
	}
}

// filtered is a line of a host with a packet filter.
type filtered struct {
	*filter
	peer *node
}

func (l filtered) Break(k Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken[l.peer.address] = append(l.broken[l.peer.address], k)
	l.apply()
}

func (l filtered) Mend(k Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.broken[l.peer.address], k); at >= 0 {
		l.broken[l.peer.address] = slices.Delete(l.broken[l.peer.address], at, at+1)
		l.apply()
	}
}

// Reset has every packet answered with a reset for a moment, which ends the connections that are used.
func (l filtered) Reset() {
	l.Break(Refuse)
	l.Mend(Refuse)
}

// disk is a small disk mounted at a directory, which can be full.
type disk struct{ dir string }

// diskSize is enough for what a host writes in a long run.
const diskSize = "512m"

func newDisk(dir string) (*disk, error) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+diskSize); err != nil {
		return nil, fmt.Errorf("a disk of its own cannot be mounted: %w", err)
	}
	return &disk{dir}, nil
}

// fill leaves no byte free; empty gives it back.
func (d *disk) fill() error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		return err
	}
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// Others write meanwhile, or give something back: what is left is filled page by page.
	_ = syscall.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Bsize)
	for page := make([]byte, os.Getpagesize()); err == nil; {
		_, err = f.WriteAt(page, fileSize(f))
	}
	return nil
}

func fileSize(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

func (d *disk) empty() { _ = os.Remove(d.filler()) }

// close takes the disk away, whoever still uses it.
func (d *disk) close() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) }

func (d *disk) filler() string { return d.dir + "/filler" }
