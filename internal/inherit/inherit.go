// Package inherit has what root makes in the directory of another user belong to that user, as if he had made it himself: services run as
// users of their own, and a key that is root's is one that they cannot read.
//
// It knows nothing of what the files are for. Where a process is not root, or a system has no such owners, it changes nothing.
package inherit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Owner gives a file the owner of the directory that it lies in. The file must be one that this process has just made, under the name that it
// was opened by: another one may be somebody else's, put there to be given away.
func Owner(f *os.File) error { return give(f, filepath.Dir(f.Name())) }

// MkdirAll is os.MkdirAll, and each directory that it makes belongs to the owner of the one above it.
func MkdirAll(dir string, mode fs.FileMode) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if above := filepath.Dir(dir); above != dir {
		if err := MkdirAll(above, mode); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) { // a directory that somebody else made meanwhile, or no directory
		return os.MkdirAll(dir, mode)
	}
	if err != nil {
		return err
	}
	made, err := openDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(Owner(made), made.Close())
}
