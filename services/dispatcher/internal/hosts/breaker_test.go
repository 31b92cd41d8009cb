package hosts

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestBreaker_KeepsCallsAwayFromASilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{now: time.Now}
		enters := func(want bool) {
			t.Helper()
			if _, ok := b.enter(); ok != want {
				t.Fatalf("a call is let through: %v", ok)
			}
		}
		for i := range tolerated {
			enters(true)
			if opened := b.leave(false); opened != (i == tolerated-1) {
				t.Fatalf("after %d: opened is %v", i+1, opened)
			}
		}
		for pause := firstPause; pause < 4*longestPause; pause *= 2 {
			enters(false)
			if want := time.Now().Add(min(pause, longestPause)); !b.open().Equal(want) {
				t.Fatalf("open until %v, want %v", b.open(), want)
			}
			time.Sleep(min(pause, longestPause))
			enters(true)
			enters(false) // one is enough to see
			if b.leave(false) {
				t.Fatal("it opens though it was open")
			}
		}
		time.Sleep(longestPause)
		enters(true)
		b.leave(true)
		if !b.open().IsZero() {
			t.Error("it is open though the host answers")
		}
		for range tolerated - 1 {
			enters(true)
			b.leave(false)
		}
		enters(true)
		b.leave(true)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
