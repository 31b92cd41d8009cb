//go:build !linux

package stack

import "errors"

var errNotLinux = errors.New("services are started in the background on Linux alone; elsewhere run them in terminals or under a supervisor")

// stampVariable is in the environment of all that an agent starts, where there are agents.
const stampVariable = "MUXPOST_STAMP"

func identify(int) (Process, error) { return Process{}, errNotLinux }

// Alive cannot be told here.
func (p Process) Alive() (bool, error) { return false, errNotLinux }

// ServerProgram cannot be told here.
func ServerProgram(string) string { return "" }
