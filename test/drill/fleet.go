package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/rpc"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

// How many of each there are.
const (
	hostCount    = 3
	replicaCount = 2
	// tmuxdPort is where a host's tmuxd is reached by the dispatchers.
	tmuxdPort = 7413
)

// host is a machine with a tmuxd.
type host struct {
	name string
	// dir is its disk, and kept a directory beside it that is never full: what the agents record, and what the drill tells its programs.
	dir, kept string
	node      *node // nil where hosts are directories
	disk      *disk // nil where there is none of its own
	tmuxd     *process
	lines     [replicaCount]line
}

// fleet is everything that runs.
type fleet struct {
	Options
	network     *network // nil where hosts are directories
	hosts       []*host
	dispatchers []*process
	pollers     []*process
	postgres    *postgres
	pool        *pgxpool.Pool
	github      *process
	githubURL   string
	submit      []pollerv1.PollerServiceClient
	closers     []func()

	mu      sync.Mutex
	crashes []string
}

// crashed notes that something ended by itself.
func (f *fleet) crashed(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashes = append(f.crashes, what)
	f.Log("%s", what)
}

// newFleet starts everything in a directory.
func newFleet(ctx context.Context, o Options) (f *fleet, err error) {
	f = &fleet{Options: o}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.postgres, err = newPostgres(ctx, f.path("pg")); err != nil {
		return f, err
	}
	if f.pool, err = prepare(ctx, f.postgres); err != nil {
		return f, err
	}
	if Isolated() {
		if f.network, err = newNetwork(); err != nil {
			return f, err
		}
	}
	for _, dir := range []string{"log", "ca"} {
		if err := os.MkdirAll(f.path(dir), 0o700); err != nil {
			return f, err
		}
	}
	ca, err := authority.Init(f.path("ca", "a"), time.Now())
	if err != nil {
		return f, err
	}
	for i := range hostCount {
		if err := f.addHost(ca, string(rune('a'+i))); err != nil {
			return f, err
		}
	}
	hooks := [replicaCount]string{}
	for i := range hooks {
		if hooks[i], err = freeAddress(); err != nil {
			return f, err
		}
	}
	if err := f.startGitHub(hooks[:]); err != nil {
		return f, err
	}
	files, err := f.certify(ca, identity.Dispatcher, "d")
	if err != nil {
		return f, err
	}
	for i := range replicaCount {
		if err := f.addReplica(ctx, i, hooks[i], files); err != nil {
			return f, err
		}
	}
	for _, h := range f.hosts {
		if err := h.tmuxd.start(); err != nil {
			return f, err
		}
	}
	for i := range replicaCount {
		if err := errors.Join(f.dispatchers[i].start(), f.pollers[i].start()); err != nil {
			return f, err
		}
	}
	return f, nil
}

// centers are the data directories of the dispatchers and the pollers.
func (f *fleet) centers() (dirs []string) {
	for i := range replicaCount {
		dirs = append(dirs, f.path(fmt.Sprintf("c%d", i)))
	}
	return dirs
}

func (f *fleet) path(parts ...string) string {
	return filepath.Join(append([]string{f.Dir}, parts...)...)
}

func (f *fleet) process(name, program string, within []string, env []string, args ...string) *process {
	return &process{name: name, program: program, args: args, within: within, env: env, bin: f.Bin, crashed: f.crashed,
		log: f.path("log", strings.ReplaceAll(name, " ", "-"))}
}

func (f *fleet) certify(ca *authority.Authority, name identity.ID, dir string) (identity.Files, error) {
	c, err := ca.Issue(authority.Order{Name: name}, time.Now())
	if err != nil {
		return identity.Files{}, err
	}
	return ca.WriteTo(f.path("ca", dir), c)
}

// agentScript starts the agent, unless it is told to end at once.
const agentScript = "#!/bin/sh\n[ -e %[1]s/exit-at-once ] && exit 7\nexec %[2]s/fakeagent \"$@\"\n"

// tmuxScript gives tmux a clock that can be stepped.
const tmuxScript = "#!/bin/sh\nexport LD_PRELOAD=%[2]s FAKETIME_TIMESTAMP_FILE=%[1]s/tmux-clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n" +
	"exec %[3]s \"$@\"\n"

