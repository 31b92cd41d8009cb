//go:build !linux

package stack

import "errors"

var errNotLinux = errors.New("services are started in the background on Linux alone; elsewhere run them in terminals or under a supervisor")

func identify(int) (Process, error) { return Process{}, errNotLinux }

// Alive cannot be told here.
func (p Process) Alive() (bool, error) { return false, errNotLinux }

// ServerProgram cannot be told here.
func ServerProgram(string) string { return "" }
