// Package local runs a Postgres of our own from the server programs that are on the machine: a kept cluster for `muxpost up`,
// a temporary one for tests.
//
// A cluster lives in one directory (mode 0700): data, the socket, the log. It listens on a unix socket alone, and whoever may
// enter the directory is trusted, so there is no password to keep. Postgres refuses to run as root; started by root, the
// cluster runs as an unprivileged user who is given the directory.
//
// One postmaster at most has a directory. A second Start finds it by postmaster.pid, proves by the process's own command line
// that it is that cluster's, and attaches; nothing is ever signalled without that proof. A half-made cluster cannot be: initdb
// works under another name, and the data directory appears by a rename.
//
// The package runs on Linux, as tmuxd does; elsewhere it builds, and Start says so. It knows no schema and no service.
package local

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// patience bounds a start or a stop whose context has no deadline.
const patience = 60 * time.Second

// Options say what Start runs, and where.
type Options struct {
	// Dir is the cluster's directory, made when missing. It may hold nothing else. It may be empty when Temporary is set: then
	// a new directory is made under os.TempDir, and what killed processes left behind there is removed.
	Dir string
	// Temporary gives up durability for speed and removes the directory at Stop.
	Temporary bool
	// Detached lets the postmaster outlive this process. Otherwise the kernel stops it when this process dies, however it dies.
	Detached bool
	// User is the unprivileged user who runs the cluster when root starts it. Empty means $MUXPOST_PG_USER,
	// then "postgres" where there is such a user, then "nobody".
	User string
	// Binaries are the programs to run. The zero value means what Find returns or, for a cluster that exists, the programs of
	// the version that made it.
	Binaries Binaries
	// Logger receives a few lines about starting and stopping; Postgres has a log of its own in the directory. Nil is silence.
	Logger *slog.Logger
}

// Start brings the cluster in opts.Dir up and returns when it answers: it makes the cluster when there is none, recovers it
// after a crash, and attaches to its postmaster when one runs already (Started is then false). The context bounds the start
// alone; without a deadline a start may take a minute. Programs that are missing are fault.NotFound; a directory that cannot
// serve is fault.Invalid and named; anything else that went wrong is fault.Unavailable, with the last lines of Postgres's log.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	owner, err := chooseOwner(opts.User)
	if err != nil {
		return nil, err
	}
	home, err := openHome(opts, owner)
	if err != nil {
		return nil, err
	}
	unlock, err := home.lock(ctx)
	if err != nil {
		return nil, err
	}
	c, err := startLocked(ctx, opts, home)
	if err != nil {
		// A temporary directory that we made for nothing is not left behind.
		if opts.Temporary {
			_ = home.remove()
		}
		unlock()
		return nil, err
	}
	// A temporary cluster keeps its lock: while it is held, nobody takes the directory for one left behind.
	if opts.Temporary {
		c.unlock = unlock
	} else {
		unlock()
	}
	return c, nil
}

func startLocked(ctx context.Context, opts Options, home *home) (*Cluster, error) {
	c, err := home.attach(ctx, opts.Logger)
	switch {
	case err == nil:
		opts.Logger.Info("attached to the running database", "dir", home.dir, "pid", c.pid)
		return c, nil
	case !errors.Is(err, fault.NotFound):
		return nil, err
	}
	bin, err := home.binaries(ctx, opts.Binaries)
	if err != nil {
		return nil, err
	}
	if err := home.ensureCluster(ctx, bin, opts); err != nil {
		return nil, err
	}
	return home.launch(ctx, bin, opts)
}

// Attach returns the cluster whose postmaster runs in dir, whoever started it. When none runs it is fault.NotFound.
func Attach(ctx context.Context, dir string) (*Cluster, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	home, err := existingHome(dir)
	if err != nil {
		return nil, err
	}
	return home.attach(ctx, slog.New(slog.DiscardHandler))
}

// Stop stops the postmaster that runs in dir, whoever started it, and returns when it is gone. When none runs there is nothing
// to do. A postmaster that has not stopped when the time is up (a minute, when ctx has no deadline) is told to leave its
// clients and its work at once, from which it recovers at the next start.
func Stop(ctx context.Context, dir string) error {
	if err := supported(); err != nil {
		return err
	}
	home, err := existingHome(dir)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	pf, proven, err := home.postmaster()
	if err != nil || !proven {
		return err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	c := &Cluster{home: home, pid: pf.pid, socket: pf.socket, log: slog.New(slog.DiscardHandler)}
	return c.end(ctx, stopFast)
}

func existingHome(dir string) (*home, error) {
	abs, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	h := &home{dir: abs}
	if _, err := os.Stat(h.data()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Newf(fault.NotFound, fault.ReasonDatabase, "there is no database cluster in %s", abs)
		}
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the database cluster cannot be looked at", err)
	}
	return h, nil
}

func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, patience)
}