// faketime is where Debian's package has the library that gives a program another clock.
const faketime = "/usr/lib/*/faketime/libfaketime.so.1"

func (f *fleet) addHost(ca *authority.Authority, name string) error {
	h := &host{name: name, dir: f.path(name), kept: f.path("k" + name)}
	f.hosts = append(f.hosts, h)
	sessions := filepath.Join(h.kept, "sessions")
	if err := errors.Join(os.MkdirAll(h.dir, 0o700), os.MkdirAll(sessions, 0o700)); err != nil {
		return err
	}
	var within []string
	if f.network != nil {
		var err error
		if h.disk, err = newDisk(h.dir); err != nil {
			return err
		}
		if h.node, err = f.network.add(); err != nil {
			return err
		}
		within = h.node.within()
	}
	// What agents record is on no disk that can be full: it is the drill's own evidence.
	home := filepath.Join(h.dir, "tmuxd", "harness", "fakeagent")
	if err := errors.Join(os.MkdirAll(home, 0o700), os.Symlink(sessions, filepath.Join(home, "sessions")),
		os.WriteFile(filepath.Join(h.kept, "agent"), fmt.Appendf(nil, agentScript, h.kept, f.Bin), 0o700)); err != nil {
		return err
	}
	socket := filepath.Join(h.kept, "t.sock")
	var config strings.Builder
	fmt.Fprintf(&config, "tmuxd:\n  host: %s\n  data_dir: %s\n  listen: unix:%s\n  log_level: WARN\n  make_directory: true\n  trees_min_free_mib: 1\n"+
		"  harnesses: {fakeagent: {binary: %s/agent, channel: %s}}\n", name, h.dir, socket, h.kept, f.Channel)
	if lib, _ := filepath.Glob(faketime); len(lib) > 0 {
		tmux, err := exec.LookPath("tmux")
		if err != nil {
			return err
		}
		script := filepath.Join(h.kept, "tmux")
		if err := errors.Join(os.WriteFile(script, fmt.Appendf(nil, tmuxScript, h.kept, lib[0], tmux), 0o700), h.stepTmux(0)); err != nil {
			return err
		}
		fmt.Fprintf(&config, "  tmux: %s\n", script)
	}
	if h.node != nil {
		files, err := f.certify(ca, identity.Host(name), name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&config, "  tls: {listen: '%s:%d', cert_file: %s, key_file: %s, ca_file: %s}\n", h.node.address, tmuxdPort, files.Cert, files.Key, files.CA)
	}
	file := filepath.Join(h.kept, "muxpost.yaml")
	if err := errors.Join(os.WriteFile(file, []byte(config.String()), 0o600), h.stepClock(0)); err != nil {
		return err
	}
	h.tmuxd = f.process("tmuxd "+name, "muxpost-tmuxd", within,
		[]string{"FAKEAGENT_TURN=20ms", "FAKEAGENT_READY_AFTER=50ms", clockVariable + "=" + filepath.Join(h.kept, "clock")}, "--config", file)
	return nil
}

// clockVariable names the file that says by how many seconds the clock of a program is stepped, if it is built for that (build.go).
const clockVariable = "MUXPOST_DRILL_CLOCK"

func (h *host) stepClock(seconds int) error {
	return os.WriteFile(filepath.Join(h.kept, "clock"), fmt.Appendf(nil, "%d\n", seconds), 0o600)
}

func (h *host) stepTmux(seconds int) error {
	return os.WriteFile(filepath.Join(h.kept, "tmux-clock"), fmt.Appendf(nil, "%+d\n", seconds), 0o600)
}

