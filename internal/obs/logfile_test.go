package obs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log of a service that muxpost up started does not grow for ever while it runs.
func TestSetup_KeepsTheLogOfTheServiceToASize(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log", "poller.log")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	telemetry, err := Setup(t.Context(), Config{Service: "poller", DataDir: dir, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	defer telemetry.Shutdown(t.Context())
	for range 11 {
		telemetry.Logger.Info("much", KeyError, strings.Repeat("x", 1<<20))
	}
	telemetry.Logger.Info("after that")
	now, err := os.ReadFile(path)
	if err != nil || len(now) > 2<<20 || !strings.Contains(string(now), "after that") {
		t.Errorf("the log has %d bytes: %v", len(now), err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() < 10<<20 {
		t.Errorf("what was before: %v", err)
	}
}
