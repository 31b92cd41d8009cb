// Package wrapper is what tmuxd and muxpost-exec, the process of an agent's pane, tell each other through files: the spec says what
// to run, the record says what became of it. Both are written to a temporary name, synced and renamed, so a reader never sees half.
//
// It stands on the standard library alone, because every agent carries a copy of muxpost-exec in memory. It knows nothing of tmux.
package wrapper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Version is the version of both formats.
const Version = 1

// maxFile bounds what is read: a spec holds a prompt of at most 1 MiB, which JSON may lengthen sixfold.
const maxFile = 8 << 20

// Spec says what to run. It holds a prompt and an environment, so its file is 0600 and is unlinked before anything starts.
type Spec struct {
	Version int `json:"version"`
	// Stamp is the incarnation that it belongs to.
	Stamp string `json:"stamp"`
	// Argv is the program and its arguments, run without a shell.
	Argv []string `json:"argv"`
	// Env is the whole environment, as KEY=VALUE.
	Env []string `json:"env"`
	// Dir is the working directory.
	Dir string `json:"dir"`
	// Prompt is written to PromptFile before the start. Empty for none.
	Prompt string `json:"prompt,omitempty"`
	// PromptFile is where the harness reads the prompt; removed again when the harness ends.
	PromptFile string `json:"prompt_file,omitempty"`
	// RecordFile is where the record goes.
	RecordFile string `json:"record_file"`
	// NotAfter is when it is too late to start; a spawn that timed out must not take effect later.
	NotAfter time.Time `json:"not_after"`
}

// State says how far a run has come.
type State string

// The states of a run.
const (
	// Launching is written before anything is started: the wrapper is there, the harness is not.
	Launching State = "launching"
	// Running means that the harness was started.
	Running State = "running"
	// Exited means that it ended by itself with Code.
	Exited State = "exited"
	// Signaled means that Signal ended it.
	Signaled State = "signaled"
	// LaunchFailed means that it could not be started; Detail says why.
	LaunchFailed State = "launch_failed"
)

// Record says what became of a run.
type Record struct {
	Version int    `json:"version"`
	Stamp   string `json:"stamp"`
	State   State  `json:"state"`
	// Wrapper is the wrapper's process, Child the harness's.
	Wrapper Process `json:"wrapper"`
	Child   Process `json:"child"`
	// Code is the exit code, with Exited.
	Code int `json:"code,omitempty"`
	// Signal is the signal's number, with Signaled.
	Signal int `json:"signal,omitempty"`
	// HungUp is true when the terminal was closed under it.
	HungUp bool `json:"hung_up,omitempty"`
	// Detail is one line for a person.
	Detail    string    `json:"detail,omitempty"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// ReachedHarness reports whether the harness may have been started, and so may have read its prompt. A wrapper that was killed between
// the start and its next record has left Launching.
func (r Record) ReachedHarness() bool { return r.State != LaunchFailed && r.State != "" }

// Ended reports whether the run is over.
func (r Record) Ended() bool {
	return r.State == Exited || r.State == Signaled || r.State == LaunchFailed
}

// Process names a process for good: a pid alone is used again.
type Process struct {
	Pid int `json:"pid"`
	// Start is the start time in clock ticks since boot, as the kernel gives it.
	Start uint64 `json:"start"`
	// Boot is the id of the boot in which pid and start are meant.
	Boot string `json:"boot"`
}

// Self returns the calling process.
func Self() (Process, error) { return Find(os.Getpid()) }

// Find returns the process that has this pid now. The error is fs.ErrNotExist when there is none.
func Find(pid int) (Process, error) {
	start, _, err := stat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	return Process{Pid: pid, Start: start, Boot: boot}, nil
}

// Alive reports whether the process lives. An error means that it cannot be told. A zombie has ended.
func (p Process) Alive() (bool, error) {
	if p.Pid <= 0 {
		return false, nil
	}
	boot, err := bootID()
	if err != nil {
		return false, err
	}
	if boot != p.Boot {
		return false, nil
	}
	start, state, err := stat(p.Pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return start == p.Start && state != 'Z' && state != 'X', nil
}

// stat reads start time and state from /proc. The command name in it may hold anything, so fields count from its last bracket.
func stat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// ReadSpec reads a spec. It refuses one that others could have written.
func ReadSpec(path string) (Spec, error) {
	var s Spec
	if err := readJSON(path, &s); err != nil {
		return s, err
	}
	if s.Version != Version {
		return s, fmt.Errorf("the spec has version %d, this wrapper reads %d", s.Version, Version)
	}
	if len(s.Argv) == 0 || s.RecordFile == "" {
		return s, errors.New("the spec names no program or no record file")
	}
	return s, nil
}

// ReadRecord reads a record. The error is fs.ErrNotExist when there is none.
func ReadRecord(path string) (Record, error) {
	var r Record
	if err := readJSON(path, &r); err != nil {
		return r, err
	}
	if r.Version != Version {
		return r, fmt.Errorf("the record has version %d, expected %d", r.Version, Version)
	}
	return r, nil
}

func readJSON(path string, into any) error {
	// O_NOFOLLOW and O_NONBLOCK: a link, a pipe or a device under this name was not put there by us.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to somebody else or can be written by others", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// WriteSpec writes a spec for its one reader.
func WriteSpec(path string, s Spec) error {
	s.Version = Version
	return WriteJSON(path, s)
}

// WriteRecord writes a record.
func WriteRecord(path string, r Record) error {
	r.Version = Version
	return WriteJSON(path, r)
}

// WriteJSON writes v to path, mode 0600, so that after it returns the file survives a power cut, and at no moment half of it shows.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
