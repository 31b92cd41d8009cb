//go:build !linux

package logfile

import (
	"errors"
	"os"
)

// replace is for systems on which services run.
func replace(_, _ *os.File) error { return errors.ErrUnsupported }
