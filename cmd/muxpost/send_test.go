package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// ledgerPoller keeps messages by their keys, as the real one does, and cuts its connections once it has taken one, before it answers.
type ledgerPoller struct {
	fakePoller
	listener *cutListener
	cuts     int
	texts    map[string]string
}

func (l *ledgerPoller) Submit(ctx context.Context, r *pollerv1.SubmitRequest) (*pollerv1.SubmitResponse, error) {
	answer, err := l.fakePoller.Submit(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.GetIdempotencyKey()
	if _, answer.Existed = l.texts[key]; !answer.Existed && !r.GetDryRun() {
		l.texts[key] = r.GetText()
	}
	if l.cuts > 0 {
		l.cuts--
		l.listener.cut()
	}
	return answer, err
}

// seen says how often it was asked, and how many messages it has taken.
func (l *ledgerPoller) seen() (asked, taken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.submitted), len(l.texts)
}

// cutting sets how often it cuts, and returns how often it would have.
func (l *ledgerPoller) cutting(n int) (before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.cuts = l.cuts, n
	return before
}

// cutListener closes the connections that it let in.
type cutListener struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, conn)
	}
	return conn, err
}

func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.all {
		_ = conn.Close()
	}
	l.all = nil
}

// serveLedger serves a poller that cuts its connections so many times.
func (d *desk) serveLedger(t *testing.T, cuts int) *ledgerPoller {
	t.Helper()
	listener, err := rpc.Listen("unix:" + filepath.Join(d.dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	l := &ledgerPoller{listener: &cutListener{Listener: listener}, cuts: cuts, texts: map[string]string{}}
	server := rpc.NewServer(rpc.Options{})
	pollerv1.RegisterPollerServiceServer(server, l)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l.listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestSend_ALostAnswerIsAskedForOnceMoreAndTheMessageToldOnce(t *testing.T) {
	d := newDesk(t)
	l := d.serveLedger(t, 1)
	if err := d.run(t, "send", "github:o/r#1", "hi"); err != nil {
		t.Fatal(err)
	}
	if asked, taken := l.seen(); asked != 2 || taken != 1 || !strings.Contains(d.out.String(), "sent to github:o/r#1") {
		t.Errorf("asked %d times, took %d\n%s%s", asked, taken, d.out, d.err)
	}
	if err := d.run(t, "send", "github:o/r#1", "hi"); err != nil {
		t.Error(err)
	}
	if _, taken := l.seen(); taken != 2 {
		t.Errorf("the same words again are another message: %d", taken)
	}
}

func TestSend_WhereTheAnswerStaysAwayItSaysHowToSendItAgainSafely(t *testing.T) {
	d := newDesk(t)
	l := d.serveLedger(t, 4)
	for _, own := range [][]string{nil, {"--key", "it is mine"}} {
		_, before := l.seen()
		err := d.run(t, append([]string{"send", "github:o/r#1", "hi"}, own...)...)
		if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "whether it was taken is not known") {
			t.Fatalf("%v", err)
		}
		m := regexp.MustCompile(`--key ('[^']*'|[^ ,]+),`).FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("no key is named: %v", err)
		}
		cuts := l.cutting(0)
		if err := d.run(t, "send", "--key", strings.Trim(m[1], "'"), "github:o/r#1", "hi"); err != nil || !strings.Contains(d.out.String(), "used before") {
			t.Errorf("%v\n%s", err, d.out)
		}
		if _, taken := l.seen(); taken != before+1 {
			t.Errorf("%d messages of one", taken-before)
		}
		l.cutting(cuts)
	}
}

func TestSend_WhatCannotHaveBeenTakenIsNotSaidToBeUnknown(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "send", "github:o/r#1", "hi"); !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "--key") {
		t.Errorf("nobody is there: %v", err)
	}
	l := d.serveLedger(t, 1)
	if err := d.run(t, "send", "--dry-run", "github:o/r#1", "hi"); !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "--key") {
		t.Errorf("a dry run: %v", err)
	}
	if asked, taken := l.seen(); asked != 1 || taken != 0 {
		t.Errorf("a dry run: asked %d times, took %d", asked, taken)
	}
}
