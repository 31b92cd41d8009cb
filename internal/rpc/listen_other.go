//go:build !unix

package rpc

import "syscall"

// lockSocket does nothing where there are no file locks of this kind.
func lockSocket(string) (unlock func(), err error) { return func() {}, nil }

// privateSocket does nothing where a socket has no mode.
func privateSocket(_, _ string, _ syscall.RawConn) error { return nil }
