//go:build !linux

package local

import (
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"muxpost.dev/muxpost/core/fault"
)

// supported refuses before anything below is reached: proving what a process is, and tying it to this one, need Linux.
func supported() error {
	return fault.New(fault.Invalid, fault.ReasonBadConfig, "a local database cluster runs on Linux only").
		WithRemedy("give the URL of a database instead")
}

type life int

const (
	lifeTied life = iota
	lifeDetached
)

type child struct {
	done chan struct{}
	err  error
}

func (*child) signal(syscall.Signal) error { return supported() }

func (*home) spawn(*exec.Cmd, life, syscall.Signal) (*child, error) { return nil, supported() }

func isPostmaster(int, string) (bool, error) { return false, supported() }

func signalPostmaster(int, string, syscall.Signal) error { return supported() }

func openPrivate(string, int, owner) (*os.File, error) { return nil, supported() }

func tryLock(*os.File) (bool, error) { return false, supported() }

func fileOwner(fs.FileInfo) (uid, gid int) { return -1, -1 }
