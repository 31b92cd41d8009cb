package stack

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// Process names a process for good: a pid alone is used again.
type Process struct {
	Pid int `json:"pid"`
	// Start is when it started, in clock ticks since boot, and Boot is the boot that is meant.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// writeJSON writes v to path, mode 0600, so that nobody ever sees half of it.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // It is gone once it was renamed.
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
