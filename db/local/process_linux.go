package local

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

func supported() error { return nil }

// life says what happens to a child when this process dies.
type life int

const (
	lifeTied     life = iota // the kernel signals it
	lifeDetached             // nothing
)

// child is a process that we started and wait for.
type child struct {
	proc *os.Process
	done chan struct{}
	err  error // set before done is closed
}

func (c *child) signal(sig syscall.Signal) error {
	if err := c.proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// spawn starts cmd as the home's owner, in a session of its own, so that a Ctrl-C at the terminal does not take the database
// from under whoever is still shutting down. The parent's death signal belongs to the thread that started the child, not to
// the process, so that thread is held until the child has ended.
func (h *home) spawn(cmd *exec.Cmd, l life, last syscall.Signal) (*child, error) {
	cmd.Dir, cmd.Env = h.dir, h.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if h.owner.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(h.owner.uid), Gid: uint32(h.owner.gid)}
	}
	if l == lifeTied {
		cmd.SysProcAttr.Pdeathsig = last
	}
	c := &child{done: make(chan struct{})}
	begun := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.proc = cmd.Process
		begun <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		close(c.done)
	}()
	return c, <-begun
}

// isPostmaster reports whether pid is the postmaster of a data directory. Its command line, which every user may read, names
// the directory after -D; a postmaster that was started otherwise stands in the directory. A backend has written a title of
// its own over the command line, and a dead process has none.
func isPostmaster(pid int, data string) (bool, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	line, err := os.ReadFile(proc + "/cmdline")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	args := bytes.Split(bytes.TrimRight(line, "\x00"), []byte{0})
	switch name := filepath.Base(string(args[0])); name {
	case "postgres", "postmaster":
	default:
		return false, nil
	}
	for i, arg := range args[1:] {
		switch {
		case string(arg) == "-D" && i+2 < len(args):
			return sameDir(string(args[i+2]), data)
		case bytes.HasPrefix(arg, []byte("-D")) && len(arg) > 2:
			return sameDir(string(arg[2:]), data)
		}
	}
	return sameDir(proc+"/cwd", data)
}

func sameDir(a, b string) (bool, error) {
	infoA, err := os.Stat(a)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	infoB, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	return os.SameFile(infoA, infoB), nil
}

// signalPostmaster proves and signals through one handle (a pidfd), so that the number cannot pass to another process between.
func signalPostmaster(pid int, data string, sig syscall.Signal) error {
	proc, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = proc.Release() }()
	is, err := isPostmaster(pid, data)
	if err != nil || !is {
		return err
	}
	if err := proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// openPrivate opens a file that belongs to the owner alone. It follows no link: root opens these files in a directory where
// another user may write.
func openPrivate(path string, flags int, o owner) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if o.drop {
		if err := f.Chown(o.uid, o.gid); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

// tryLock takes the lock of an open file, and reports false when another process has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func fileOwner(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}
