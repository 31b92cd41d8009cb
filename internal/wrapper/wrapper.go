// Package wrapper is what tmuxd and muxpost-exec, the process of an agent's pane, tell each other through files: the spec says what
// to run, the record says what became of it. Both are written to a temporary name, synced and renamed, so a reader never sees half.
//
// It stands on the standard library alone, because every agent carries a copy of muxpost-exec in memory. It knows nothing of tmux.
package wrapper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The versions of the formats. A field that may be passed over unread needs no new one; one that may not does.
const (
	// SpecVersion 2 can have a time limit, which a wrapper of version 1 would not keep, and another standard input than the terminal. 3 can have a
	// companion.
	SpecVersion   = 3
	RecordVersion = 1
)

var (
	// ErrNewer means that a file was written by a later version: what it says is unknown.
	ErrNewer = errors.New("it was written by a later version")
	// ErrMalformed means that a file holds what no wrapper writes.
	ErrMalformed = errors.New("it is malformed")
)

// maxSignal is the highest number of a signal.
const maxSignal = 64

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
	// PromptFile is where the harness reads the prompt; removed again when the harness ends. With an empty Prompt the file is there already,
	// and without it nothing is started.
	PromptFile string `json:"prompt_file,omitempty"`
	// Stdin is the file that the harness has as its standard input; empty for the terminal. Without it nothing is started.
	Stdin string `json:"stdin,omitempty"`
	// Companion is a program, with its arguments, that serves the harness: it is started first, and ends with it. Empty for none. Its output goes
	// nowhere, but for its last words where it fails.
	Companion []string `json:"companion,omitempty"`
	// CompanionSocket is the path that is there once the companion listens: only then is the harness started.
	CompanionSocket string `json:"companion_socket,omitempty"`
	// RecordFile is where the record goes.
	RecordFile string `json:"record_file"`
	// NotAfter is when it is too late to start; a spawn that timed out must not take effect later.
	NotAfter time.Time `json:"not_after"`
	// Limit is how long the run may last; zero for as long as it likes. The clock is one that nobody sets and that goes on while the machine
	// is suspended: whoever was told that a run ends within its limit may count on it after a wake-up. While the machine is suspended nothing
	// runs, and after it the end comes at once. A virtual machine that was paused from outside does not know that, and neither do we.
	Limit time.Duration `json:"limit,omitempty"`
	// Grace is how long the harness has between TERM and KILL when the limit is over; DefaultGrace when zero.
	Grace time.Duration `json:"grace,omitempty"`
}

// DefaultGrace is how long a harness has between TERM and KILL.
const DefaultGrace = 5 * time.Second

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
	// Lost means that wrapper and harness were found gone without a word on how it ended. tmuxd writes it, at EndedAt, the wrapper never.
	Lost State = "lost"
)

// Cause says why a wrapper ended its harness.
type Cause string

// The causes. Without one the harness ended by itself, or by somebody else's signal.
const (
	// HangUp: the terminal was closed under it.
	HangUp Cause = "hang_up"
	// CompanionEnded: the program that serves the harness ended under it.
	CompanionEnded Cause = "companion_ended"
	// TimeLimit: the limit of the spec was over.
	TimeLimit Cause = "time_limit"
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
	// Cause says why the wrapper ended the harness; empty when it did not.
	Cause Cause `json:"cause,omitempty"`
	// Detail is one line for a person.
	Detail    string    `json:"detail,omitempty"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	// Group is the control group of the harness and of all that it starts; empty when it has none of its own.
	Group Group `json:"group,omitempty"`
	// LeftBehind is how many processes the harness left behind, which were ended after it.
	LeftBehind int `json:"left_behind,omitempty"`
	// Remains are the processes of them that could not be ended.
	Remains []int `json:"remains,omitempty"`
	// Swept is true once nothing that the harness started was left.
	Swept bool `json:"swept,omitempty"`
}

// ReachedHarness reports whether the harness may have been started, and so may have read its prompt. A wrapper that was killed between
// the start and its next record has left Launching.
func (r Record) ReachedHarness() bool { return r.State != LaunchFailed && r.State != "" }

// Ended reports whether the wrapper recorded that the run is over.
func (r Record) Ended() bool {
	return r.State == Exited || r.State == Signaled || r.State == LaunchFailed
}

// malformed says what no wrapper would have written; nil when there is nothing.
func (r Record) malformed() error {
	switch {
	case r.State != Launching && r.State != Running && r.State != Lost && !r.Ended():
		return fmt.Errorf("%w: no run is %.20q", ErrMalformed, string(r.State))
	case r.Code < 0 || r.Code > 255 || r.State != Exited && r.Code != 0:
		return fmt.Errorf("%w: no exit code is %d", ErrMalformed, r.Code)
	case r.Signal < 0 || r.Signal > maxSignal || (r.State == Signaled) != (r.Signal != 0):
		return fmt.Errorf("%w: the signal %d does not go with %s", ErrMalformed, r.Signal, r.State)
	}
	return nil
}

// ReadSpec reads a spec. It refuses one that others could have written, and one of a later version.
func ReadSpec(path string) (Spec, error) {
	var s Spec
	if err := readJSON(path, SpecVersion, &s); err != nil {
		return s, err
	}
	if len(s.Argv) == 0 || s.RecordFile == "" || s.Limit < 0 || s.Grace < 0 || (len(s.Companion) > 0) != (s.CompanionSocket != "") {
		return s, fmt.Errorf("%s: %w: it names no program or no record file, a time below zero, or half a companion", path, ErrMalformed)
	}
	return s, nil
}

// ReadRecord reads a record. The error is fs.ErrNotExist when there is none, ErrNewer for one of a later version, which says nothing to us,
// ErrMalformed for one that no wrapper wrote, and any other where nothing could be read.
func ReadRecord(path string) (Record, error) {
	var r Record
	if err := readJSON(path, RecordVersion, &r); err != nil {
		return Record{}, err
	}
	if err := r.malformed(); err != nil {
		return Record{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// readJSON reads a file of a format whose versions go up to newest.
func readJSON(path string, newest int, into any) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrMalformed, err)
	}
	switch {
	case head.Version > newest:
		return fmt.Errorf("%s has version %d, and %d is the latest that this program reads: %w", path, head.Version, newest, ErrNewer)
	case head.Version < 1:
		return fmt.Errorf("%s: %w: it has no version", path, ErrMalformed)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrMalformed, err)
	}
	return nil
}

// readFile reads a file that only we could have written.
func readFile(path string) ([]byte, error) {
	// O_NOFOLLOW and O_NONBLOCK: a link, a pipe or a device under this name was not put there by us.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is not a regular file", path, ErrMalformed)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s: %w: it belongs to somebody else or can be written by others", path, ErrMalformed)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: it is larger than %d bytes", path, ErrMalformed, maxFile)
	}
	return data, nil
}

// WriteSpec writes a spec for its one reader.
func WriteSpec(path string, s Spec) error {
	s.Version = SpecVersion
	return WriteJSON(path, s)
}

// WriteRecord writes a record.
func WriteRecord(path string, r Record) error {
	r.Version = RecordVersion
	return WriteJSON(path, r)
}

// WriteJSON writes v to path, mode 0600, so that after it returns the file survives a power cut, and at no moment half of it shows.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, append(data, '\n'))
}

// WriteFile is WriteJSON for what is encoded already.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
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
