package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leaves is the variable by which this program leaves a process behind and ends.
const leaves = "MUXPOST_RUN_LEAVES"

func TestMain(m *testing.M) {
	if os.Getenv(leaves) != "" {
		Main("leaver", func(context.Context) error {
			left := exec.Command("sleep", "300") //nolint:noctx // it is to be left behind
			err := left.Start()
			if err == nil {
				fmt.Println(left.Process.Pid)
			}
			return err
		})
	}
	os.Exit(m.Run())
}

func TestMain_WhatItLeavesBehindHoldsNoFileOfItsCallers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), leaves+"=1"), []*os.File{write}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(left, syscall.SIGKILL) }()
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	// The end of the pipe comes once nobody can write into it.
	if err := read.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(read); err != nil {
		t.Error(err)
	}
}
