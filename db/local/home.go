package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	// UserVariable names the environment variable that says as whom a cluster runs when root starts it.
	UserVariable = "MUXPOST_PG_USER"

	port = 5432 // a name in the socket's directory, not a port of the machine
	// maxSocketPath leaves room below the kernel's 107 bytes for the lock file's suffix and for other systems' smaller limits.
	maxSocketPath = 91
	tempPrefix    = "muxpost-pg-"
	socketPrefix  = "muxpost-sock-"
	newPrefix     = "data.new-"
)

// owner is the user as whom the cluster runs.
type owner struct {
	uid, gid int
	name     string
	drop     bool // this process is root and must become the user for the child
}

func chooseOwner(name string) (owner, error) {
	if uid := os.Geteuid(); uid != 0 {
		return owner{uid: uid, gid: os.Getegid(), name: "uid " + strconv.Itoa(uid)}, nil
	}
	if name == "" {
		name = os.Getenv(UserVariable)
	}
	if name == "" {
		name = defaultOwner()
	}
	remedy := "name an unprivileged user in " + UserVariable
	u, err := user.Lookup(name)
	if err != nil {
		return owner{}, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "Postgres does not run as root, and the user for it is unknown", err).
			WithRemedy(remedy)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if uidErr != nil || gidErr != nil || uid == 0 {
		return owner{}, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "Postgres does not run as root, and user %q will not do", name).
			WithRemedy(remedy)
	}
	return owner{uid: uid, gid: gid, name: name, drop: true}, nil
}

// defaultOwner prefers the account that the packages of Postgres make: that of nobody is shared, and whoever has it could read along.
func defaultOwner() string {
	if _, err := user.Lookup("postgres"); err == nil {
		return "postgres"
	}
	return "nobody"
}

// home is a cluster's directory.
type home struct {
	dir    string // absolute, links resolved
	owner  owner
	socket string // the directory of the socket, for a start
}

func (h *home) data() string    { return filepath.Join(h.dir, "data") }
func (h *home) logPath() string { return filepath.Join(h.dir, "postgres.log") }
func (h *home) lockFile() string {
	return filepath.Join(h.dir, "lock")
}

// openHome makes or takes the directory and checks everything that Postgres would complain about in words of its own.
func openHome(opts Options, o owner) (*home, error) {
	dir := opts.Dir
	if dir == "" {
		if !opts.Temporary {
			return nil, fault.New(fault.Invalid, fault.ReasonBadConfig, "a cluster that is kept needs a directory")
		}
		sweep(o)
		made, err := os.MkdirTemp("", tempPrefix)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "no directory for a temporary cluster can be made", err)
		}
		dir = made
	}
	h, err := takeHome(dir, opts.Temporary, o)
	if err != nil && opts.Dir == "" {
		_ = os.Remove(dir)
	}
	return h, err
}

func takeHome(dir string, temporary bool, o owner) (*home, error) {
	dir, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be made", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be made", err)
	}
	if dir, err = absolute(dir); err != nil {
		return nil, err
	}
	h := &home{dir: dir, owner: o}
	for _, step := range []func() error{h.checkParents, func() error { return h.checkEntries(temporary) }, h.take, h.chooseSocket} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// absolute resolves what exists of a path, so that the same directory always has the same name.
func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the cluster's directory has no absolute path", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}

// checkParents finds the directory above that the unprivileged user may not enter. Without it initdb fails with a text about
// the wrong directory.
func (h *home) checkParents() error {
	if !h.owner.drop {
		return nil
	}
	for dir := filepath.Dir(h.dir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "a directory above the cluster cannot be looked at", err)
		}
		if !mayEnter(info, h.owner) {
			return fault.Newf(fault.Invalid, fault.ReasonStorage, "Postgres runs as user %s, who may not enter %s (mode %#o), and so not reach %s",
				h.owner.name, dir, info.Mode().Perm(), h.dir).
				WithRemedy("put the cluster where every directory above it may be entered, such as /var/lib/muxpost, or run chmod a+x " + dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func mayEnter(info fs.FileInfo, o owner) bool {
	uid, gid := fileOwner(info)
	switch {
	case uid == o.uid:
		return info.Mode()&0o100 != 0
	case gid == o.gid:
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}

// checkEntries refuses a directory that holds anything but a cluster of ours: it is about to change owner and mode, and a
// temporary one will be removed.
func (h *home) checkEntries(temporary bool) error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be read", err)
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == "lock", name == "postgres.log", name == "postgres.log.1", strings.HasPrefix(name, newPrefix),
			strings.HasPrefix(name, ".s.PGSQL."):
		case name == "data" && !temporary:
		case name == "data":
			return fault.Newf(fault.Invalid, fault.ReasonStorage, "%s holds a cluster, and a temporary one would be removed at its end", h.dir).
				WithRemedy("name a directory that does not exist")
		default:
			return fault.Newf(fault.Invalid, fault.ReasonStorage, "%s holds %q, which is no part of a database cluster", h.dir, name).
				WithRemedy("name a directory for the cluster alone")
		}
	}
	return nil
}

