package settings

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/layout"
)

const (
	// maxSocketPath is the longest path of a unix socket, in bytes.
	maxSocketPath = 107
	unixScheme    = "unix:"
)

// MaxSocketDir is the longest path, in bytes, of a directory that holds the sockets of tmux servers.
const MaxSocketDir = maxSocketPath - len("/") - workitem.MaxTarget - len(".sock")

// problems collects mistakes.
type problems struct {
	section string // empty for what concerns several
	texts   []string
}

// add keeps a mistake, if there is one; the text begins with the key.
func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		text := fmt.Sprintf(format, args...)
		if p.section != "" {
			text = p.section + "." + text
		}
		p.texts = append(p.texts, text)
	}
}

// fault returns the mistakes in a file as one error, or nil.
func (p *problems) fault(file string) error {
	if len(p.texts) == 0 {
		return nil
	}
	text := strings.Join(p.texts, "\n")
	if file != "" {
		text = file + ": " + strings.Join(p.texts, "\n"+file+": ")
	}
	return fault.New(fault.Invalid, fault.ReasonBadConfig, text)
}

// Check finds all values that cannot work in the sections of the services, in all when none is named, and then also those that do
// not fit together. They are one error of kind fault.Invalid, in which each line names a key and says what to write.
func (s *Settings) Check(services ...layout.Service) error {
	all := problems{}
	together := len(services) == 0
	if together {
		services = layout.Services()
	}
	for _, service := range services {
		p := problems{section: string(service)}
		switch service {
		case layout.Tmuxd:
			s.Tmuxd.check(&p)
		case layout.Dispatcher:
			s.Dispatcher.check(&p)
		case layout.Poller:
			s.Poller.check(&p)
		}
		all.texts = append(all.texts, p.texts...)
		if service != layout.Tmuxd {
			_, err := s.urlOf(service)
			all.add(err != nil, "%v", err)
		}
	}
	if together {
		s.Command.check(&all)
		s.checkTogether(&all)
	}
	file := s.File
	if !s.Found {
		file = ""
	}
	return all.fault(file)
}

// checkTogether finds what single sections cannot.
func (s *Settings) checkTogether(p *problems) {
	_, dispatcherErr := s.urlOf(layout.Dispatcher)
	_, pollerErr := s.urlOf(layout.Poller)
	_, err := s.Database()
	p.add(err != nil && dispatcherErr == nil && pollerErr == nil, "%v", err)
	taken := map[string]layout.Service{}
	for _, service := range layout.Services() {
		for _, address := range []string{s.Address(service), s.Remote(service)} {
			other, twice := taken[address]
			p.add(twice && address != "" && !strings.HasSuffix(address, ":0"), "%s and %s would both listen on %s: give each an address of its own", other, service, address)
			taken[address] = service
		}
	}
	// A tmuxd elsewhere has a table of its own.
	h, known := s.Tmuxd.Harnesses[s.Dispatcher.Harness]
	p.add(known && !h.Interactive() && s.Dispatcher.Host.Address == s.Tmuxd.Listen,
		"dispatcher.harness is %q, which runs tasks alone in tmuxd's table: give that entry prompt and fresh, or choose another", s.Dispatcher.Harness)
	p.add(!known && s.Dispatcher.Harness != "" && s.Dispatcher.Host.Address == s.Tmuxd.Listen,
		"dispatcher.harness is %q, which tmuxd's table does not have: add it under tmuxd.harnesses, or choose one of %s", s.Dispatcher.Harness,
		strings.Join(s.HarnessNames(), ", "))
}

