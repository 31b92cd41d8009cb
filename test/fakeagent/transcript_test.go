package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

func newTranscript(home string) *transcript {
	return &transcript{home: home, cwd: "/src", now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }}
}

func TestTranscript_IsReadBackAsItWasWritten(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	log := newTranscript(home)
	if err := log.create(someID); err != nil {
		t.Fatal(err)
	}
	code := 3
	exit, err := log.perform([]effect{
		record("user", "a<b>\n\u2028\x1b\"'"), {kind: effApprove, text: "yes"},
		{kind: effRecord, line: line{Type: "approval", Choice: "yes"}}, {kind: effRecord, line: line{Type: "exit", Code: &code}},
		{kind: effExit, code: 3}, record("user", "never"),
	})
	if err != nil || exit == nil || exit.code != 3 {
		t.Fatal(exit, err)
	}
	log.close()
	c := agenttest.Conversation{Home: home, Session: someID}
	got, err := c.Lines()
	if err != nil {
		t.Fatal(err)
	}
	at := log.now()
	want := []agenttest.Line{
		{Time: at, Seq: 1, Type: "session_start", Session: someID, CWD: "/src", PID: os.Getpid()},
		{Time: at, Seq: 2, Type: "user", Session: someID, Text: "a<b>\n\u2028\x1b\"'"},
		{Time: at, Seq: 3, Type: "approval", Session: someID, Choice: "yes"},
		{Time: at, Seq: 4, Type: "exit", Session: someID, Code: &code, PID: os.Getpid()},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if approved, err := c.Approvals(); err != nil || cmp.Diff([]string{"yes"}, approved) != "" {
		t.Error(approved, err)
	}
	for path, mode := range map[string]os.FileMode{home: 0o700, filepath.Dir(c.Path()): 0o700, c.Path(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

func TestTranscript_AnIdIsUsedOnceAndResumedOnlyWhenKnown(t *testing.T) {
	home := t.TempDir()
	log := newTranscript(home)
	defer log.close()
	if _, err := log.resume(someID); !errors.Is(err, errNoSession) {
		t.Errorf("got %v", err)
	}
	if err := log.create(someID); err != nil {
		t.Fatal(err)
	}
	if err := newTranscript(home).create(someID); !errors.Is(err, errInUse) {
		t.Errorf("got %v", err)
	}
	if _, err := newTranscript(home).resume(someID); !errors.Is(err, errElsewhere) {
		t.Errorf("got %v", err)
	}
}

func TestTranscript_ResumeGoesOnBehindHalfALine(t *testing.T) {
	home := t.TempDir()
	log := newTranscript(home)
	if err := log.create(someID); err != nil {
		t.Fatal(err)
	}
	if err := log.append(line{Type: "user", Text: "said"}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.file.WriteString(`{"time":"20`); err != nil {
		t.Fatal(err)
	}
	log.close()
	again := newTranscript(home)
	history, err := again.resume(someID)
	if err != nil {
		t.Fatal(err)
	}
	again.close()
	if d := cmp.Diff([]entry{{leadUser, "said"}}, history, cmp.AllowUnexported(entry{})); d != "" {
		t.Error(d)
	}
	lines, err := agenttest.Conversation{Home: home, Session: someID}.Lines()
	if err != nil || len(lines) != 3 || lines[2].Type != "resumed" || lines[2].Seq != 3 {
		t.Error(lines, err)
	}
}
