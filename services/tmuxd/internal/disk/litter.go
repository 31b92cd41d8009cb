package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// The owner of every file, and how long it is kept:
//
//	sessions/TARGET.json         the target; until its last incarnation is forgotten
//	records/TARGET.STAMP.json    the incarnation; until the target is forgotten, at most keepRecords a target
//	specs/STAMP.json             the start; until the wrapper or we take it, or until it is too late to start
//	prompts/STAMP.txt            the incarnation; until it has ended
//	notes/TARGET.STAMP           the incarnation; until it has ended
//	tokens/TARGET.json           the target; it is what keeps an older act from ever coming back, until the target is retired
//	journal/TARGET.jsonl         the deliveries; a restored database asks about each again, until the target is retired
//	attempts/ID/*                the attempt; until it is swept, which an open one never is (see package attempt)
//	agents/STAMP                 the incarnation's channel (package channel); until the next one starts or the target is forgotten
//	token.json, floor.json       the host; for good
//	.NAME.*, .writable.*         the write that makes NAME; until it is renamed or removed
//
// Nothing of an incarnation that lives, or that may still begin, is ever removed.

const (
	// litterAge is how old a file must be that nobody owns any more: a young one may just be coming into being.
	litterAge = 5 * time.Minute
	// lateness is how long after a start became impossible its spec is kept, for clocks that disagree a little.
	lateness = time.Minute
)

// retired returns the highest fencing token under which a target was acted on that was forgotten since; zero for any other.
func (d *Dir) retired(target string) (int64, error) {
	w, err := openHighWater(d.path("tokens", target+".json"))
	if err != nil {
		return 0, err
	}
	return w.get(), nil
}

