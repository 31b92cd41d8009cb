package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

// The files of an attempt, in a directory of its own that is named by its id.
const (
	memoryFile = "attempt.json"
	promptFile = "prompt.txt"
	specFile   = "spec.json"
	markerFile = "marker.json"
	outputFile = "output.txt"
	// cutFile is there when the output is not all that was shown.
	cutFile = "output.cut"
)

// Attempts are the part of a state directory that belongs to attempts.
type Attempts struct {
	dir *Dir
}

// OpenAttempts makes or opens that part.
func (d *Dir) OpenAttempts() (Attempts, error) {
	return Attempts{d}, os.MkdirAll(d.path("attempts"), 0o700)
}

func (a Attempts) file(id, name string) string { return a.dir.path("attempts", id, name) }

// Begin makes the place of an attempt, with its prompt in a file of its own. Until it is remembered there is no attempt.
func (a Attempts) Begin(id, prompt string) error {
	if err := os.Mkdir(a.dir.path("attempts", id), 0o700); err != nil {
		return err
	}
	return errors.Join(writeNew(a.file(id, promptFile), prompt), syncDir(a.dir.path("attempts")))
}

func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Remember stores a memory, and returns it with what names its processes for good.
func (a Attempts) Remember(m attempt.Memory) (attempt.Memory, error) {
	for _, p := range []*attempt.Process{&m.Pane.Wrapper, &m.Pane.Server} {
		if p.Pid == 0 || p.Boot != "" {
			continue
		}
		switch found, err := wrapper.Find(p.Pid); {
		case err == nil:
			p.Start, p.Boot = found.Start, found.Boot
		case !errors.Is(err, fs.ErrNotExist):
			return m, err
		}
	}
	return m, wrapper.WriteJSON(a.file(m.ID, memoryFile), m)
}

// Recall returns the memories of all attempts, and the ids of those that cannot be read. What was begun and never remembered is removed:
// nothing of it ran.
func (a Attempts) Recall() (all []attempt.Memory, unreadable []string, err error) {
	entries, err := os.ReadDir(a.dir.path("attempts"))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		var m attempt.Memory
		data, err := os.ReadFile(a.file(e.Name(), memoryFile))
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := a.Forget(e.Name()); err != nil {
				return nil, nil, err
			}
		case err != nil || m.ID != e.Name():
			unreadable = append(unreadable, e.Name())
		default:
			all = append(all, m)
		}
	}
	return all, unreadable, nil
}

