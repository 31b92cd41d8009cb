package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"muxpost.dev/muxpost/internal/wrapper"
)

// keepFlag makes the program a keeper of the record that is named behind it.
const keepFlag = "--keep"

// keep is the keeper: it waits until its wrapper goes, and ends what is left of the run then. A wrapper that sees to the end itself ends the
// keeper before. A companion is a server, which a closed terminal does not end, and it often runs below the process that dies with the wrapper.
func keep(recordFile string, from *os.File) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	_, _ = io.Copy(io.Discard, from)
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
	held, life, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		life.Close()
		return err
	}
	defer nothing.Close()
	// This very program, also where another release has taken its place.
	pid, err := startProcess("/proc/self/exe", []string{"muxpost-exec", keepFlag, r.spec.RecordFile}, &os.ProcAttr{Env: []string{},
		Files: []*os.File{held, nothing, nothing}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		life.Close()
		return err
	}
	r.mu.Lock()
	r.keeper, r.life = pid, life
	r.mu.Unlock()
	return nil
}
