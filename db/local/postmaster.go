package local

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
)

// pidFile is what a postmaster writes about itself into its data directory.
type pidFile struct {
	pid      int
	port     int
	socket   string
	stopping bool
}

// parsePidFile reads postmaster.pid: one value a line. A postmaster that has just begun has written only the first lines.
func parsePidFile(text string) (pidFile, bool) {
	lines := strings.Split(text, "\n")
	line := func(i int) string {
		if i < len(lines) {
			return strings.TrimSpace(lines[i])
		}
		return ""
	}
	pid, err := strconv.Atoi(line(0))
	// A negative number is a single-user session, which serves nobody.
	if err != nil || pid <= 0 {
		return pidFile{}, false
	}
	portNumber, _ := strconv.Atoi(line(3))
	return pidFile{pid: pid, port: portNumber, socket: line(4), stopping: line(7) == "stopping"}, true
}

// postmaster reads who claims the data directory, and proves or disproves the claim by the process's command line.
func (h *home) postmaster() (pidFile, bool, error) {
	text, err := os.ReadFile(filepath.Join(h.data(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return pidFile{}, false, nil
	}
	if err != nil {
		return pidFile{}, false, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's pid file cannot be read", err)
	}
	pf, ok := parsePidFile(string(text))
	if !ok {
		return pidFile{}, false, nil
	}
	proven, err := isPostmaster(pf.pid, h.data())
	if err != nil {
		return pf, false, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "it cannot be told whether process "+strconv.Itoa(pf.pid)+
			" is the postmaster of "+h.dir, err).WithRemedy("look with ps, as root or as the cluster's user")
	}
	return pf, proven, nil
}

// attach waits until the running postmaster answers. It is fault.NotFound when none runs, or when the one that ran has stopped.
func (h *home) attach(ctx context.Context, log *slog.Logger) (*Cluster, error) {
	for {
		pf, proven, err := h.postmaster()
		if err != nil {
			return nil, err
		}
		if !proven {
			return nil, fault.Newf(fault.NotFound, fault.ReasonDatabase, "no database runs in %s", h.dir)
		}
		err = errors.New("it is starting or stopping")
		if !pf.stopping && pf.socket != "" {
			c := &Cluster{home: h, pid: pf.pid, socket: pf.socket, port: pf.port, log: log}
			if err = c.ping(ctx); err == nil {
				return c, nil
			}
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, fault.Wrap(fault.Unavailable, fault.ReasonDatabase,
				"the postmaster in "+h.dir+" (process "+strconv.Itoa(pf.pid)+") runs and does not answer", err).
				WithRemedy("look into " + h.logPath())
		}
	}
}

// clearStale removes a pid file whose number now belongs to some other process, or to a dead one that nobody has reaped:
// Postgres knows only that the number is taken, and would refuse for ever. It reports whether a crash came before. The
// orphans of a crash are another matter: Postgres finds them by the shared memory, and the file plays no part in that.
func (h *home) clearStale() (crashed bool, err error) {
	path := filepath.Join(h.data(), "postmaster.pid")
	if _, err := os.Lstat(path); err != nil {
		return false, nil //nolint:nilerr // no file, nothing stale
	}
	if _, proven, err := h.postmaster(); err != nil || proven {
		return true, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the pid file of a dead postmaster cannot be removed", err)
	}
	return true, nil
}

// ping asks the server for one answer.
func (c *Cluster) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}
