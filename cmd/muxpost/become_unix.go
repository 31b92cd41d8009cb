//go:build unix

package main

import "syscall"

// become replaces this process by another program. It returns only when that cannot be done.
func become(path string, argv, env []string) error { return syscall.Exec(path, argv, env) }
