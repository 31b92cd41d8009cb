package stack

import (
	"context"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/internal/wrapper"
)

// stampVariable is in the environment of all that an agent starts.
const stampVariable = wrapper.StampVariable

// identify returns the process that has a pid now.
func identify(pid int) (Process, error) {
	p, err := wrapper.Find(pid)
	return Process(p), err
}

// Alive reports whether the process lives; one that nobody has reaped yet does not. An error means that it cannot be told.
func (p Process) Alive() (bool, error) { return wrapper.Process(p).Alive() }

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
