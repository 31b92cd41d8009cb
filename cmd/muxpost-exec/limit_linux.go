package main

import (
	"errors"
	"syscall"
	"time"
	"unsafe"
)

// after returns a channel that is closed when this much time has passed, on the clock that nobody sets and that goes on while the machine
// is suspended: Go's timers stand still then. Zero returns one that is never closed.
func after(limit time.Duration) (<-chan struct{}, error) {
	if limit == 0 {
		return nil, nil
	}
	const clockBoottime = 7
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	timer := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(limit))}
	//nolint:gosec // the standard library has no other way
	_, _, errno = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&timer)), 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		var expirations [8]byte
		for {
			if _, err := syscall.Read(int(fd), expirations[:]); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	return over, nil
}