// Forget removes everything that is kept of an attempt, its memory last.
func (a Attempts) Forget(id string) error {
	if id == "" || id != filepath.Base(id) {
		return fmt.Errorf("%q is no attempt", id)
	}
	names, err := os.ReadDir(a.dir.path("attempts", id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if name.Name() != memoryFile {
			if err := os.RemoveAll(a.file(id, name.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(a.dir.path("attempts", id))
}

// Keep stores what a pane showed, so that it survives a power cut as the outcome does that is remembered after it. A pane that showed more than is
// kept never showed less, so that the mark is written before, and stays.
func (a Attempts) Keep(id string, out attempt.Output) error {
	if out.Cut {
		if err := wrapper.WriteFile(a.file(id, cutFile), nil); err != nil {
			return err
		}
	}
	return wrapper.WriteFile(a.file(id, outputFile), []byte(out.Text))
}

// Kept returns what was kept; empty for nothing.
func (a Attempts) Kept(id string) (out attempt.Output, err error) {
	data, err := os.ReadFile(a.file(id, outputFile))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Text = string(data)
	_, err = os.Lstat(a.file(id, cutFile))
	if out.Cut = err == nil; errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return out, err
}

// PromptFile tells where the prompt of an attempt lies.
func (a Attempts) PromptFile(id string) string { return a.file(id, promptFile) }

// Prepare writes the spec of a run and returns the wrapper's command.
func (a Attempts) Prepare(r attempt.Run) ([]string, error) {
	if _, err := os.Lstat(a.file(r.ID, markerFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is a marker of the attempt %s already: %w", r.ID, fs.ErrExist)
	}
	stdin := os.DevNull
	if r.Stdin {
		stdin = a.PromptFile(r.ID)
	}
	return []string{a.dir.execPath, a.file(r.ID, specFile)}, wrapper.WriteSpec(a.file(r.ID, specFile), wrapper.Spec{
		Stamp: r.Stamp, Argv: r.Argv, Env: r.Env, Dir: r.Dir, PromptFile: a.PromptFile(r.ID), Stdin: stdin,
		RecordFile: a.file(r.ID, markerFile), NotAfter: r.NotAfter, Limit: r.Limit, Grace: r.Grace,
	})
}

// Revoke takes a spec back. Whoever unlinks it, the wrapper or we, was first.
func (a Attempts) Revoke(id string) bool { return os.Remove(a.file(id, specFile)) == nil }

// Marker reads the marker of an attempt.
func (a Attempts) Marker(m attempt.Memory) attempt.Marker {
	path := a.file(m.ID, markerFile)
	r, err := wrapper.ReadRecord(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return attempt.Marker{Kind: task.Absent}
	case errors.Is(err, wrapper.ErrMalformed), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		// An empty one may still be written.
		if info, statErr := os.Lstat(path); statErr == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return attempt.Marker{Kind: task.Empty}
		}
		return attempt.Marker{Kind: task.Malformed, Detail: oneLine(err)}
	case err != nil:
		return attempt.Marker{Kind: task.Unreadable, Detail: oneLine(err)}
	case r.Stamp != m.Stamp:
		return attempt.Marker{Kind: task.Malformed, Detail: "it is not the marker of this attempt's wrapper"}
	}
	return markerOf(r)
}

func markerOf(r wrapper.Record) attempt.Marker {
	out := attempt.Marker{Kind: task.Open, Detail: r.Detail, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Remains: r.Remains}
	switch r.State {
	case wrapper.Exited:
		out.Kind, out.End = task.Ended, task.End{How: task.ByCode, N: r.Code}
	case wrapper.Signaled:
		out.Kind, out.End = task.Ended, task.End{How: task.BySignal, N: r.Signal}
	case wrapper.LaunchFailed:
		out.Kind = task.NotLaunched
	case wrapper.Launching, wrapper.Running, wrapper.Lost:
	}
	switch r.Cause {
	case wrapper.TimeLimit:
		out.Cause = task.LimitOver
	case wrapper.HangUp:
		out.Cause = task.HungUp
	}
	return out
}

// oneLine is what an error says, for a person.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// record is the wrapper's record of an attempt, or what the launch knows of it: enough to find its processes by.
func (a Attempts) record(m attempt.Memory) wrapper.Record {
	r, err := wrapper.ReadRecord(a.file(m.ID, markerFile))
	if err != nil || r.Stamp != m.Stamp {
		p := m.Pane.Wrapper
		return wrapper.Record{Stamp: m.Stamp, Wrapper: wrapper.Process{Pid: p.Pid, Start: p.Start, Boot: p.Boot}}
	}
	return r
}

// Floor returns the lowest fencing token that may act on this host.
func (a Attempts) Floor() int64 { return a.dir.Floor() }

// RaiseToken remembers a higher fencing token as seen.
func (a Attempts) RaiseToken(token int64) error { return a.dir.RaiseToken(token) }

// Alive says what is known of the wrapper's process.
func (a Attempts) Alive(m attempt.Memory) session.Process {
	r := a.record(m)
	if r.Wrapper.Pid == 0 {
		return session.ProcessNone
	}
	return process(r.Wrapper)
}

// ServerLives says what is known of the tmux server's process.
func (a Attempts) ServerLives(m attempt.Memory) session.Process {
	p := m.Pane.Server
	if p.Pid == 0 {
		return session.ProcessNone
	}
	return process(wrapper.Process{Pid: p.Pid, Start: p.Start, Boot: p.Boot})
}
