//go:build unix

package stack

import (
	"errors"
	"os"
	"syscall"
)

// detached has a child begin a session of its own, so that neither a Ctrl-C here nor the end of this terminal reaches it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// tryLock takes the lock of an open file, and reports false when another process has it.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
