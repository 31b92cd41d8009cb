package disk

import (
	"sync"
	"syscall"
	"time"
)

// kept holds what was read from files, for as long as they are the same files. Files here are replaced and never written to, so one that has
// the same inode, size and time of change was not. Times of change are coarse, and a file that was replaced twice within one tick can look like
// the first: what changed just before it was read is not kept.
type kept[T any] struct {
	mu   sync.Mutex
	byID map[string]keptFile[T]
}

type keptFile[T any] struct {
	file  fileID
	value T
}

// fileID tells a file from another one of its name.
type fileID struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

const (
	// settled is how long a file must not have changed for what it holds to be kept: many ticks of any kernel.
	settled = 100 * time.Millisecond
	// maxKept bounds what is kept: files that were removed are never asked for again.
	maxKept = 4096
)

// get returns what a file holds, by read unless it is known. What read fails at is never kept.
func (k *kept[T]) get(path string, now func() time.Time, read func(path string) (T, error)) (T, error) {
	id, err := identify(path)
	if err != nil {
		return read(path) // it says what is wrong
	}
	k.mu.Lock()
	have, ok := k.byID[path]
	k.mu.Unlock()
	if ok && have.file == id {
		return have.value, nil
	}
	value, err := read(path)
	again, idErr := identify(path)
	age := now().Sub(time.Unix(id.changed.Unix()))
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || idErr != nil || again != id || age < settled {
		delete(k.byID, path)
		return value, err
	}
	if k.byID == nil || len(k.byID) >= maxKept {
		k.byID = map[string]keptFile[T]{}
	}
	k.byID[path] = keptFile[T]{id, value}
	return value, nil
}

func identify(path string) (fileID, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(st.Dev), st.Ino, st.Size, st.Ctim}, nil //nolint:unconvert // 32 bits on some machines
}
