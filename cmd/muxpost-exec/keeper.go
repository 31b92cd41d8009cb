package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"muxpost.dev/muxpost/internal/wrapper"
)

const (
	// keepFlag makes the program a keeper of the record that is named behind it.
	keepFlag = "--keep"
	// keeperLeaves is what a keeper hears from a wrapper that sees to the end itself.
	keeperLeaves = "."
)

// keep is the keeper: it waits until its wrapper goes, and where that did not say so before, ends what is left of the run. A companion is a
// server, which a closed terminal does not end; and what it runs in is often a process below the one that dies with its wrapper.
func keep(recordFile string, from *os.File) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if heard, _ := io.ReadAll(from); len(heard) > 0 {
		return 0
	}
	record, err := wrapper.ReadRecord(recordFile)
	if err != nil {
		return exitRecord
	}
	if left, err := record.KillLeft(killTime); err != nil || len(left) > 0 {
		return exitLost // what remains is for tmuxd to find
	}
	return 0
}

// startKeeper starts the keeper, apart from all that it would end.
func (r *runner) startKeeper() error {
	heard, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer heard.Close()
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		says.Close()
		return err
	}
	defer nothing.Close()
	// This very program, also where another release has taken its place.
	_, err = startProcess("/proc/self/exe", []string{"muxpost-exec", keepFlag, r.spec.RecordFile}, &os.ProcAttr{Env: []string{},
		Files: []*os.File{heard, nothing, nothing}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		says.Close()
		return err
	}
	r.mu.Lock()
	r.keeper = says
	r.mu.Unlock()
	return nil
}