// addReplica writes the configuration of one dispatcher and one poller, and lays the lines to the hosts.
func (f *fleet) addReplica(_ context.Context, i int, hooks string, files identity.Files) error {
	var hosts strings.Builder
	var within []string
	var own *node
	if f.network != nil {
		var err error
		if own, err = f.network.add(); err != nil {
			return err
		}
		within = own.within()
	}
	for _, h := range f.hosts {
		address := ""
		if own != nil {
			flt := &filter{host: h.node, log: f.Log, broken: map[string][]Kind{}}
			if i > 0 {
				flt = h.lines[0].(filtered).filter
			}
			h.lines[i], address = filtered{flt, own}, fmt.Sprintf("%s:%d", h.node.address, tmuxdPort)
		} else {
			path := filepath.Join(h.kept, fmt.Sprintf("w%d.sock", i))
			w, err := newWire(path, filepath.Join(h.kept, "t.sock"))
			if err != nil {
				return err
			}
			f.closers = append(f.closers, w.Close)
			h.lines[i], address = w, "unix:"+path
		}
		fmt.Fprintf(&hosts, "    - {name: %s, address: %q}\n", h.name, address)
	}
	sock := func(service string) string { return "unix:" + f.path(fmt.Sprintf("%s%d.sock", service, i)) }
	// Agents are killed here more often than an item may bear without being parked, and more is written than people write.
	config := fmt.Sprintf("dispatcher:\n  listen: %s\n  data_dir: %s\n  database_url: %q\n  harness: fakeagent\n  log_level: WARN\n  breaker: {deaths: 0}\n",
		sock("d"), f.path(fmt.Sprintf("c%d", i)), f.postgres.url)
	if own != nil {
		config += fmt.Sprintf("  tls: {cert_file: %s, key_file: %s, ca_file: %s}\n", files.Cert, files.Key, files.CA)
	}
	config += fmt.Sprintf("  hosts:\n%spoller:\n  listen: %s\n  data_dir: %s\n  database_url: %q\n  dispatcher: %s\n  log_level: WARN\n  loop_posts: 0\n"+
		"  webhook: {listen: %q, secret_file: %s}\n  sources:\n    - name: %s\n      kind: github\n      base_url: %s\n      host: github.com\n"+
		"      token_file: %s\n      repositories: [%s/%s]\n      label: %s\n      authors: [%s]\n      interval: %s\n      webhook: true\n",
		hosts.String(), sock("p"), f.path(fmt.Sprintf("c%d", i)), f.postgres.url, sock("d"), hooks, f.path("secret"), repo, f.githubURL,
		f.path("token"), owner, repo, label, author, f.Interval)
	file, clock := f.path(fmt.Sprintf("c%d.yaml", i)), f.path(fmt.Sprintf("clock%d", i))
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), os.WriteFile(clock, []byte("0\n"), 0o600)); err != nil {
		return err
	}
	env := []string{clockVariable + "=" + clock}
	f.dispatchers = append(f.dispatchers, f.process(fmt.Sprintf("dispatcher %d", i), "muxpost-dispatcher", within, env, "--config", file))
	f.pollers = append(f.pollers, f.process(fmt.Sprintf("poller %d", i), "muxpost-poller", nil, env, "--config", file))
	conn, err := rpc.Dial(sock("p"), rpc.DialOptions{Name: "the poller", Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	f.closeConn(conn)
	f.submit = append(f.submit, pollerv1.NewPollerServiceClient(conn))
	return nil
}

func (f *fleet) closeConn(conn *grpc.ClientConn) {
	f.closers = append(f.closers, func() { _ = conn.Close() })
}

// stepCenter steps the clock of a dispatcher and a poller.
func (f *fleet) stepCenter(i, seconds int) error {
	return os.WriteFile(f.path(fmt.Sprintf("clock%d", i)), fmt.Appendf(nil, "%d\n", seconds), 0o600)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a moment
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// The repository that is watched.
const (
	owner  = "octo"
	repo   = "widget"
	label  = "muxpost"
	author = "alice"
)

// itemName is the work item of the drill's number i, whose issue is i+1; its pull request is i+1+items.
func itemName(i int) string { return fmt.Sprintf("github:%s/%s#%d", owner, repo, i+1) }

func (f *fleet) startGitHub(hooks []string) error {
	secret := "not a secret outside of the drill"
	r := fakegithub.Repo{Owner: owner, Name: repo, Associations: map[string]string{author: fakegithub.Member}}
	for i := range f.Items {
		r.Issues = append(r.Issues, fakegithub.Issue{Number: i + 1, Title: fmt.Sprintf("Drill %d", i+1), Author: author, Labels: []string{label}})
	}
	for i := range f.Items {
		r.Issues = append(r.Issues, fakegithub.Issue{Number: i + 1 + f.Items, Title: fmt.Sprintf("For drill %d", i+1), Author: author,
			Body: fmt.Sprintf("Closes #%d", i+1), Pull: &fakegithub.Pull{Head: fmt.Sprintf("muxpost/%d", i+1)}})
	}
	for _, h := range hooks {
		r.Hooks = append(r.Hooks, fakegithub.Hook{URL: "http://" + h + "/webhooks/" + repo, Secret: secret})
	}
	seed, err := json.Marshal(fakegithub.Seed{Tokens: map[string]string{"token-" + author: author, "token-bot": "loopbot"}, Repos: []fakegithub.Repo{r}})
	if err != nil {
		return err
	}
	file := f.path("github.json")
	if f.githubURL, err = freeAddress(); err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(file, seed, 0o600), os.WriteFile(f.path("token"), []byte("token-bot\n"), 0o600),
		os.WriteFile(f.path("secret"), []byte(secret+"\n"), 0o600)); err != nil {
		return err
	}
	f.github = f.process("github", "fakegithub", nil, nil, "-listen", f.githubURL, "-seed", file, "-rate-limit", "1000000")
	f.githubURL = "http://" + f.githubURL
	return f.github.start()
}

// Close ends everything, the agents' tmux servers too.
func (f *fleet) Close() {
	for _, p := range append(append([]*process{}, f.dispatchers...), f.pollers...) {
		p.kill()
	}
	for _, h := range f.hosts {
		if h.tmuxd != nil {
			h.tmuxd.kill()
		}
	}
	for _, s := range scan(f).servers {
		_ = syscall.Kill(s.pid, syscall.SIGCONT)
		_ = syscall.Kill(s.pid, syscall.SIGTERM)
	}
	if f.github != nil {
		f.github.kill()
	}
	for _, closer := range f.closers {
		closer()
	}
	if f.network != nil {
		f.network.close()
	}
	for _, h := range f.hosts {
		if h.disk == nil {
			continue
		}
		if f.Keep {
			_ = command("cp", "-a", h.dir, h.kept+"/disk")
		}
		h.disk.close()
	}
	if f.pool != nil {
		f.pool.Close()
	}
	if f.postgres != nil {
		f.postgres.close()
	}
}

// postgres is the database, which can be stopped, killed and started again.
type postgres struct {
	dir, url string
	// acting is held while it is being restarted or signalled: one that was killed while its processes stand still never comes back, because they
	// keep its memory.
	acting  sync.Mutex
	cluster *local.Cluster
}

// database is the name of the product's database.
const database = "muxpost"

func newPostgres(ctx context.Context, dir string) (*postgres, error) {
	p := &postgres{dir: dir}
	return p, p.start(ctx)
}

func (p *postgres) start(ctx context.Context) error {
	c, err := local.Start(ctx, local.Options{Dir: p.dir})
	if err != nil {
		return err
	}
	p.cluster = c
	if url := c.URL(database); p.url == "" {
		p.url = url
	} else if p.url != url {
		return fmt.Errorf("the database was at %s and is at %s", p.url, url)
	}
	return nil
}

// restart ends it, as an operator would or by a KILL, and starts it again after a while. One that was being stopped goes on first.
func (p *postgres) restart(ctx context.Context, kill bool, away time.Duration) error {
	p.acting.Lock()
	defer p.acting.Unlock()
	p.tell(syscall.SIGCONT)
	if kill {
		_ = syscall.Kill(p.cluster.Pid(), syscall.SIGKILL)
		<-p.cluster.Done()
	} else if err := p.cluster.Stop(ctx); err != nil {
		return err
	}
	time.Sleep(away)
	var err error
	for range startTries {
		// What a killed one left takes a moment to see that it is alone.
		if err = p.start(ctx); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

// startTries is how often, a second apart, the database is started.
const startTries = 30

// signal reaches the postmaster and what it has started.
func (p *postgres) signal(s syscall.Signal) {
	p.acting.Lock()
	defer p.acting.Unlock()
	p.tell(s)
}

func (p *postgres) tell(s syscall.Signal) {
	for _, pid := range append([]int{p.cluster.Pid()}, children(p.cluster.Pid())...) {
		_ = syscall.Kill(pid, s)
	}
}

func (p *postgres) close() {
	p.acting.Lock()
	defer p.acting.Unlock()
	if p.cluster != nil {
		_ = p.cluster.Stop(context.Background())
	}
}
