package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// maxNote is how much of a note is read, and maxNoted how much of each of its parts is kept: it is anybody's text.
	maxNote  = 4096
	maxNoted = 400
)

// NotesDir is where notes are written.
func (d *Dir) NotesDir() string { return d.path("notes") }

// NotePath is where an incarnation tells what it does.
func (d *Dir) NotePath(target, stamp string) string { return d.path("notes", target+"."+stamp) }

// NoteOf says whose a note is by its name; ok is false for any other name.
func NoteOf(name string) (target, stamp string, ok bool) {
	target, stamp, ok = strings.Cut(name, ".")
	return target, stamp, ok && target != "" && stamp != "" && !strings.Contains(stamp, ".")
}

// Note reads what an incarnation told last: a word, a blank and the conversation that is open, then, on a line of its own, a detail. All but the
// word may be missing.
func (d *Dir) Note(target, stamp string) (host.Note, bool) {
	f, err := openRegular(d.NotePath(target, stamp), unix.O_NOFOLLOW)
	if err != nil {
		return host.Note{}, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNote))
	info, statErr := f.Stat()
	if err != nil || statErr != nil || len(data) == 0 {
		return host.Note{}, false
	}
	first, rest, _ := strings.Cut(string(data), "\n")
	detail, _, _ := strings.Cut(rest, "\n")
	n := host.Note{Detail: cut(detail), At: info.ModTime()}
	words := strings.Fields(cut(first))
	if len(words) == 0 {
		return host.Note{}, false
	}
	if n.Word = words[0]; len(words) > 1 {
		n.Conversation = words[1]
	}
	return n, true
}

// cut keeps the beginning of a text, without a broken character at its end.
func cut(s string) string {
	return strings.ToValidUTF8(strings.TrimSpace(s[:min(len(s), maxNoted)]), "")
}

// tidyNotes removes the notes of incarnations that are over.
func (d *Dir) tidyNotes(now time.Time, _ time.Duration) ([]string, error) {
	return d.each("notes/*", func(path string) (bool, error) {
		target, stamp, ok := NoteOf(filepath.Base(path))
		if !ok {
			return older(path, now, litterAge), nil // a program that writes it anew and renames it may be in the middle of that
		}
		if _, err := os.Lstat(d.spec(stamp)); err == nil || !errors.Is(err, fs.ErrNotExist) || !older(path, now, litterAge) {
			return false, nil
		}
		return d.over(d.record(target, stamp))
	})
}