// Forget removes what is kept of a target whose incarnations are all over, its highest fencing token and its journal excepted. token is the
// highest one that was seen there.
func (d *Dir) Forget(target string, token int64) error {
	w, err := openHighWater(d.path("tokens", target+".json"))
	if err == nil {
		err = w.raise(token)
	}
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(d.record(target, "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		_, stamp, ok := recorded(path)
		if !ok {
			continue
		}
		if err := d.dropRecord(target, stamp); err != nil {
			return err
		}
		d.Revoke(stamp)
		d.Discard(stamp)
		if err := os.Remove(d.NotePath(target, stamp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// It goes last: as long as it is there, forgetting is gone on with.
	if err := os.Remove(d.path("sessions", target+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(d.path("sessions"))
}

// Retired returns the targets that nobody remembers, and to which nothing was delivered since a time.
func (d *Dir) Retired(since time.Time) ([]string, error) {
	names, err := filepath.Glob(d.path("journal", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	tokens, err := filepath.Glob(d.path("tokens", "*.json"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, path := range append(names, tokens...) {
		target := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".jsonl"), ".json")
		if !slices.Contains(out, target) && d.isRetired(target, since) {
			out = append(out, target)
		}
	}
	return out, nil
}

// isRetired is false where that cannot be told.
func (d *Dir) isRetired(target string, since time.Time) bool {
	if _, err := os.Lstat(d.path("sessions", target+".json")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for _, path := range []string{d.path("journal", target+".jsonl"), d.path("tokens", target+".json")} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) && !older(path, since, 0) {
			return false
		}
	}
	return true
}

// Retire removes the last that is kept of a retired target: its journal and its highest fencing token. It reports whether it is one. Whoever
// calls it has the turn of the target.
func (d *Dir) Retire(target string, since time.Time) (bool, error) {
	if !d.isRetired(target, since) {
		return false, nil
	}
	for _, path := range []string{d.path("journal", target+".jsonl"), d.path("tokens", target+".json")} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// Tidy removes the files that have no owner any more: what a crash left behind. Records of targets that nobody remembers are kept for an age.
// It returns what it removed.
func (d *Dir) Tidy(now time.Time, age time.Duration) (removed []string, err error) {
	for _, tidy := range []func(now time.Time, age time.Duration) ([]string, error){d.tidySpecs, d.tidyPrompts, d.tidyNotes, d.tidyRecords, d.tidyWrites} {
		paths, tidyErr := tidy(now, age)
		removed, err = append(removed, paths...), errors.Join(err, tidyErr)
	}
	return removed, err
}

// tidySpecs removes specs of which nothing can be started any more. They hold a prompt and an environment.
func (d *Dir) tidySpecs(now time.Time, _ time.Duration) ([]string, error) {
	return d.each("specs/*.json", func(path string) (bool, error) {
		if s, err := wrapper.ReadSpec(path); err == nil {
			return now.After(s.NotAfter.Add(lateness)), nil
		}
		return older(path, now, litterAge), nil // no wrapper could read it either
	})
}

// tidyPrompts removes prompts of incarnations that are over.
func (d *Dir) tidyPrompts(now time.Time, _ time.Duration) ([]string, error) {
	return d.each("prompts/*.txt", func(path string) (bool, error) {
		stamp := strings.TrimSuffix(filepath.Base(path), ".txt")
		if _, err := os.Lstat(d.spec(stamp)); err == nil || !older(path, now, litterAge) {
			return false, nil
		}
		records, err := filepath.Glob(d.path("records", "*."+stamp+".json"))
		if err != nil {
			return false, err
		}
		for _, record := range records {
			if over, err := d.over(record); err != nil || !over {
				return false, err
			}
		}
		return true, nil
	})
}

// tidyRecords removes records of targets that nobody remembers.
func (d *Dir) tidyRecords(now time.Time, age time.Duration) ([]string, error) {
	return d.each("records/*.json", func(path string) (bool, error) {
		target, stamp, ok := recorded(path)
		if !ok || !older(path, now, age) {
			return false, nil
		}
		if _, err := os.Lstat(d.path("sessions", target+".json")); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		err := d.dropRecord(target, stamp)
		if errors.Is(err, errLives) {
			return false, nil
		}
		return err == nil, err
	})
}

// tidyWrites removes what a write left that never came to its end. A wrapper that lives may still come to it.
func (d *Dir) tidyWrites(now time.Time, _ time.Duration) ([]string, error) {
	due := func(path string) (bool, error) {
		if !older(path, now, litterAge) {
			return false, nil
		}
		if filepath.Dir(path) != d.path("records") {
			return true, nil
		}
		name := strings.TrimPrefix(filepath.Base(path), ".")
		return d.over(d.path("records", name[:strings.LastIndexByte(name, '.')]))
	}
	var removed []string
	var err error
	for _, pattern := range []string{".writable.*", ".*.json.*", "*/.*.json.*"} {
		paths, eachErr := d.each(pattern, due)
		removed, err = append(removed, paths...), errors.Join(err, eachErr)
	}
	return removed, err
}

// over reports whether the run of a record is certain to be over. One without a record, or with one that no wrapper wrote, is.
func (d *Dir) over(record string) (bool, error) {
	r, err := wrapper.ReadRecord(record)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, wrapper.ErrMalformed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	alive, err := r.Alive()
	return !alive && err == nil, err
}

// each removes the files of a pattern below the state directory for which due says so, and returns their names there. One about which nothing
// can be said stays, and the others are gone on with.
func (d *Dir) each(pattern string, due func(path string) (bool, error)) (removed []string, err error) {
	paths, err := filepath.Glob(d.path(pattern))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		remove, dueErr := due(path)
		if dueErr == nil && remove {
			if dueErr = os.Remove(path); dueErr == nil || errors.Is(dueErr, fs.ErrNotExist) {
				dueErr = nil
				name, _ := filepath.Rel(d.root, path)
				removed = append(removed, name)
			}
		}
		err = errors.Join(err, dueErr)
	}
	return removed, err
}

// older reports whether a file was last written before an age.
func older(path string, now time.Time, age time.Duration) bool {
	at := modified(path)
	return !at.IsZero() && now.Sub(at) > age
}

var _ host.Ends = (*Dir)(nil)