func (t *Tmuxd) check(p *problems) {
	checkListen(p, t.Listen)
	p.add(t.Host == "", "host is empty: write this host's name")
	p.add(t.Tmux == "", "tmux is empty: write the program, such as tmux")
	for _, c := range []struct{ key, path string }{{"state_dir", t.StateDir}, {"socket_dir", t.SocketDir}} {
		p.add(!filepath.IsAbs(c.path), "%s: %q is not an absolute path", c.key, c.path)
	}
	p.add(t.Launcher != "" && (!filepath.IsAbs(t.Launcher) || len(t.Launcher) > maxSocketPath),
		"launcher: %q is not the absolute path of a socket, of at most %d bytes", t.Launcher, maxSocketPath)
	p.add(len(t.SocketDir) > MaxSocketDir, "socket_dir: the path %s has %d bytes, and the sockets of tmux servers fit below one of at most %d: "+
		"set it to a short directory of your own, or name a shorter data directory", t.SocketDir, len(t.SocketDir), MaxSocketDir)
	for _, root := range t.Roots {
		p.add(!filepath.IsAbs(root) || root != filepath.Clean(root) || root == "/",
			"roots: %q is not an absolute path in its shortest form (and / is no root)", root)
	}
	p.add(!filepath.IsAbs(t.Directory), "directory: %q is not an absolute path", t.Directory)
	p.add(t.TreesMinFreeMiB < 0, "trees_min_free_mib is %d: use 0 or more", t.TreesMinFreeMiB)
	for i, tree := range t.Trees {
		tree.check(p, fmt.Sprintf("trees[%d]", i))
	}
	p.add(t.Width < 20 || t.Width > 1000, "width is %d: use 20 to 1000 columns, or a pane cannot be read", t.Width)
	p.add(t.Height < 10 || t.Height > 1000, "height is %d: use 10 to 1000 rows, or a pane cannot be read", t.Height)
	checkLabels(p, "labels", t.Labels)
	t.TLS.check(p, false)
	if t.RenewFrom != "" {
		checkCalled(p, "renew_from", t.RenewFrom, layout.Dispatcher)
		p.add(!t.TLS.Files().On(), "renew_from is set and tls is not: there is no certificate to renew")
	}
	p.add(t.Capacity < 0, "capacity is %d: use 0 for any number of agents, or as many as this host can bear", t.Capacity)
	p.add(t.Retain.Age < time.Minute, "retain.age is %v: use 1m or more, or nobody can look at what an agent left", t.Retain.Age)
	p.add(t.Retain.Journal < minJournal, "retain.journal is %v: it must be %v at least, because within that time a delivery may be asked about again",
		t.Retain.Journal, minJournal)
	p.add(t.Retain.Count < 0, "retain.count is %d: use 0 or more", t.Retain.Count)
	t.Tasks.check(p)
	info, err := os.Stat(t.Exec)
	p.add(err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0,
		"exec: the wrapper %s is not there or cannot be run, and no agent starts without it: install it there, or say where it is", t.Exec)
	for _, name := range sortedKeys(t.Harnesses) {
		t.Harnesses[name].check(p, name)
	}
}

func (t Tasks) check(p *problems) {
	p.add(t.Limit <= 0 || t.Limit > t.MaxLimit, "tasks.limit is %v: every attempt has an end: it must be above 0s and at most tasks.max_limit (%v)",
		t.Limit, t.MaxLimit)
	p.add(t.MaxRunning < 1 || t.MaxRunning > 1000, "tasks.max_running is %d: it must be 1 to 1000", t.MaxRunning)
	p.add(t.KeepFor <= 0, "tasks.keep_for is %v: it must be above 0s, or nobody could read how an attempt ended", t.KeepFor)
	p.add(t.Keep < 1 || t.Keep > 10000, "tasks.keep is %d: it must be 1 to 10000", t.Keep)
}

// minIdle is the least time after which an agent may count as one that nobody needs.
const minIdle = 10 * time.Minute

