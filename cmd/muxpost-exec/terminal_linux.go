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

// giveTerminal makes a process group the terminal's foreground. Whoever took it may have died without giving it back, and then the harness
// would stop again and again. SIGTTOU must be ignored. That it fails is seen by the harness alone.
func giveTerminal(fd uintptr, group int) {
	pgid := int32(group)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&pgid))) //nolint:gosec // as above
}
