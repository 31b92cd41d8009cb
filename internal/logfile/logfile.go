// Package logfile keeps the logs of services that run in the background from growing without end: one that has grown too large is put aside
// under another name, and a few of those are kept.
//
// It knows nothing of what is logged. Whoever has its output collected by somebody else (a container, systemd) needs none of it.
package logfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// Max is the size beyond which a log is put aside, in bytes.
	Max = 10 << 20
	// Kept is how many that were put aside are kept.
	Kept = 3
	// every is how often a log that is written to is looked at.
	every = time.Minute
)

// Open opens a log for appending. One that has grown too large is put aside first.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > Max {
		if err := putAside(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func putAside(path string) error {
	for n := Kept; n > 0; n-- {
		from := path
		if n > 1 {
			from = fmt.Sprintf("%s.%d", path, n-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Watch looks after an output of this process until ctx ends, if that is the log of a name: each time that it has grown too large it is put
// aside, and the output goes on into a new one. Any other output is left alone. problem hears what cannot be done.
func Watch(ctx context.Context, out *os.File, path string, problem func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := Look(out, path); err != nil {
			problem(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look is one look of Watch.
func Look(out *os.File, path string) error {
	mine, err := out.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!os.SameFile(mine, named) || named.Size() <= Max) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := putAside(path); err != nil {
		return err
	}
	fresh, err := Open(path)
	if err != nil {
		return err
	}
	defer fresh.Close() //nolint:errcheck // The output is a descriptor of its own.
	return become(out, fresh)
}
