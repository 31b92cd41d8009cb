package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
)

// refused runs a Start that must fail, and checks what it says.
func refused(t *testing.T, opts Options, kind fault.Kind, words ...string) {
	t.Helper()
	needPostgres(t)
	c, err := Start(bounded(t), opts)
	if err == nil {
		_ = c.Stop(bounded(t))
		t.Fatal("it started")
	}
	if !errors.Is(err, kind) {
		t.Errorf("%v is %v, want %v", err, fault.KindOf(err), kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestStart_RefusesADirectoryThatHoldsOtherThings(t *testing.T) {
	dir := scratch(t)
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, Options{Dir: dir}, fault.Invalid, dir, "thesis.txt")
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if uid, _ := fileOwner(info); uid != os.Geteuid() || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory was taken all the same: uid %d, mode %v", uid, info.Mode())
	}
}

func TestStart_NeedsADirectoryToKeep(t *testing.T) {
	refused(t, Options{}, fault.Invalid, "directory")
}

func TestStart_TemporaryNeverTakesAClusterThatIsThere(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	if err := start(t, opts).Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	opts.Temporary = true
	refused(t, opts, fault.Invalid, opts.Dir, "removed")
	if _, err := os.Stat(filepath.Join(opts.Dir, "data", "PG_VERSION")); err != nil {
		t.Error(err)
	}
}

func TestStart_NamesTheDirectoryThatTheUserMayNotEnter(t *testing.T) {
	needRoot(t)
	shut := filepath.Join(scratch(t), "shut")
	if err := os.Mkdir(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, Options{Dir: filepath.Join(shut, "below", "pg")}, fault.Invalid, defaultOwner(), "may not enter "+shut+" ", "/var/lib/muxpost")
}

func TestStart_NamesWhoOwnsAnotherUsersCluster(t *testing.T) {
	needRoot(t)
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	if err := start(t, opts).Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	opts.User = "daemon"
	refused(t, opts, fault.Invalid, opts.Dir, defaultOwner(), "daemon", UserVariable)
}

func TestStart_ByRootRefusesRootAndUnknownUsers(t *testing.T) {
	needRoot(t)
	for _, user := range []string{"root", "no-such-user"} {
		refused(t, Options{Temporary: true, User: user}, fault.Invalid, "root", UserVariable)
	}
}

func TestStart_RefusesAClusterOfAnotherVersion(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	if err := start(t, opts).Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(opts.Dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, opts, fault.Invalid, "PostgreSQL 9", "pg_upgrade")
}

func TestStart_ShowsPostgressOwnWordsWhenItEnds(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	if err := start(t, opts).Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(opts.Dir, "data", "postgresql.conf")
	if err := os.WriteFile(conf, []byte("shared_buffers = lots\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, opts, fault.Unavailable, "shared_buffers", "postgres.log")
}

func TestStart_AnInterruptedInitdbLeavesNoCluster(t *testing.T) {
	needPostgres(t)
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, opts); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("a start without time: %v", err)
	}
	// A process that was killed could not even clean up.
	left := filepath.Join(opts.Dir, newPrefix+"killed")
	if err := os.MkdirAll(filepath.Join(left, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(opts.Dir, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("there is a data directory: %v", err)
	}
	start(t, opts)
	if found, _ := filepath.Glob(filepath.Join(opts.Dir, newPrefix+"*")); len(found) != 0 {
		t.Errorf("left behind: %v", found)
	}
}

func TestStart_LongPathGetsAShortSocketDirectory(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), strings.Repeat("long", 30), "pg,with comma")}
	c := start(t, opts)
	if c.SocketDir() == c.Dir() || len(c.SocketDir()) > 80 {
		t.Fatalf("the socket is in %s", c.SocketDir())
	}
	if info, err := os.Lstat(c.SocketDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", info, err)
	}
	attached, err := Attach(bounded(t), opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := query(t, attached, "select 'up'"); got != "up" {
		t.Error(got)
	}
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(c.SocketDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory is left: %v", err)
	}
}

func TestStart_RefusesASocketDirectoryOfAnother(t *testing.T) {
	needRoot(t)
	o, err := chooseOwner("")
	if err != nil {
		t.Fatal(err)
	}
	h := &home{dir: "/" + strings.Repeat("x", 100), owner: o}
	if err := h.chooseSocket(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(h.socket) })
	if err := os.Chown(h.socket, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := h.chooseSocket(); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), h.socket) {
		t.Errorf("got %v", err)
	}
}

// sleeper starts a process as the cluster's user, whose number a stale pid file may come to name.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	o, err := chooseOwner("")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if o.drop {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestStop_NeverSignalsAProcessThatIsNotThePostmaster(t *testing.T) {
	opts := Options{Dir: filepath.Join(scratch(t), "pg")}
	c := start(t, opts)
	if err := c.Stop(bounded(t)); err != nil {
		t.Fatal(err)
	}
	other := sleeper(t)
	text := fmt.Sprintf("%d\n%s\n1700000000\n5432\n%s\n\n  1 2\nready   \n", other.Process.Pid, c.home.data(), c.Dir())
	pidPath := filepath.Join(c.home.data(), "postmaster.pid")
	if err := os.WriteFile(pidPath, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(pidPath, c.home.owner.uid, c.home.owner.gid); err != nil {
		t.Fatal(err)
	}
	if err := Stop(bounded(t), opts.Dir); err != nil {
		t.Fatal(err)
	}
	if err := signalPostmaster(other.Process.Pid, c.home.data(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the other process was ended: %v", err)
	}
	// Postgres alone would refuse for as long as that process lives.
	if again := start(t, opts); !again.Started() {
		t.Error("it attached to a process that is no postmaster")
	}
}

func TestIsPostmaster_TellsAPostmasterFromItsBackendsAndFromOthers(t *testing.T) {
	c := start(t, Options{Temporary: true})
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for name, tc := range map[string]struct {
		pid  int
		data string
		want bool
	}{
		"itself":            {c.Pid(), c.home.data(), true},
		"another directory": {c.Pid(), c.Dir(), false},
		"a backend":         {int(conn.PgConn().PID()), c.home.data(), false},
		"this process":      {os.Getpid(), c.home.data(), false},
		"no process":        {1 << 30, c.home.data(), false},
	} {
		if got, err := isPostmaster(tc.pid, tc.data); err != nil || got != tc.want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, tc.want)
		}
	}
}

func TestStop_IsImmediateWhenTheTimeIsUp(t *testing.T) {
	c := start(t, Options{Dir: filepath.Join(scratch(t), "pg")})
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "begin; create table t ()"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Stop(over); err != nil {
		t.Fatal(err)
	}
	waitDone(t, c.Done(), "Stop returned and the postmaster is there")
}

func TestSweep_RemovesWhatAKilledProcessLeft(t *testing.T) {
	needPostgres(t)
	tmp := scratch(t)
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	alive := start(t, Options{Temporary: true})
	left := filepath.Join(tmp, tempPrefix+"left")
	helper, _, pid := startHelper(t, "temporary", left)
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait()
	waitDone(t, processGone(pid), "the postmaster outlived its parent")
	long := time.Now().Add(-time.Hour)
	for _, dir := range []string{left, alive.Dir()} {
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	sweep(alive.home.owner)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed process left is still there: %v", err)
	}
	if got := query(t, alive, "select 'up'"); got != "up" {
		t.Error("a cluster that is in use was swept")
	}
}
