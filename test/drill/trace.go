package drill

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
)

// accounts are what the dispatchers' span files say came of each delivery: what it ended as when it was last asked about; "" where no span got
// as far, as when a process was killed.
type accounts map[string]string

// contradict says how the spans contradict that an event was delivered; nothing if they do not.
func (a accounts) contradict(r row) string {
	switch said, ok := a[r.DeliveryID]; {
	case !ok:
		return "no span speaks of it"
	case said == "dropped" || said == "unconfirmed":
		return "its trace says " + said
	}
	return ""
}

// bookkeeper reads span files while they are written: a long run writes more than the services keep.
type bookkeeper struct {
	dirs []string
	// read is how far each file was.
	read     map[string]int64
	accounts accounts
}

func newBookkeeper(dirs ...string) *bookkeeper {
	return &bookkeeper{dirs: dirs, read: map[string]int64{}, accounts: accounts{}}
}

// readTime is how often the span files are read. The oldest of them is removed after minutes at the earliest.
const readTime = 10 * time.Second

// run reads until done is closed, and once more then.
func (b *bookkeeper) run(done <-chan struct{}) error {
	tick := time.NewTicker(readTime)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return b.look()
		case <-tick.C:
			if err := b.look(); err != nil {
				return err
			}
		}
	}
}

// look reads what is new.
func (b *bookkeeper) look() error {
	for _, dir := range b.dirs {
		files, err := filepath.Glob(filepath.Join(obs.TracesDir(dir), "*.jsonl"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := b.readOn(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// deliverSpan is the dispatcher's span of one question about a delivery.
const deliverSpan = "deliver.Deliver"

// readOn reads the lines of a file that are whole and were not read before.
func (b *bookkeeper) readOn(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(b.read[path], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	b.read[path] += int64(len(whole))
	for line := range bytes.Lines(whole) {
		if !bytes.Contains(line, []byte(deliverSpan)) {
			continue
		}
		if s, ok := spanfile.ParseLine(line); ok && s.Name == deliverSpan {
			b.note(s)
		}
	}
	return nil
}

func (b *bookkeeper) note(s spanfile.Span) {
	id := s.Attributes[obs.KeyDeliveryID]
	said := b.accounts[id]
	for _, e := range s.Events {
		if outcome := e.Attributes["outcome"]; outcome != "" && said != "delivered" {
			said = outcome
		}
	}
	b.accounts[id] = said
}
