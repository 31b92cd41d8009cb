package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"
)

const (
	// enterScreen turns bracketed paste on at once, as real agents do: it says nothing about being ready.
	enterScreen = "\x1b[?2004h\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[H"
	leaveScreen = "\x1b[?2004l\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
	// escapeWait is how long an ESC may be the begin of a longer key.
	escapeWait = 50 * time.Millisecond
	readSize   = 64 << 10
	// drainReads bounds how many reads are taken before the screen is drawn again.
	drainReads = 64
)

// terminal joins the model to a real terminal.
type terminal struct {
	in, out    *os.File
	now        func() time.Time
	model      *model
	transcript *transcript
	signals    <-chan os.Signal
	reads      chan []byte
	requests   <-chan asked
	decoder    decoder
	escapeAt   time.Time
	drawAt     time.Time // the screen is not drawn sooner
	shown      *frame
}

// catch begins to take the signals of the program. It comes first in a run, so that none of them kills it half-way.
func catch() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGWINCH, syscall.SIGUSR1)
	return c, func() { signal.Stop(c) }
}

// run shows the agent until it ends, restores the terminal, and returns the exit status and what to say.
func (t *terminal) run() (code int, message string, err error) {
	saved, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return 1, "", fmt.Errorf("the terminal cannot be set to raw mode: %w", err)
	}
	defer func() {
		// The terminal may be gone with its pane; there is nobody left to tell.
		_, _ = io.WriteString(t.out, leaveScreen)
		_ = term.Restore(int(t.in.Fd()), saved)
	}()
	if _, err := io.WriteString(t.out, enterScreen); err != nil {
		return 1, "", fmt.Errorf("the terminal cannot be written: %w", err)
	}
	t.reads = make(chan []byte)
	go t.read()
	exit, err := t.loop()
	if err != nil {
		return 1, "", err
	}
	return exit.code, exit.text, nil
}

// read hands on what the terminal sends, one read at a time, because what came together matters. It lives as long as the
// program: a read of a terminal cannot be called off.
func (t *terminal) read() {
	for {
		buf := make([]byte, readSize)
		n, err := t.in.Read(buf)
		if n > 0 {
			t.reads <- buf[:n]
		}
		if err != nil {
			close(t.reads)
			return
		}
	}
}

func (t *terminal) loop() (*effect, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		exit, err := t.transcript.perform(t.model.tick(t.now()))
		if exit != nil || err != nil {
			return exit, err
		}
		if !t.now().Before(t.drawAt) && t.draw() != nil {
			return t.hangUp() // a terminal that cannot be drawn on is gone, and its signal is on the way
		}
		timer.Reset(t.untilWake())
		select {
		case b, ok := <-t.reads:
			exit, err = t.takeAll(b, ok)
		case s := <-t.signals:
			exit, err = t.signal(s)
		case a := <-t.requests:
			exit, err = t.requested(a)
		case <-timer.C:
			exit, err = t.flush()
		}
		if exit != nil || err != nil {
			return exit, err
		}
	}
}

// untilWake is the time until something happens by itself.
func (t *terminal) untilWake() time.Duration {
	at, ok := t.model.wake()
	if !t.escapeAt.IsZero() && (!ok || t.escapeAt.Before(at)) {
		at, ok = t.escapeAt, true
	}
	if t.now().Before(t.drawAt) && (!ok || t.drawAt.Before(at)) {
		at, ok = t.drawAt, true
	}
	if !ok {
		return time.Hour
	}
	return max(0, at.Sub(t.now()))
}

// takeAll takes a read and those that wait behind it.
func (t *terminal) takeAll(b []byte, ok bool) (*effect, error) {
	for range drainReads {
		exit, err := t.take(b, ok)
		if exit != nil || err != nil {
			return exit, err
		}
		select {
		case b, ok = <-t.reads:
		default:
			return nil, nil
		}
	}
	return t.take(b, ok)
}

// take gives one read to the model. The end of input means that the terminal is gone.
func (t *terminal) take(b []byte, ok bool) (*effect, error) {
	if !ok {
		return t.hangUp()
	}
	now := t.now()
	events := t.decoder.feed(b)
	if slices.ContainsFunc(events, func(e event) bool { return e.kind == evPaste }) {
		t.drawAt = now.Add(t.model.pasteDraw)
	}
	t.escapeAt = time.Time{}
	if t.decoder.waiting() {
		t.escapeAt = now.Add(escapeWait)
	}
	return t.transcript.perform(t.model.input(now, events))
}

// hangUp ends the program as SIGHUP does.
func (t *terminal) hangUp() (*effect, error) {
	return t.transcript.perform(leave(128 + int(syscall.SIGHUP)))
}

// flush ends a key that waited long enough.
func (t *terminal) flush() (*effect, error) {
	now := t.now()
	if t.escapeAt.IsZero() || now.Before(t.escapeAt) {
		return nil, nil
	}
	t.escapeAt = time.Time{}
	return t.transcript.perform(t.model.input(now, t.decoder.flush()))
}

func (t *terminal) signal(s os.Signal) (*effect, error) {
	switch s {
	case syscall.SIGWINCH:
		t.shown = nil
	case syscall.SIGUSR1:
		t.model.openDialog()
	default:
		n, _ := s.(syscall.Signal)
		return t.transcript.perform(leave(128 + int(n)))
	}
	return nil, nil
}

// draw brings the screen up to date with one write.
func (t *terminal) draw() error {
	w, h, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return fmt.Errorf("the size of the terminal cannot be read: %w", err)
	}
	next := render(t.model, w, h)
	if b := paint(t.shown, next); len(b) > 0 {
		if _, err := t.out.Write(b); err != nil {
			return fmt.Errorf("the terminal cannot be written: %w", err)
		}
	}
	t.shown = &next
	return nil
}
