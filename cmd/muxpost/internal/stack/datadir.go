package stack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

// MakeDataDir makes the data directory. Root's may be entered by others, because its database runs as another user; what is in
// it may not.
func MakeDataDir(dir layout.DataDir, root bool) error {
	mode := fs.FileMode(0o700)
	if root {
		mode = 0o711
	}
	err := os.MkdirAll(filepath.Dir(string(dir)), 0o755) //nolint:gosec // It holds nothing, and the database's user must get through.
	if err == nil {
		if err = os.Mkdir(string(dir), mode); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	for _, sub := range []string{dir.LogDir(), dir.RunDir()} {
		if err == nil {
			err = os.MkdirAll(sub, 0o700)
		}
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the data directory cannot be used", err).
			WithRemedy("name one that this user may write to with --data-dir or " + layout.DataDirVariable)
	}
	return nil
}
