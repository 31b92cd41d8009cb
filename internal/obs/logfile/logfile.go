// Package logfile keeps the log of a service that was started in the background to a size: a log that has grown too large is put aside, at the start and
// while the service runs, and a few of those are kept. No line is lost, and none is cut: it is renamed between two records, and whatever else writes to
// standard error goes into the one or the other.
//
// It knows files and nothing of what stands in them.
package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

const (
	// maxSize is the size beyond which a log is put aside; kept of those are kept.
	maxSize = 10 << 20
	kept    = 3
)

// Open opens a log for appending. One that is too large is put aside first.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxSize {
		if err := putAside(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// putAside renames a log, and those that were before.
func putAside(path string) error {
	for n := kept; n > 0; n-- {
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

// Standard returns what to write the log of this process to: out itself, unless that is the file at path, which is then kept to its size.
func Standard(out io.Writer, path string) io.Writer {
	file, ok := out.(*os.File)
	if !ok {
		return out
	}
	at, err := os.Stat(path)
	if err != nil {
		return out
	}
	is, err := file.Stat()
	if err != nil || !is.Mode().IsRegular() || !os.SameFile(at, is) {
		return out
	}
	return &writer{path: path, out: file, size: is.Size(), most: maxSize}
}

// writer writes to a log of which it is the only writer, but for what goes to standard output and standard error by itself.
type writer struct {
	path string
	out  *os.File
	most int64

	mu   sync.Mutex
	size int64
}

// Write writes a record whole.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.out.Write(p)
	w.size += int64(n)
	if w.size > w.most {
		// Where it fails the log goes on as it is, and it is tried again when as much was written once more.
		w.size = 0
		_ = w.turn()
	}
	return n, err
}

// turn puts the log aside, and has a new one in its place and behind the same descriptors: what the runtime says at its end goes there too.
func (w *writer) turn() error {
	if err := putAside(w.path); err != nil {
		return err
	}
	next, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer next.Close() //nolint:errcheck // Its copies stay.
	was, err := w.out.Stat()
	if err != nil {
		return err
	}
	for _, file := range []*os.File{w.out, os.Stdout, os.Stderr} {
		if is, err := file.Stat(); err != nil || !os.SameFile(was, is) {
			continue
		}
		if err := replace(file, next); err != nil {
			return err
		}
	}
	return nil
}
