package run

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepFiles has no program that is started from here inherit the files that this one was started with, beside the standard ones: a tmux server
// outlives everything, and with it a lock that a script has on a file, or the end of a pipe that somebody reads. Before Linux 5.11 they are inherited.
func keepFiles() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }
