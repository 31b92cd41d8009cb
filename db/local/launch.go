package local

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	// orphanPatience is how long the children of a killed postmaster may take to leave its shared memory.
	orphanPatience = 10 * time.Second
	// maxLog is the size at which the log of earlier runs is put aside, in bytes.
	maxLog = 10 << 20
)

// major returns the version that made the cluster, and 0 when there is none.
func (h *home) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's version cannot be read", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fault.Newf(fault.Invalid, fault.ReasonStorage, "%s does not hold a cluster that can be read", h.data())
	}
	return n, nil
}

// ensureCluster runs initdb where there is no cluster yet. It works under another name, so that what an interrupted run leaves
// is never taken for a cluster; the lock is held, so what stands there under such a name is dead.
func (h *home) ensureCluster(ctx context.Context, bin Binaries, opts Options) error {
	leftovers, _ := filepath.Glob(filepath.Join(h.dir, newPrefix+"*"))
	for _, dir := range leftovers {
		_ = os.RemoveAll(dir)
	}
	if major, err := h.major(); err != nil || major != 0 {
		return err
	}
	if _, err := os.Lstat(h.data()); err == nil {
		return fault.Newf(fault.Invalid, fault.ReasonStorage, "%s is there and is not a database cluster", h.data()).
			WithRemedy("name another directory, or look into this one and remove it")
	}
	fresh, err := os.MkdirTemp(h.dir, newPrefix)
	if err == nil && h.owner.drop {
		err = os.Chown(fresh, h.owner.uid, h.owner.gid)
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "no directory for a new cluster can be made", err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()

	began := time.Now()
	args := []string{"-D", fresh, "-U", "postgres", "--auth-local=trust", "--auth-host=reject", "-E", "UTF8", "--no-locale"}
	if opts.Temporary {
		args = append(args, "--no-sync")
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, bin.Initdb(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	child, err := h.spawn(cmd, lifeTied, syscall.SIGKILL)
	if err == nil {
		<-child.done
		err = child.err
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "initdb failed: "+lastLines(out.String(), 5), err)
	}
	if err := os.Rename(fresh, h.data()); err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the new cluster cannot be put in its place", err)
	}
	if !opts.Temporary {
		if err := syncDir(h.dir); err != nil {
			return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "the new cluster cannot be written to disk", err)
		}
	}
	opts.Logger.Info("made a database cluster", "dir", h.dir, "took", time.Since(began))
	return nil
}

// launch starts the postmaster and waits until it answers. After a crash the first tries may meet orphans that still use the
// shared memory, on which Postgres exits; they leave within seconds, so it is tried again for as long.
func (h *home) launch(ctx context.Context, bin Binaries, opts Options) (*Cluster, error) {
	crashed, err := h.clearStale()
	if err != nil {
		return nil, err
	}
	if h.socket != h.dir {
		opts.Logger.Info("the socket has a directory of its own, for the cluster's path is too long", "dir", h.dir, "socket_dir", h.socket)
	}
	began := time.Now()
	for {
		c, err := h.launchOnce(ctx, bin, opts)
		if err == nil {
			opts.Logger.Info("started a database", "dir", h.dir, "pid", c.pid, "took", time.Since(began))
			return c, nil
		}
		if !crashed || time.Since(began) > orphanPatience || !sleep(ctx, 200*time.Millisecond) {
			return nil, err
		}
	}
}

func (h *home) launchOnce(ctx context.Context, bin Binaries, opts Options) (*Cluster, error) {
	if info, err := os.Lstat(h.logPath()); err == nil && info.Size() > maxLog {
		_ = os.Rename(h.logPath(), h.logPath()+".1")
	}
	logFile, err := openPrivate(h.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, h.owner)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the database's log cannot be opened", err)
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command(bin.Postgres(), h.arguments(opts.Temporary)...) //nolint:noctx // it outlives the call
	cmd.Stdout, cmd.Stderr = logFile, logFile

	life, last := lifeTied, syscall.SIGINT
	if opts.Detached {
		life = lifeDetached
	}
	if opts.Temporary {
		last = syscall.SIGQUIT
	}
	child, err := h.spawn(cmd, life, last)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "postgres cannot be started as "+h.owner.name, err)
	}
	c := &Cluster{
		home: h, pid: cmd.Process.Pid, socket: h.socket, port: port, log: opts.Logger,
		started: true, temporary: opts.Temporary, child: child,
	}
	for {
		pingErr := c.ping(ctx)
		if pingErr == nil {
			return c, nil
		}
		select {
		case <-child.done:
			return nil, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "postgres ended at its start: "+c.LogTail(5), child.err).
				WithRemedy("look into " + h.logPath())
		default:
		}
		if !sleep(ctx, 20*time.Millisecond) {
			_ = c.end(ctx, stopImmediate)
			return nil, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "postgres did not answer in time: "+c.LogTail(5), pingErr).
				WithRemedy("look into " + h.logPath())
		}
	}
}

// arguments puts what matters on the command line, where it wins over the cluster's files. The data directory comes as -D,
// which is what isPostmaster looks for.
func (h *home) arguments(temporary bool) []string {
	settings := []string{
		"listen_addresses=", "port=" + strconv.Itoa(port), "unix_socket_permissions=0700",
		`unix_socket_directories="` + strings.ReplaceAll(h.socket, `"`, `""`) + `"`,
		"max_connections=200", "logging_collector=off", "log_destination=stderr", "log_line_prefix=%m [%p] %q%a@%d ",
		"timezone=UTC", "log_timezone=UTC",
	}
	if temporary {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	} else {
		// Terse leaves out the details, which quote whole rows.
		settings = append(settings, "fsync=on", "log_error_verbosity=terse")
	}
	args := []string{"-D", h.data()}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// environment leaves out what would change the server (PGDATA, PGPORT, LC_ALL ...) and whatever secrets this process holds.
func (h *home) environment() []string {
	env := []string{"HOME=" + h.dir, "LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
