package needs

import (
	"cmp"
	"os/exec"
	"testing"
)

// ended is a test that notes how it is ended first.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()      {}
func (e *ended) Skip(...any)  { e.how = cmp.Or(e.how, "skipped") }
func (e *ended) Fatal(...any) { e.how = cmp.Or(e.how, "failed") }

func TestProgram_IsMissedAtADeskAndNeededInCI(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped", "true": "failed", "1": "failed"} {
		t.Setenv("CI", ci)
		e := &ended{TB: t}
		if Program(e, "no-such-program"); e.how != want {
			t.Errorf("with CI=%q it is %q", ci, e.how)
		}
	}
	e := &ended{TB: t}
	if want, _ := exec.LookPath("sh"); Program(e, "sh") != want || e.how != "" {
		t.Errorf("with a program that is there it is %q", e.how)
	}
}