// take makes the directory private to the cluster's user.
func (h *home) take() error {
	info, err := os.Stat(h.dir)
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be looked at", err)
	}
	uid, _ := fileOwner(info)
	if uid != h.owner.uid && (!h.owner.drop || uid != 0) {
		return h.notOurs(h.dir, uid)
	}
	if info, err := os.Stat(h.data()); err == nil {
		if uid, _ := fileOwner(info); uid != h.owner.uid {
			return h.notOurs(h.data(), uid)
		}
	}
	if uid != h.owner.uid {
		if err := os.Chown(h.dir, h.owner.uid, h.owner.gid); err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be given to user "+h.owner.name, err)
		}
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(h.dir, 0o700); err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be made private", err)
		}
	}
	return nil
}

func (h *home) notOurs(path string, uid int) error {
	name := "uid " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	return fault.Newf(fault.Invalid, fault.ReasonStorage, "%s belongs to %s, and Postgres would run as %s", path, name, h.owner.name).
		WithRemedy(fmt.Sprintf("as root set %s=%s, or give the directory away with chown -R", UserVariable, name))
}

// chooseSocket picks the directory itself, or a short one where the path would not fit into a socket's address. The short one
// has a name made from the directory's, so that a crash leaves at most one, and the next start takes it again.
func (h *home) chooseSocket() error {
	h.socket = h.dir
	if fits(h.dir) {
		return nil
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(h.owner.uid) + h.dir))
	name := socketPrefix + hex.EncodeToString(sum[:6])
	for _, tmp := range []string{os.TempDir(), "/tmp"} {
		if h.socket = filepath.Join(tmp, name); fits(h.socket) {
			break
		}
	}
	if err := os.Mkdir(h.socket, 0o700); err == nil && h.owner.drop {
		err = os.Chown(h.socket, h.owner.uid, h.owner.gid)
		if err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the socket's directory cannot be given to user "+h.owner.name, err)
		}
	}
	// Others may write to the temporary directory too: what stands there must be ours, and private.
	info, err := os.Lstat(h.socket)
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "no directory for the socket can be made", err)
	}
	if uid, _ := fileOwner(info); !info.IsDir() || uid != h.owner.uid || info.Mode().Perm() != 0o700 {
		return fault.Newf(fault.Invalid, fault.ReasonStorage, "%s is not a private directory of user %s", h.socket, h.owner.name).
			WithRemedy("remove it, or give the cluster a directory with a shorter path")
	}
	return nil
}

// fits reports whether a socket in dir has an address that the kernel takes and that a URL's host can say: pgx splits at commas.
func fits(dir string) bool {
	return len(filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(port))) <= maxSocketPath && !strings.Contains(dir, ",")
}

// lock waits until this process alone may change the cluster. The lock goes with the process, however it ends.
func (h *home) lock(ctx context.Context) (unlock func(), err error) {
	f, err := openPrivate(h.lockFile(), os.O_CREATE|os.O_RDWR, h.owner)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's lock file cannot be opened", err)
	}
	for {
		got, err := tryLock(f)
		if err != nil {
			_ = f.Close()
			return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the cluster's directory cannot be locked", err)
		}
		if got {
			return func() { _ = f.Close() }, nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			_ = f.Close()
			return nil, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "another process is starting the cluster in "+h.dir, ctx.Err()).
				WithRemedy("wait for it to finish, or end it")
		}
	}
}

// remove deletes the whole directory, and the socket's when that is another.
func (h *home) remove() error {
	h.removeSocket(h.socket)
	return os.RemoveAll(h.dir)
}

func (h *home) removeSocket(dir string) {
	if dir != h.dir && strings.HasPrefix(filepath.Base(dir), socketPrefix) {
		_ = os.Remove(dir)
	}
}

// sweep removes the directories of temporary clusters whose process was killed: their lock is free. One that is younger than a
// minute is left alone, for it may be between being made and being locked.
func sweep(o owner) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if uid, _ := fileOwner(info); uid != o.uid && uid != os.Geteuid() {
			continue
		}
		h := &home{dir: dir, owner: o, socket: dir}
		f, err := openPrivate(h.lockFile(), os.O_RDWR, o)
		if err != nil {
			continue
		}
		if got, err := tryLock(f); got && err == nil {
			if _, running, err := h.postmaster(); err == nil && !running {
				_ = h.remove()
			}
		}
		_ = f.Close()
	}
}

// sleep waits for d, and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
