//go:build unix

package rpc

import (
	"os"
	"syscall"
)

// lockSocket keeps two processes from replacing the same stale socket, which would leave the first of them listening on
// nothing. The lock file stays: removing it would let two processes hold a lock on two files of one name.
func lockSocket(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close() //nolint:errcheck // Nothing was written.
		return nil, err
	}
	return func() { file.Close() }, nil //nolint:errcheck // Closing lets go of the lock.
}

// privateSocket sets the mode of a socket before it has a name: Linux gives the file that mode, so it is never reachable
// by others, not even for a moment. Systems that refuse this are served by the chmod that follows.
func privateSocket(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}
