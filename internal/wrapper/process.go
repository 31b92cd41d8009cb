package wrapper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Process names a process for good: a pid alone is used again.
type Process struct {
	Pid int `json:"pid"`
	// Start is the start time in clock ticks since boot, as the kernel gives it.
	Start uint64 `json:"start"`
	// Boot is the id of the boot in which pid and start are meant.
	Boot string `json:"boot"`
}

// Self returns the calling process.
func Self() (Process, error) { return Find(os.Getpid()) }

// Find returns the process that has this pid now. The error is fs.ErrNotExist when there is none.
func Find(pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	return Process{Pid: pid, Start: s.start, Boot: boot}, nil
}

// ChildOf returns the process that has this pid now, if it is a child of another: as long as that does not reap it, nobody else has its pid.
// The error is fs.ErrNotExist when there is none.
func ChildOf(parent, pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	if s.parent != parent {
		return Process{}, fmt.Errorf("process %d is no child of %d: %w", pid, parent, fs.ErrNotExist)
	}
	boot, err := bootID()
	return Process{Pid: pid, Start: s.start, Boot: boot}, err
}

// Alive reports whether the process lives. An error means that it cannot be told. A zombie has ended.
func (p Process) Alive() (bool, error) {
	if p.Pid <= 0 {
		return false, nil
	}
	boot, err := bootID()
	if err != nil {
		return false, err
	}
	if boot != p.Boot {
		return false, nil
	}
	s, err := readStat(p.Pid)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.start == p.Start && !s.ended(), nil
}

// Signal signals the process, and never another one that was given its pid. That it is gone is no error.
func (p Process) Signal(sig syscall.Signal) error {
	if p.Pid <= 0 {
		return nil
	}
	// With a kernel that has pidfds (5.4 and later) the handle names one process for good; which one, its start says afterwards.
	handle, err := os.FindProcess(p.Pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if alive, err := p.Alive(); err != nil || !alive {
		return err
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", p.Pid, err)
	}
	return nil
}

// stat is what the kernel says of a process.
type stat struct {
	parent int
	start  uint64
	state  byte
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// StatFields returns the fields of /proc/PID/stat from the state of the process on, 20 at least. The command name before it may hold
// anything, so they count from its last bracket.
func StatFields(pid int) ([]string, error) {
	data, err := readProc("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// readProc reads a short file of the kernel's, whole and at once: it is the half of a look at a process, and os.ReadFile asks twice as much.
func readProc(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	data := make([]byte, maxProc)
	n, err := syscall.Read(fd, data)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data[:n], nil
}

// maxProc is longer than any line of /proc/PID/stat: some fifty numbers and a name of 64 bytes at most.
const maxProc = 2048

func readStat(pid int) (stat, error) {
	fields, err := StatFields(pid)
	if err != nil {
		return stat{}, err
	}
	s := stat{state: fields[0][0]}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// gone reports whether an error says that there is no such process.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// thisBoot is its id, once it was read: no process sees another one.
var thisBoot atomic.Pointer[string]

func bootID() (string, error) {
	if id := thisBoot.Load(); id != nil {
		return *id, nil
	}
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id := strings.TrimSpace(string(data))
	if err == nil {
		thisBoot.Store(&id)
	}
	return id, err
}
