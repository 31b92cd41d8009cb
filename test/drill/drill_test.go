package drill

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
)

// shortTime is for how long things break where nobody says otherwise.
const shortTime = "35s"

// TestDrill_NothingIsLostOrDoubledWhateverBreaks runs the drill as a person does. DRILL_SEED and DRILL_TIME choose another one, DRILL_ARGS has
// further flags.
func TestDrill_NothingIsLostOrDoubledWhateverBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute or two")
	}
	for _, needed := range []string{"tmux", "go"} {
		needs.Program(t, needed)
	}
	dir := t.TempDir()
	bin, next := filepath.Join(dir, "bin"), filepath.Join(dir, "next")
	if err := errors.Join(Build(bin, "v0.0.1-drill", nil), Build(next, "v0.0.2-drill", nil, Product()...)); err != nil {
		t.Fatal(err)
	}
	during := os.Getenv("DRILL_TIME")
	if during == "" {
		during = shortTime
	}
	args := append([]string{"-time", during, "-next", next}, strings.Fields(os.Getenv("DRILL_ARGS"))...)
	if seed := os.Getenv("DRILL_SEED"); seed != "" {
		args = append(args, "-seed", seed)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "muxpost-drill"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	line := strings.TrimSpace(out.String())
	t.Log(line)
	if err != nil || !clean.MatchString(line) {
		t.Errorf("%v: %q", err, line)
	}
}

var clean = regexp.MustCompile(`^drill: seed=\d+ events=[1-9]\d* lost=0 doubled=0 crossed=0 disordered=0 merged=0 harmed=0 crashed=0 looped=0 unexplained=0 unconfirmed=0$`)
