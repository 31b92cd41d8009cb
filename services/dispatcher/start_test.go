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
	"muxpost.dev/muxpost/internal/settings"
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

// at is where a test's installation is; env are pairs of names and values.
func at(dir string, env ...string) settings.Where {
	return settings.Where{DataDir: dir, Getenv: func(name string) string {
		for i := 0; i < len(env); i += 2 {
			if env[i] == name {
				return env[i+1]
			}
		}
		return ""
	}}
}

func TestStart_SaysWhatIsMissing(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"harness":     {"dispatcher: {database_url: postgres://x}", "dispatcher.harness is not set"},
		"database":    {"dispatcher: {harness: claude}", "no database URL is set"},
		"both URLs":   {"dispatcher: {harness: claude, database_url: postgres://x, database_url_file: /x}", "are both set"},
		"unknown key": {"dispatcher: {harnes: claude}", "did you mean dispatcher.harness"},
	} {
		err := start(t.Context(), []string{"--config", write(t, row.text)}, at(t.TempDir()), io.Discard, io.Discard)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStart_PrintsTheVersion(t *testing.T) {
	var out bytes.Buffer
	err := start(t.Context(), []string{"--version"}, at(t.TempDir()), &out, io.Discard)
	if err != nil || !strings.HasPrefix(out.String(), "muxpost-dispatcher ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestStart_SaysThatTheDatabaseIsBehind(t *testing.T) {
	file := write(t, "dispatcher: {harness: claude, listen: \"127.0.0.1:0\"}")
	err := start(t.Context(), []string{"--config", file}, at(t.TempDir(), "MUXPOST_DATABASE_URL", dbtest.NewEmptyURL(t)), io.Discard, io.Discard)
	if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "muxpost migrate") {
		t.Errorf("%v", err)
	}
}
