package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// An upgrade of tmux replaces its file below living servers. MUXPOST_TEST_TMUX lists releases to upgrade to, as a PATH is written, beside
// the installed one.
func TestUpgrade_OfTmuxUnderALivingAgent(t *testing.T) {
	now := needs.Program(t, "tmux")
	for _, next := range append(filepath.SplitList(os.Getenv("MUXPOST_TEST_TMUX")), now) {
		t.Run(next, func(t *testing.T) {
			r := newRig(t, nil)
			conversation := r.started("delivery-0001", "first").Conversation
			before := r.state().Incarnation
			r.install(next)
			r.restart()
			if st := r.state(); st.State != session.Live || st.Incarnation != before {
				t.Fatalf("%+v", st)
			}
			r.until("the second is submitted", func() bool { return r.goesIn("delivery-0002", "second") })
			r.took(conversation, typed("delivery-0001", "first"), typed("delivery-0002", "second"))
			if releaseOf(t, next) != releaseOf(t, now) { // else the one that is configured will do
				r.unreached(before)
			}
		})
	}
}

// releaseOf is what a tmux says of itself.
func releaseOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program, "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// unreached expects that nothing is known where the file that the server runs cannot be run any more, that a person is told what to do,
// and that nothing is started beside the agent.
func (r *rig) unreached(agent host.Incarnation) {
	r.t.Helper()
	own := "/proc/" + strconv.Itoa(agent.Server.Pid) + "/exe"
	if err := os.Chmod(own, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.restart()
	if st := r.state(); st.State != session.Unknown || !strings.Contains(st.Detail, "set tmuxd.tmux to the release") {
		r.t.Errorf("%+v", st)
	}
	if res := r.spawn("delivery-0003", "third"); res.Outcome != host.SpawnFailed {
		r.t.Errorf("%+v", res)
	}
	if err := os.Chmod(own, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if st := r.becomes(session.Live); st.Incarnation != agent {
		r.t.Errorf("%+v", st)
	}
}