func (d *Dispatcher) check(p *problems) {
	checkListen(p, d.Listen)
	d.checkHosts(p)
	checkRetention(p, "retention", d.Retention)
	p.add(d.UndeliveredRetention < d.Retention, "undelivered_retention is %v, and retention %v: it must not be shorter", d.UndeliveredRetention, d.Retention)
	checkRetention(p, "events_retention", d.EventsRetention)
	b := d.Breaker
	p.add(b.Deaths < 0 || b.Deaths > 1000, "breaker.deaths is %d: it must be 1 to 1000, or 0 to park nothing", b.Deaths)
	p.add(b.Within <= 0 || b.Within > minRetention, "breaker.within is %v: it must be above 0s and at most %v", b.Within, minRetention)
	p.add(d.Idle.After < 0 || d.Idle.After > 0 && d.Idle.After < minIdle, "idle.after is %v: it must be %v or more, or 0s for no agent to count", d.Idle.After, minIdle)
	p.add(d.Idle.End && d.Idle.After == 0, "idle.end is on and idle.after is 0s: say after how long an agent counts as idle")
	p.add(b.Parked < 0, "breaker.parked is %v: it must not be below 0s, which is until a person or another version takes it back", b.Parked)
	p.add(!slices.Contains([]string{FirstSpawnAny, FirstSpawnOpened, FirstSpawnNever}, d.FirstSpawn),
		"first_spawn is %q: set it to %s (every event may start the first session of its work item), %s (the opening event and messages by "+
			"hand may) or %s", d.FirstSpawn, FirstSpawnAny, FirstSpawnOpened, FirstSpawnNever)
	p.add(d.Harness == "", "harness is not set, and nobody says what to start for a first session: "+
		"set it to one of the harnesses in tmuxd's table, such as fakeagent")
}

// checkHosts finds the mistakes in which hosts there are.
func (d *Dispatcher) checkHosts(p *problems) {
	d.TLS.check(p, true)
	for i, team := range d.Teams {
		team.check(p, fmt.Sprintf("teams[%d]", i))
	}
	for i, place := range d.Placement {
		place.check(p, fmt.Sprintf("placement[%d]", i))
	}
	if !d.Listed() {
		checkCalled(p, "host.address", d.Host.Address, layout.Tmuxd)
		p.add(IsRemote(d.Host.Address), "host.address is another machine's: name it under hosts, with tls, so that it is known who answers")
		return
	}
	p.add(d.Host != Host{}, "host and hosts are both set: write all of them under hosts")
	names, addresses := map[string]bool{}, map[string]bool{}
	for i, h := range d.Hosts {
		key := fmt.Sprintf("hosts[%d]", i)
		p.add(h.Name == "", "%s.name is empty: with several hosts, each has the name that its tmuxd gives (tmuxd.host)", key)
		p.add(h.Name != "" && names[h.Name], "%s.name: there are two hosts %q", key, h.Name)
		p.add(addresses[h.Address], "%s.address: there are two hosts at %s", key, h.Address)
		checkCalled(p, key+".address", h.Address, layout.Tmuxd)
		p.add(IsRemote(h.Address) && !d.TLS.Files().On(), "%s.address is another machine's: set tls, so that it is known who answers there and who asks", key)
		names[h.Name], addresses[h.Address] = true, true
	}
}

// checkListen checks an address to listen on: nothing listens beyond loopback without credentials.
func checkListen(p *problems, address string) {
	err := CheckListen(address)
	p.add(err != nil, "listen: %v", err)
}

// CheckListen says what is wrong with an address to listen on, or returns nil. Whether it is free is another question.
func CheckListen(address string) error {
	if err := checkAddress(address, true); err != nil || strings.HasPrefix(address, unixScheme) {
		return err
	}
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
		return fmt.Errorf("%s could be reached from other machines, and nothing there is asked for credentials: "+
			"listen on 127.0.0.1, [::1] or a unix socket; other machines come in at tls.listen", address)
	}
	return nil
}

func checkCalled(p *problems, key, address string, whose layout.Service) {
	if address == "" {
		p.add(true, "%s is empty: write the address of %s, such as %s", key, whose, whose.TCP())
		return
	}
	err := checkAddress(address, false)
	p.add(err != nil, "%s: %v", key, err)
}

// checkAddress checks the form of an address. Port 0 chooses a free one, for who listens.
func checkAddress(address string, listen bool) error {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		switch {
		case !filepath.IsAbs(path):
			return fmt.Errorf("%q does not hold an absolute path: write it as unix:/path/to/socket", address)
		case len(path) > maxSocketPath:
			return fmt.Errorf("the path of a socket has at most %d bytes, not %d: %s", maxSocketPath, len(path), path)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err = errors.Join(err, portErr); err != nil || host == "" || number == 0 && !listen {
		return fmt.Errorf("%q is not an address: write it as 127.0.0.1:7411 or unix:/path/to/socket", address)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
