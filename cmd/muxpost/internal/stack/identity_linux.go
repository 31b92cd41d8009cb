package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// identify returns the process that has a pid now.
func identify(pid int) (Process, error) {
	start, _, err := stat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := bootID()
	return Process{Pid: pid, Start: start, Boot: boot}, err
}

// ServerProgram returns the program that whoever listens on a socket runs, as long as it runs, also when its file was replaced; empty when
// it cannot be told. A tmux server does not understand every client of another release.
func ServerProgram(socket string) string {
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return ""
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return ""
	}
	var peer *unix.Ucred
	rawErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if rawErr != nil || err != nil || peer.Pid <= 0 || int(peer.Uid) != os.Geteuid() {
		return ""
	}
	return "/proc/" + strconv.Itoa(int(peer.Pid)) + "/exe"
}

// Alive reports whether the process lives; one that nobody has reaped yet does not. An error means that it cannot be told.
func (p Process) Alive() (bool, error) {
	if p.Pid <= 0 {
		return false, nil
	}
	boot, err := bootID()
	if err != nil || boot != p.Boot {
		return false, err
	}
	start, state, err := stat(p.Pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return start == p.Start && state != 'Z' && state != 'X', nil
}

// stat reads start time and state. The command's name in the file may hold anything, so fields count from its last bracket.
func stat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
