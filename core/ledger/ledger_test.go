package ledger

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

func TestDeliveryID_IsDerivedFromTheKeyAndTheItem(t *testing.T) {
	k := Key{"github", "github.com", "comment", "IC_1", Revision("body", "open")}
	id := DeliveryID(k, "github:octo/widget#7")
	if len(id) != 25 || id[0] != 'd' {
		t.Errorf("id %q", id)
	}
	if again := DeliveryID(k, "github:octo/widget#7"); again != id {
		t.Errorf("the same event has two ids, %q and %q", id, again)
	}
	other := k
	other.Revision = Revision("body", "closed")
	for name, got := range map[string]string{
		"another revision": DeliveryID(other, "github:octo/widget#7"),
		"another item":     DeliveryID(k, "github:octo/widget#8"),
	} {
		if got == id {
			t.Errorf("%s has the same id", name)
		}
	}
	if Revision("ab", "c") == Revision("a", "bc") || (Key{"a|b", "", "", "", ""}).String() == (Key{"a", "b", "", "", ""}).String() {
		t.Error("two different lists of parts are written alike")
	}
}

func TestApply_OnlyAFailureSpendsATry(t *testing.T) {
	for _, a := range Answers() {
		got := Apply(Progress{State: Leased}, a, "why", 0, t0, 0)
		if want := map[bool]int{true: 1, false: 0}[a == Failing]; got.Tries != want {
			t.Errorf("answer %d spends %d tries", a, got.Tries)
		}
	}
}

func TestApply_AnOutageNeverGivesUp(t *testing.T) {
	p := Progress{State: Leased}
	for range 10_000 {
		p = Apply(p, Silent, "host_unreachable", 0, t0, 1)
	}
	if p.State != Pending || p.Tries != 0 || p.NextLook.Sub(t0) > 75*time.Second {
		t.Errorf("after a long outage: %+v", p)
	}
}

func TestApply_GivesUpWhenTheBudgetIsSpent(t *testing.T) {
	p := Progress{State: Leased}
	for i := 1; i <= DefaultBudget; i++ {
		p = Apply(p, Failing, "harness_exited", 0, t0, 0)
		if last := i == DefaultBudget; (p.State == GaveUp) != last || p.NextLook.IsZero() != last {
			t.Fatalf("after failure %d: %+v", i, p)
		}
	}
}

func TestApply_UnprovenIsSettledAfterTenMinutes(t *testing.T) {
	p := Apply(Progress{State: Leased}, Unproven, "no_evidence", 0, t0, 0)
	if p.State != Pending || p.Tries != 0 || !p.UnprovenSince.Equal(t0) {
		t.Fatalf("first: %+v", p)
	}
	p = Apply(p, Unproven, "no_evidence", 0, t0.Add(EvidenceTime-time.Second), 0)
	if p.State != Pending {
		t.Fatalf("just before: %+v", p)
	}
	p = Apply(p, Unproven, "no_evidence", 0, t0.Add(EvidenceTime), 0)
	if p.State != Settled || p.Reason != ReasonUnconfirmed {
		t.Fatalf("after ten minutes: %+v", p)
	}
}

func TestApply_HeldIsLookedAtWithinAMinuteOrAsAsked(t *testing.T) {
	if p := Apply(Progress{}, Holding, "draft", 0, t0, 0); p.State != Held || p.NextLook.Sub(t0) != time.Minute {
		t.Errorf("%+v", p)
	}
	if p := Apply(Progress{}, Holding, "not_ready", 5*time.Second, t0, 0); p.NextLook.Sub(t0) != 5*time.Second {
		t.Errorf("%+v", p)
	}
}

func TestApply_WaitsExactlyWhenTheStateWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Progress{State: Leased, Budget: rapid.IntRange(0, 5).Draw(t, "budget")}
		now := t0
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			a := rapid.SampledFrom(Answers()).Draw(t, "answer")
			reason := rapid.SampledFrom([]string{"r", ReasonSessionOccupied}).Draw(t, "reason")
			p = Apply(p, a, reason, time.Duration(rapid.IntRange(0, 100).Draw(t, "after"))*time.Second, now, rapid.Float64().Draw(t, "jitter"))
			looks := p.State.Waits() || p.State == Dropped && reason == ReasonSessionOccupied
			if looks != (!p.NextLook.IsZero()) || looks && !p.NextLook.After(now) {
				t.Fatalf("%v with next look %v at %v", p.State, p.NextLook, now)
			}
			if p.Tries > p.Budget {
				t.Fatalf("%d tries of %d", p.Tries, p.Budget)
			}
			if !p.State.Waits() {
				return
			}
			now = p.NextLook
		}
	})
}

func TestState_NamesReadBack(t *testing.T) {
	for _, s := range States() {
		if got, ok := ParseState(s.String()); got != s || !ok {
			t.Errorf("%v reads back as %v", s, got)
		}
	}
}
