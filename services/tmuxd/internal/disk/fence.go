package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"muxpost.dev/muxpost/internal/wrapper"
)

// highWater is a fencing token in a file that is only ever replaced by a higher one. The file is written whole, synced and renamed before
// the higher one counts: what was refused once is refused after a power cut as well.
type highWater struct {
	path string

	mu    sync.Mutex
	token int64
}

// openHighWater reads the file; one that is not there is zero. One that holds something else is an error: to read it as zero would open what
// it had closed.
func openHighWater(path string) (*highWater, error) {
	w := &highWater{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	if w.token, err = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err != nil {
		return nil, fmt.Errorf("%s holds no fencing token: %w", path, err)
	}
	return w, nil
}

func (w *highWater) get() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

func (w *highWater) raise(token int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if token <= w.token {
		return nil
	}
	if err := wrapper.WriteJSON(w.path, token); err != nil {
		return err
	}
	w.token = token
	return nil
}

// Token returns the highest fencing token seen on this host.
func (d *Dir) Token() int64 { return d.token.get() }

// RaiseToken stores a higher token. A lower one changes nothing.
func (d *Dir) RaiseToken(token int64) error { return d.token.raise(token) }

// Floor returns the lowest fencing token that may act on this host; zero when none was given.
func (d *Dir) Floor() int64 { return d.floor.get() }

// RaiseFloor stores a higher floor. A lower one changes nothing.
func (d *Dir) RaiseFloor(floor int64) error { return d.floor.raise(floor) }
