package logfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// replace puts another file behind a descriptor, at once for whoever uses it.
func replace(file, by *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var dupErr error
	err = raw.Control(func(fd uintptr) {
		flags := 0
		if fd > 2 {
			flags = unix.O_CLOEXEC
		}
		dupErr = unix.Dup3(int(by.Fd()), int(fd), flags)
	})
	if err != nil {
		return err
	}
	return dupErr
}
