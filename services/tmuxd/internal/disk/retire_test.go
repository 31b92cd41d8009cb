package disk

import (
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// What was delivered to a session is known until nothing was delivered there for long, and nothing else of it is remembered.
func TestRetire_OnlyWhatIsForgottenAndOld(t *testing.T) {
	const day = 24 * time.Hour
	d := open(t)
	for target, age := range map[string]time.Duration{"loop-old-1": 400 * day, "loop-young-1": 10 * day, "loop-known-1": 400 * day, "loop-token-1": 400 * day} {
		if err := d.Append(target, host.Entry{ID: "d1", Phase: session.Submitted}, false); err != nil {
			t.Fatal(err)
		}
		if err := d.Forget(target, 7); err != nil { // writes its token
			t.Fatal(err)
		}
		put(t, d.path("tokens", target+".json"), age)
		put(t, d.path("journal", target+".jsonl"), age)
	}
	put(t, d.path("sessions", "loop-known-1.json"), 400*day)
	put(t, d.path("tokens", "loop-token-1.json"), day)
	since := time.Now().Add(-365 * day)
	if got, err := d.Retired(since); err != nil || !slices.Equal(got, []string{"loop-old-1"}) {
		t.Errorf("retired are %v, %v", got, err)
	}
	for _, target := range []string{"loop-old-1", "loop-young-1", "loop-known-1", "loop-token-1", "loop-never-1"} {
		gone, err := d.Retire(target, since)
		entries, readErr := d.Entries(target, "d1")
		old := target == "loop-old-1"
		if err != nil || readErr != nil || old && (!gone || len(entries) > 0) || !old && target != "loop-never-1" && gone {
			t.Errorf("%s: %v, %v; %d entries, %v", target, gone, err, len(entries), readErr)
		}
	}
	if token, err := d.retired("loop-old-1"); err != nil || token != 0 {
		t.Errorf("the token is %d, %v", token, err)
	}
}
