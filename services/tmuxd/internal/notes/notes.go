// Package notes tells of files that are written in one directory: one watch for all of them, which costs nothing while nobody writes.
//
// It works on Linux alone, and knows nothing of what the files say.
package notes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// batch is how much is read at once: some hundred names.
const batch = 32 << 10

// Watch calls written with the name of each file that was written or renamed into a directory, once for however many writes it learns of at
// once, and missed when it may not have learned of all. Calls come one after another and must not block. stop ends it and waits for a call
// that is under way.
func Watch(dir string, written func(name string), missed func()) (stop func() error, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	f, done := os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, batch)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			names, overflow := parse(buf[:n])
			for _, name := range names {
				written(name)
			}
			if overflow {
				missed()
			}
		}
	}()
	return func() error {
		err := f.Close()
		<-done
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	}, nil
}

// parse returns the names that events hold, each once, in the order of their first; overflow is true when the kernel dropped some.
func parse(events []byte) (names []string, overflow bool) {
	seen := map[string]bool{}
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if size > len(events) {
			break
		}
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:size], []byte{0})
		overflow = overflow || mask&unix.IN_Q_OVERFLOW != 0
		if s := string(name); s != "" && !seen[s] {
			seen[s] = true
			names = append(names, s)
		}
		events = events[size:]
	}
	return names, overflow
}
