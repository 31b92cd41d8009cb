package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const someID = "0b5c0e5e-3f3c-4c39-8a6e-0d6d1d0f8a11"

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestConfig_TheCommandLineGoesBeforeTheEnvironment(t *testing.T) {
	env := environment(map[string]string{
		"HOME": "/h", "FAKEAGENT_TURN": "9s", "FAKEAGENT_FOLD": "7", "FAKEAGENT_TRUST_DIALOG": "true", "FAKEAGENT_SESSION_ID": someID,
	})
	c, err := configure([]string{"--turn", "1s"}, env, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.turn != time.Second || c.fold != 7 || !c.trust || c.sessionID != someID || c.home != "/h/.fakeagent" {
		t.Errorf("%+v", c)
	}
}

func TestConfig_RefusesWhatCannotBeMeant(t *testing.T) {
	tests := []struct {
		args []string
		env  map[string]string
		want string
	}{
		{args: []string{"--session-id", "../../etc/x"}, want: "is not a UUID"},
		{args: []string{"--resume", "urn:uuid:" + someID}, want: "is not a UUID"},
		{args: []string{"--resume", someID, "--session-id", someID}, want: "exclude"},
		{args: []string{"prompt"}, want: "unexpected argument"},
		{args: []string{"--turn", "-1s"}, want: "not negative"},
		{args: []string{"--exit-code", "256"}, want: "between 0 and 255"},
		{env: map[string]string{"FAKEAGENT_FOLD": "many"}, want: "FAKEAGENT_FOLD"},
	}
	for _, tt := range tests {
		if tt.env == nil {
			tt.env = map[string]string{"HOME": "/h"}
		}
		_, err := configure(tt.args, environment(tt.env), io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v %v: %v", tt.args, tt.env, err)
		}
	}
}

func TestConfig_AStartThatFailsKeepsThePromptFile(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "prompt")
	if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config{sessionID: someID, promptFile: path, home: home}
	log := &transcript{home: home, now: time.Now}
	defer log.close()
	if _, _, err := open(&c, log); err != nil {
		t.Fatal(err)
	}
	if _, _, err := start(c, nil, os.Stdin, os.Stdout); err == nil || err.Error() != "session id already in use" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"missing", "."} {
		c := config{promptFile: filepath.Join(home, name)}
		if err := c.readPrompt(); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
