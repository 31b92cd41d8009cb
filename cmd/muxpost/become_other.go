//go:build !unix

package main

import "errors"

func become(string, []string, []string) error {
	return errors.New("this system has no tmux; run muxpost attach on the agent's host")
}
