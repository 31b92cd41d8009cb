// Package disk keeps what outlives a session and tmuxd itself: which incarnation a target had last, how far each delivery came
// (the journal), which fencing tokens are too old, and the files that tmuxd and the wrapper of an agent tell each other through.
//
// It knows files and processes by their pid. It knows nothing of tmux, and decides nothing.
package disk

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Dir is a state directory.
type Dir struct {
	root     string
	execPath string
	lock     *os.File
	token    *highWater
	floor    *highWater
	// A look at a session reads these, and they seldom change.
	memories kept[host.Memory]
	records  kept[wrapper.Record]
	// instance names the directory for good.
	instance string
}

// Open makes or opens a state directory, for one tmuxd at a time. execPath is the wrapper's binary.
func Open(root, execPath string) (*Dir, error) {
	if !filepath.IsAbs(root) {
		return nil, fmt.Errorf("the state directory %q is not an absolute path", root)
	}
	if err := Private(root); err != nil {
		return nil, err
	}
	for _, sub := range []string{"sessions", "records", "specs", "prompts", "notes", "journal", "tokens"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the state directory: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another tmuxd uses the state directory %s: two on one directory would act on the same sessions", root)
	}
	d := &Dir{root: root, execPath: execPath, lock: lock}
	if d.token, err = openHighWater(d.path("token.json")); err == nil {
		d.floor, err = openHighWater(d.path("floor.json"))
	}
	if err == nil {
		d.instance, err = openInstance(d.path("instance"))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// Instance names the directory for good: no other one has the same, unless it was copied.
func (d *Dir) Instance() string { return d.instance }

// openInstance reads the name of a directory, or gives it one.
func openInstance(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		name := strings.ToLower(rand.Text())
		return name, wrapper.WriteFile(path, []byte(name+"\n"))
	}
	name := strings.TrimSpace(string(data))
	if err == nil && name == "" {
		err = fmt.Errorf("%s is empty: remove it, and accept the host anew with muxpost hosts accept", path)
	}
	return name, err
}

// Close gives the directory free.
func (d *Dir) Close() error { return d.lock.Close() }

// HarnessRoot is where harnesses have their own directories.
func (d *Dir) HarnessRoot() string { return d.root }

func (d *Dir) path(parts ...string) string {
	return filepath.Join(append([]string{d.root}, parts...)...)
}

// Recall returns the memory of a target.
func (d *Dir) Recall(target string) (host.Memory, bool, error) {
	m, err := d.memories.get(d.path("sessions", target+".json"), time.Now, readMemory)
	if errors.Is(err, fs.ErrNotExist) {
		// What is left of one that was forgotten is the token that still binds.
		token, err := d.retired(target)
		return host.Memory{Token: token}, false, err
	}
	if err != nil {
		return host.Memory{}, false, fmt.Errorf("the memory of %s cannot be read: %w", target, err)
	}
	return m, true, nil
}

func readMemory(path string) (m host.Memory, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}

// Remember stores the memory of a target, with what names the server's process for good.
func (d *Dir) Remember(m host.Memory) error {
	if m.Server.Pid > 0 && m.Boot == "" {
		p, err := wrapper.Find(m.Server.Pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		m.ServerStart, m.Boot = p.Start, p.Boot
	}
	return wrapper.WriteJSON(d.path("sessions", m.Target+".json"), m)
}

// ServerLives says whether the remembered tmux server's process lives.
func (d *Dir) ServerLives(m host.Memory) session.Process {
	if m.Server.Pid == 0 {
		return session.ProcessNone
	}
	return process(wrapper.Process{Pid: m.Server.Pid, Start: m.ServerStart, Boot: m.Boot})
}

func process(p wrapper.Process) session.Process {
	alive, err := p.Alive()
	switch {
	case err != nil:
		return session.ProcessUnclear
	case alive:
		return session.ProcessAlive
	}
	return session.ProcessGone
}

// line is the form of a journal entry.
type line struct {
	Time         time.Time `json:"time"`
	ID           string    `json:"id"`
	Phase        string    `json:"phase"`
	Stamp        string    `json:"stamp,omitempty"`
	Harness      string    `json:"harness,omitempty"`
	Conversation string    `json:"conversation,omitempty"`
	Directory    string    `json:"directory,omitempty"`
}

// Append writes an entry to the target's journal.
func (d *Dir) Append(target string, e host.Entry, synced bool) error {
	data, err := json.Marshal(line{e.Time, e.ID, e.Phase.String(), e.Stamp, e.Harness, e.Conversation, e.Directory})
	if err != nil {
		return err
	}
	path := d.path("journal", target+".jsonl")
	_, err = os.Stat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// A crash in the middle of a line leaves a torn one: the next begins on a line of its own, and the torn one is passed over.
	_, err = f.Write(append(append([]byte("\n"), data...), '\n'))
	if err == nil && synced {
		err = f.Sync()
	}
	if err == nil && fresh {
		err = syncDir(d.path("journal"))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// syncDir makes the names in a directory survive a power cut.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Entries returns the entries of one delivery, oldest first.
func (d *Dir) Entries(target, id string) ([]host.Entry, error) {
	var out []host.Entry
	err := d.scan(target, func(l line) error {
		if l.ID != id {
			return nil
		}
		phase, known := session.ParsePhase(l.Phase)
		if !known {
			return fmt.Errorf("the journal of %s has the phase %q, which this version does not know", target, l.Phase)
		}
		out = append(out, host.Entry{Time: l.Time, ID: l.ID, Phase: phase, Stamp: l.Stamp, Harness: l.Harness,
			Conversation: l.Conversation, Directory: l.Directory})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// scan calls f with each line of a target's journal, oldest first, until it fails. Torn ones are passed over.
func (d *Dir) scan(target string, f func(line) error) error {
	file, err := os.Open(d.path("journal", target+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var l line
		if json.Unmarshal(scan.Bytes(), &l) != nil {
			continue
		}
		if err := f(l); err != nil {
			return err
		}
	}
	return scan.Err()
}

func (d *Dir) spec(stamp string) string   { return d.path("specs", stamp+".json") }
func (d *Dir) prompt(stamp string) string { return d.path("prompts", stamp+".txt") }
func (d *Dir) record(target, stamp string) string {
	return d.path("records", target+"."+stamp+".json")
}

// PromptFile tells where the prompt of an incarnation will lie.
func (d *Dir) PromptFile(stamp string) string { return d.prompt(stamp) }

// Prepare writes the spec of a run and returns the wrapper's command.
func (d *Dir) Prepare(r host.Run) ([]string, error) {
	d.prune(r.Target)
	return []string{d.execPath, d.spec(r.Stamp)}, wrapper.WriteSpec(d.spec(r.Stamp), wrapper.Spec{
		Stamp: r.Stamp, Argv: r.Argv, Env: r.Env, Dir: r.Dir, Prompt: r.Prompt, PromptFile: r.PromptFile,
		Companion: r.Companion, CompanionSocket: r.CompanionSocket, RecordFile: d.record(r.Target, r.Stamp), NotAfter: r.NotAfter,
	})
}

// Revoke takes a spec back. Whoever unlinks it, the wrapper or we, was first.
func (d *Dir) Revoke(stamp string) bool { return os.Remove(d.spec(stamp)) == nil }

// Discard removes a prompt that nobody read.
func (d *Dir) Discard(stamp string) { _ = os.Remove(d.prompt(stamp)) }

// Transcripts calls match with the lines of the files that a pattern names and that changed after since, until it returns false. read holds how
// far each file was read: what is before that is left out, and it is brought up to date; nil reads everything.
func (d *Dir) Transcripts(pattern string, since time.Time, read map[string]int64, match func(path string, line []byte) bool) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.ModTime().Before(since) || !info.Mode().IsRegular() {
			continue
		}
		from := read[path]
		if info.Size() < from {
			from = 0 // it is another file by now
		}
		end, more, err := lines(path, from, func(line []byte) bool { return match(path, line) })
		if read != nil {
			read[path] = end
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// tailSize is how much of the end of a file is searched for a line.
const tailSize = 64 << 10

// LastLine returns the last line that match takes, near the end of the newest file that a pattern (as in path/filepath) names and that changed after
// since; empty for none.
func (d *Dir) LastLine(pattern string, since time.Time, match func(line []byte) bool) (last string) {
	paths, _ := filepath.Glob(pattern) // the pattern was checked with the entry
	newest, path := since, ""
	for _, p := range paths {
		if at := modified(p); at.After(newest) {
			newest, path = at, p
		}
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	_, _, _ = lines(path, max(0, info.Size()-tailSize), func(line []byte) bool {
		if match(line) {
			last = string(line)
		}
		return true
	})
	return last
}

// lines calls match with each line of a file from a place on, however long, until it returns false. end is behind the last whole line that was
// read: what is being written is read again.
func lines(path string, from int64, match func([]byte) bool) (end int64, more bool, err error) {
	f, err := openRegular(path, 0)
	if err != nil {
		return from, false, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return from, false, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	for end = from; ; {
		row, err := in.ReadBytes('\n')
		if len(row) > 0 && !match(bytes.TrimSuffix(row, []byte("\n"))) {
			return end, false, nil
		}
		if errors.Is(err, io.EOF) {
			return end, true, nil
		}
		if err != nil {
			return end, false, err
		}
		end += int64(len(row))
	}
}

// Directory checks a working directory, or makes it, and returns it without symbolic links.
func (d *Dir) Directory(path string, make bool) (string, error) {
	if make {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", err
		}
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", path)
	}
	return real, err
}

// MakePrivate makes a directory of a harness's own.
func (d *Dir) MakePrivate(path string) error { return os.MkdirAll(path, 0o700) }

// Provide puts a text into a private file, with the directories that it lacks, unless it is there.
func (d *Dir) Provide(path, text string) error {
	if holds(path, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return wrapper.WriteFile(path, []byte(text))
}

// holds reports whether a file of our own holds a text.
func holds(path, text string) bool {
	f, err := openRegular(path, unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer f.Close()
	have, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	return err == nil && string(have) == text
}

// openRegular opens a file that is there to be read and that an agent could have replaced: a pipe under its name would keep us waiting for a writer
// for ever. flags are added to those of the open.
func openRegular(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// Writable says why nothing can be written; nil when it can.
func (d *Dir) Writable() error {
	f, err := os.CreateTemp(d.root, ".writable.*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	return f.Close()
}
