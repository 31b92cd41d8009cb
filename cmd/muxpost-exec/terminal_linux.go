package main

import (
	"syscall"
	"unsafe"
)

// isTerminal reports whether fd is a terminal: only then is there a foreground to take.
func isTerminal(fd uintptr) bool {
	var t syscall.Termios
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&t))) //nolint:gosec // the standard library has no other way
	return errno == 0
}
