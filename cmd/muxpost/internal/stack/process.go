package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

// Record is what a pid file says about a service that was started in the background.
type Record struct {
	Service layout.Service `json:"service"`
	Process Process        `json:"process"`
	// Binary is the program's path, Version what it said of itself.
	Binary  string `json:"binary"`
	Version string `json:"version"`
	// Address is where it was told to listen.
	Address   string    `json:"address"`
	StartedAt time.Time `json:"started_at"`
}

// Life says whether a service that was started in the background runs.
type Life int

// The lives.
const (
	// NeverStarted: there is no pid file.
	NeverStarted Life = iota
	// Running: the process that was started lives.
	Running
	// Ended: the process is gone; its file was left behind.
	Ended
	// Unclear: the file or the process cannot be looked at.
	Unclear
)

// Found is a service as its pid file and its process show it.
type Found struct {
	Record
	Life Life
	// Problem says why it is Unclear.
	Problem string
}

// Find looks for a service that was started in the background. It changes nothing.
func Find(dir layout.DataDir, service layout.Service) Found {
	record, err := readRecord(dir.PIDFile(service))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Found{Record: Record{Service: service}}
	case err != nil:
		return Found{Record: Record{Service: service}, Life: Unclear, Problem: err.Error()}
	case record.Service != service:
		return Found{Record: Record{Service: service}, Life: Unclear,
			Problem: fmt.Sprintf("%s speaks of %q", dir.PIDFile(service), record.Service)}
	}
	alive, err := record.Process.Alive()
	switch {
	case err != nil:
		return Found{Record: record, Life: Unclear, Problem: err.Error()}
	case alive:
		return Found{Record: record, Life: Running}
	}
	return Found{Record: record, Life: Ended}
}

func readRecord(path string) (Record, error) {
	var r Record
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return r, nil
}

// send signals a process if it is still the one that is meant, and reports whether it was. The handle is taken before the proof
// (on Linux it is a pidfd), so that the number cannot pass to another process in between.
func send(p Process, sig os.Signal) (bool, error) {
	if p.Pid <= 1 {
		return false, nil
	}
	handle, err := os.FindProcess(p.Pid)
	if err != nil {
		return false, err
	}
	defer handle.Release() //nolint:errcheck // Nothing can be done about it.
	alive, err := p.Alive()
	if err != nil || !alive {
		return false, err
	}
	if err := handle.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// Lock keeps two commands from changing the same installation at once. The lock goes with the process, however it ends.
func Lock(dir layout.DataDir) (unlock func(), err error) {
	path := string(dir) + "/run/lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the data directory cannot be locked", err)
	}
	got, err := tryLock(file)
	if err != nil {
		_ = file.Close() // it was never used
		return nil, fault.Wrap(fault.Internal, fault.ReasonStorage, "the data directory cannot be locked", err)
	}
	if !got {
		_ = file.Close() // it was never used
		return nil, fault.Newf(fault.Conflict, "", "another muxpost up or down is at work in %s", dir).WithRemedy("wait for it to finish")
	}
	return func() { _ = file.Close() }, nil // closing gives the lock back
}
