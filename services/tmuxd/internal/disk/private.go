package disk

import (
	"fmt"
	"os"
	"syscall"
)

// Private makes a directory that only we may enter, or says why one that is there is not that, and what to do. Whoever else could write to it
// could put there what tmuxd, tmux or an agent reads: where a reboot empties the directory above, anybody may make it first.
func Private(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("cannot make the directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a link: name the directory that it leads to", path)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user, who may have put anything there: remove it, or name another directory", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s must be a directory that only its owner may enter: see that all that lies there is yours, then chmod 700 %s", path, path)
	}
	return nil
}
