//go:build !unix

package stack

import (
	"os"
	"syscall"
)

func detached() *syscall.SysProcAttr { return nil }

func tryLock(*os.File) (bool, error) { return true, nil }
