package store

import (
	"errors"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func TestLook_TheLeaseOfADeadOneEndsAndOneThatIsRenewedDoesNot(t *testing.T) {
	w := newWorld(t)
	begin := func(holder string, every time.Duration) error {
		_, err := w.BeginLook(t.Context(), "gh", holder, time.Minute, every)
		return err
	}
	due := func() time.Duration {
		t.Helper()
		d, err := w.LookDue(t.Context(), "gh", time.Hour)
		must(t, err)
		return d
	}
	held := func(err error) bool {
		return errors.Is(err, fault.Conflict) && fault.ReasonOf(err) == fault.ReasonLeaseHeld
	}
	equal(t, "due before anybody has looked", due(), time.Duration(0))
	must(t, begin("a", time.Hour))
	equal(t, "begun while another is under way", held(begin("b", 0)), true)
	if d := due(); d < 50*time.Second || d > time.Minute {
		t.Errorf("due in %v while a look is under way", d)
	}
	w.sql(t, `update poller.sources set lease_until = now() + interval '1 second'`)
	must(t, w.KeepLook(t.Context(), "gh", "a", time.Minute))
	equal(t, "begun after a renewal", held(begin("b", 0)), true)
	w.sql(t, `update poller.sources set lease_until = now()`)
	equal(t, "due once the lease is over", due(), time.Duration(0))
	must(t, begin("b", time.Hour))
	if err := w.KeepLook(t.Context(), "gh", "a", time.Minute); !errors.Is(err, fault.Fenced) {
		t.Errorf("a lease that was lost: %v", err)
	}
	must(t, w.EndLook(t.Context(), "gh", "a", poll.LookEnd{}))
	equal(t, "the lease of the other one", held(begin("c", 0)), true)
	must(t, w.EndLook(t.Context(), "gh", "b", poll.LookEnd{}))
	if d := due(); d < 59*time.Minute || d > time.Hour {
		t.Errorf("due in %v after a look", d)
	}
	equal(t, "begun though one has just ended", held(begin("c", time.Hour)), true)
	must(t, begin("c", 0))
	must(t, w.EndLook(t.Context(), "gh", "c", poll.LookEnd{Wait: 2 * time.Hour}))
	if d := due(); d < time.Hour {
		t.Errorf("due in %v though the source asked to be left alone", d)
	}
}
