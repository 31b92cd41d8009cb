package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// line is one line of a transcript.
type line struct {
	Time    string `json:"time"`
	Seq     int    `json:"seq"`
	Type    string `json:"type"`
	Session string `json:"session"`
	Text    string `json:"text,omitempty"`
	CWD     string `json:"cwd,omitempty"`
	From    string `json:"from,omitempty"`
	// Delivery is the id of what was handed over.
	Delivery string `json:"delivery,omitempty"`
	Choice   string `json:"choice,omitempty"`
	Code     *int   `json:"code,omitempty"`
	// PID is the process, in what begins and ends a life.
	PID int `json:"pid,omitempty"`
}

// errInUse and errNoSession are how opening a transcript fails when nothing is wrong with the disk.
var (
	errInUse     = errors.New("session id already in use")
	errNoSession = errors.New("no saved session")
	errElsewhere = errors.New("the conversation is open in another process")
)

// transcript is the record of one conversation: a file of JSON lines that only grows.
type transcript struct {
	home    string
	cwd     string
	now     func() time.Time
	session string
	file    *os.File
	seq     int
	// deliveries are those in the conversation that was resumed.
	deliveries []string
}

func (t *transcript) path(session string) string {
	return filepath.Join(t.home, "sessions", session+".jsonl")
}

// create begins the transcript of a new conversation. An id that has one already is refused with errInUse.
func (t *transcript) create(session string) error {
	if err := os.MkdirAll(filepath.Dir(t.path(session)), 0o700); err != nil {
		return fmt.Errorf("the directory of the transcripts cannot be made: %w", err)
	}
	file, err := os.OpenFile(t.path(session), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return errInUse
	}
	if err != nil {
		return fmt.Errorf("the transcript cannot be created: %w", err)
	}
	if err := lock(file); err != nil {
		return errors.Join(err, file.Close())
	}
	t.close()
	t.file, t.session, t.seq = file, session, 0
	return t.append(line{Type: "session_start", CWD: t.cwd})
}

// lock makes the process the only writer of a transcript, for as long as it has it open.
func lock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errElsewhere
	}
	if err != nil {
		return fmt.Errorf("the transcript cannot be locked: %w", err)
	}
	return nil
}

// resume goes on with a conversation and returns what was said in it. An id without a transcript is errNoSession, one that
// another process is writing errElsewhere.
func (t *transcript) resume(session string) ([]entry, error) {
	file, err := os.OpenFile(t.path(session), os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoSession
	}
	if err != nil {
		return nil, fmt.Errorf("the transcript cannot be opened: %w", err)
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	t.file, t.session = file, session
	history, whole, err := t.load(file)
	if err == nil {
		err = file.Truncate(whole)
	}
	if err != nil {
		return nil, fmt.Errorf("the transcript %s cannot be taken up again: %w", t.path(session), err)
	}
	return history, t.append(line{Type: "resumed", CWD: t.cwd})
}

// load reads the lines of a transcript, and says how many bytes of it are whole lines: half a line at its end is what a
// crash leaves, and goes.
func (t *transcript) load(r io.Reader) (history []entry, whole int64, err error) {
	leads := map[string]string{"user": leadUser, "assistant": leadAgent, "shell": leadShell}
	in := bufio.NewReader(r)
	for {
		raw, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return history, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		whole += int64(len(raw))
		var l line
		if json.Unmarshal(raw, &l) != nil {
			continue
		}
		t.seq = max(t.seq, l.Seq)
		if l.Delivery != "" {
			t.deliveries = append(t.deliveries, l.Delivery)
		}
		if lead, ok := leads[l.Type]; ok {
			history = append(history, entry{lead: lead, text: l.Text})
		}
	}
}

// fork goes on in a new conversation, whose transcript says where it came from.
func (t *transcript) fork(session string) error {
	from := t.session
	if err := t.create(session); err != nil {
		return err
	}
	return t.append(line{Type: "forked", From: from})
}

// append writes one line in one write. What a user said is on the disk before anybody is shown that it was taken. A run
// that never got its conversation has nothing to write to, and nothing to say.
func (t *transcript) append(l line) error {
	if t.file == nil {
		return nil
	}
	t.seq++
	l.Time, l.Seq, l.Session = t.now().UTC().Format(time.RFC3339Nano), t.seq, t.session
	switch l.Type {
	case "session_start", "resumed", "exit":
		l.PID = os.Getpid()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("a line of the transcript cannot be encoded: %w", err)
	}
	if _, err := t.file.Write(b.Bytes()); err != nil {
		return fmt.Errorf("the transcript cannot be written: %w", err)
	}
	if l.Type != "user" {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("the transcript cannot be brought to the disk: %w", err)
	}
	return nil
}

// approve notes an approval in a file of its own: what a real agent would have done to the machine.
func (t *transcript) approve(choice string) error {
	path := filepath.Join(t.home, "approved-"+t.session)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the approval cannot be noted: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s %s\n", t.now().UTC().Format(time.RFC3339Nano), choice)
	return errors.Join(err, file.Close())
}

// refuse notes that this process ended by itself because there is no such conversation: that has no transcript to say so.
func (t *transcript) refuse(session string) error {
	path := filepath.Join(t.home, "sessions", "refused")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the refusal cannot be noted: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the refusal cannot be noted: %w", err)
	}
	_, err = fmt.Fprintf(file, "%d %s\n", os.Getpid(), session)
	return errors.Join(err, file.Close())
}

// perform does what the model asks for, in order, up to and without an exit, which it returns.
func (t *transcript) perform(effects []effect) (exit *effect, err error) {
	for _, e := range effects {
		switch e.kind {
		case effRecord:
			err = t.append(e.line)
		case effApprove:
			err = t.approve(e.text)
		case effFork:
			err = t.fork(e.text)
		case effExit:
			return &e, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (t *transcript) close() {
	if t.file != nil {
		_ = t.file.Close() // every line was written whole before
		t.file = nil
	}
}
