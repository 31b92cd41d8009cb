package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "muxpost.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestLoadConfig_FlagsBeforeEnvironmentBeforeFileBeforeDefaults(t *testing.T) {
	file := write(t, "tmuxd: {}\ndispatcher:\n  harness: claude\n  listen: 127.0.0.1:1\n  data_dir: /from/file\n"+
		"  database_url: postgres://file\n  resume: false\n  log_level: debug\n  host: {name: b}\n")
	c, err := loadConfig(options{config: file, dataDir: "/from/flag"},
		env("MUXPOST_DATABASE_URL", "postgres://env", "MUXPOST_LISTEN", "127.0.0.1:2"))
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		Listen: "127.0.0.1:2", DataDir: "/from/flag", DatabaseURL: "postgres://env", Host: hostConfig{Name: "b", Address: "127.0.0.1:7411"},
		Harness: "claude", LogLevel: slog.LevelDebug,
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestLoadConfig_SaysWhatIsMissing(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		env  func(string) string
		want string
	}{
		"harness":     {"dispatcher: {database_url: postgres://x}", env(), "dispatcher.harness is not set"},
		"database":    {"dispatcher: {harness: claude}", env(), "no database URL is set"},
		"both URLs":   {"dispatcher: {harness: claude}", env("MUXPOST_DATABASE_URL", "postgres://x", "MUXPOST_DATABASE_URL_FILE", "/x"), "both"},
		"unknown key": {"dispatcher: {harnes: claude}", env(), "did you mean dispatcher.harness"},
	} {
		_, err := loadConfig(options{config: write(t, row.text)}, row.env)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseFlags_RefusesWhatItDoesNotKnow(t *testing.T) {
	for _, args := range [][]string{{"--nope"}, {"serve"}, {"--config"}} {
		if _, err := parseFlags(args); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "--help") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestStart_HelpNamesEveryKeyAndVariable(t *testing.T) {
	var out bytes.Buffer
	if err := start(t.Context(), []string{"--help"}, env(), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"harness", "listen", "data_dir", "database_url", "database_url_file", "host.address", "host.name", "resume",
		"log_level", "MUXPOST_DATABASE_URL", "MUXPOST_DATABASE_URL_FILE", "MUXPOST_LISTEN", "MUXPOST_HOST_ADDRESS", "--config", "--data-dir"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("--help does not name %s", name)
		}
	}
	out.Reset()
	err := start(t.Context(), []string{"--version"}, env(), &out, io.Discard)
	if err != nil || !strings.HasPrefix(out.String(), "muxpost-dispatcher ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestStart_SaysThatTheDatabaseIsBehind(t *testing.T) {
	file := write(t, "dispatcher: {harness: claude, listen: \"127.0.0.1:0\"}")
	err := start(t.Context(), []string{"--config", file}, env("MUXPOST_DATABASE_URL", dbtest.NewEmptyURL(t)), io.Discard, io.Discard)
	if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "muxpost migrate") {
		t.Errorf("%v", err)
	}
}
