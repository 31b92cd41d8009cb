package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "the event's text"

// row is an event in the fake ledger.
type row struct {
	claim    Claim
	progress ledger.Progress
	detail   string
	leased   bool
}

// fakeLedger answers by state; the store's own tests show what the real one does.
type fakeLedger struct {
	mu       sync.Mutex
	rows     []*row
	err      error
	released int
	see      func([]string) []string // what a rearmer would re-arm
}

func (l *fakeLedger) See(_ context.Context, items []string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.see == nil {
		return nil, nil
	}
	return l.see(items), nil
}

func newLedger(n int) *fakeLedger {
	l := &fakeLedger{}
	for i := range n {
		l.rows = append(l.rows, &row{
			claim: Claim{
				ID: int64(i), DeliveryID: fmt.Sprint("delivery-", i), WorkItem: fmt.Sprint("github:o/r#", i+1), Kind: "comment", Text: secret,
			},
			progress: ledger.Progress{Budget: 3},
		})
	}
	return l
}

func (l *fakeLedger) Claim(_ context.Context, n int) ([]Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Claim
	for _, r := range l.rows {
		if len(out) < n && !r.leased && r.progress.State.Waits() && !r.progress.NextLook.After(time.Now()) {
			r.leased = true
			out = append(out, r.claim)
		}
	}
	return out, l.err
}

func (l *fakeLedger) Decide(_ context.Context, c Claim, goesOn bool) (Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !goesOn {
		c.Text += " and its context"
	}
	c.Undecided = false
	l.rows[c.ID].claim = c
	return c, l.err
}

func (l *fakeLedger) Finish(_ context.Context, c Claim, o Outcome, next func(ledger.Progress, time.Time) ledger.Progress) (
	before, after ledger.Progress, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rows[c.ID]
	if !r.leased {
		return before, after, fault.New(fault.Fenced, fault.ReasonLeaseLost, "lost")
	}
	before = r.progress
	r.progress, r.detail, r.leased = next(r.progress, time.Now()), o.Detail, false
	return before, r.progress, nil
}

func (l *fakeLedger) Release(_ context.Context, c Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[c.ID].leased = false
	l.released++
	return nil
}

func (l *fakeLedger) NextDue(context.Context) (time.Duration, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait, found := time.Duration(0), false
	for _, r := range l.rows {
		if d := max(0, time.Until(r.progress.NextLook)); r.progress.State.Waits() && (!found || d < wait) {
			wait, found = d, true
		}
	}
	return wait, found, l.err
}

func (l *fakeLedger) state(i int) ledger.Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[i].progress
}

// deliverFunc is a dispatcher.
type deliverFunc func(context.Context, Claim) (Outcome, error)

func (f deliverFunc) Deliver(ctx context.Context, c Claim) (Outcome, error) { return f(ctx, c) }

// GoesOn is asked with a claim that has only the item: an answer of Holding is a conversation that goes on.
func (f deliverFunc) GoesOn(ctx context.Context, workItem string) (bool, error) {
	o, err := f(ctx, Claim{WorkItem: workItem})
	return o.Answer == ledger.Holding, err
}

func TestForward_AnEventIsAskedAboutWithOneTextForGood(t *testing.T) {
	l := newLedger(1)
	l.rows[0].claim.Undecided = true
	var texts []string
	away, goesOn := true, false
	f := newForwarder(l, func(_ context.Context, c Claim) (Outcome, error) {
		switch {
		case c.DeliveryID == "" && away:
			return Outcome{}, fault.New(fault.Unavailable, "", "no answer")
		case c.DeliveryID == "" && goesOn:
			return Outcome{Answer: ledger.Holding}, nil
		case c.DeliveryID != "":
			texts = append(texts, c.Text)
		}
		return Outcome{Answer: ledger.Working, After: time.Millisecond}, nil
	}, nil)
	if err := f.Drain(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if p := l.state(0); len(texts) != 0 || p.State != ledger.Pending || p.Tries != 0 || p.Reason != string(fault.ReasonDispatcherSilent) {
		t.Errorf("asked %q, %+v", texts, p)
	}
	away = false
	for range 2 {
		f = newForwarder(l, f.config.Deliverer.(deliverFunc), nil)
		l.mu.Lock()
		l.rows[0].progress.NextLook = time.Time{}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := f.Drain(ctx, 0); err != nil {
			t.Error(err)
		}
		cancel()
		goesOn = true
	}
	for _, text := range texts {
		if text != secret+" and its context" {
			t.Errorf("asked with %q", text)
		}
	}
	if len(texts) < 2 {
		t.Errorf("asked %d times", len(texts))
	}
}

func newForwarder(l *fakeLedger, d deliverFunc, log *bytes.Buffer) *Forwarder {
	logger := slog.New(slog.DiscardHandler)
	if log != nil {
		logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return New(Config{Ledger: l, Rearmer: l, Deliverer: d, Workers: 4, Logger: logger, Tracer: noop.NewTracerProvider().Tracer("")})
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func arrive(context.Context, Claim) (Outcome, error) { return Outcome{Answer: ledger.Arrived}, nil }

func TestRun_DeliversEverythingWithAFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(20)
		var mu sync.Mutex
		now, most := 0, 0
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return arrive(ctx, c)
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		equal(t, "at once at most", most, 4)
		equal(t, "delivered", f.Totals(), Totals{Asked: 20, Delivered: 20})
	})
}

func TestRun_AStopLetsAnswersArriveWithinTheGraceAndGivesTheRestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(2)
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			if c.ID == 0 {
				time.Sleep(3 * time.Second)
				return arrive(ctx, c)
			}
			<-ctx.Done()
			return Outcome{}, fault.New(fault.Unavailable, "", "called off")
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		equal(t, "took", time.Since(begun), time.Second+DefaultGrace)
		equal(t, "the one that was answered", l.state(0).State, ledger.Delivered)
		equal(t, "the other one", []any{l.state(1).State, l.state(1).Silences, l.released}, []any{ledger.Pending, 0, 1})
	})
}

func TestRun_WaitsOutALedgerThatDoesNotAnswerAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := newLedger(1)
		l.err = fault.New(fault.Unavailable, fault.ReasonDatabase, "away")
		l.rows[0].progress.NextLook = time.Now().Add(time.Hour)
		f := newForwarder(l, arrive, &log)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(30*time.Second+time.Millisecond, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err, l.rows[0].progress.NextLook = nil, time.Now()
		})
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		said := []int{strings.Count(log.String(), "cannot read the ledger"), strings.Count(log.String(), "can be read again")}
		equal(t, "said", said, []int{1, 1})
		equal(t, "delivered", l.state(0).State, ledger.Delivered)
	})
}

func TestCarry_WhatAnErrorMeansForTheEvent(t *testing.T) {
	const away = "dispatcher_unreachable"
	for _, tt := range []struct {
		name   string
		err    error
		state  ledger.State
		reason string
		tries  int
		wait   time.Duration // at least
	}{
		{"silence", fault.New(fault.Unavailable, fault.ReasonDispatcherSilent, "x"), ledger.Pending, away, 0, 5 * time.Second},
		{"a deadline", fault.New(fault.Unavailable, fault.ReasonDeadline, "x"), ledger.Pending, away, 0, 5 * time.Second},
		{"a bare deadline", context.DeadlineExceeded, ledger.Pending, away, 0, 5 * time.Second},
		{"a limit", fault.New(fault.Throttled, fault.ReasonRateLimited, "x").WithRetryAfter(time.Hour), ledger.Pending, "rate_limited", 0,
			time.Hour},
		{"a bad request", fault.New(fault.Invalid, fault.ReasonTextTooLarge, "x"), ledger.Pending, "text_too_large", 1, 5 * time.Second},
		{"a contradiction", fault.New(fault.Conflict, fault.ReasonDeliveryMismatch, "x"), ledger.Pending, "delivery_mismatch", 1,
			5 * time.Second},
		{"a refusal", fault.New(fault.Denied, "", "x"), ledger.Pending, "denied", 0, 5 * time.Second},
		{"a fault of the dispatcher's", errors.New("x"), ledger.Pending, "internal", 0, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger(1)
				f := newForwarder(l, func(context.Context, Claim) (Outcome, error) { return Outcome{}, tt.err }, nil)
				if err := f.Drain(t.Context(), 0); err != nil {
					t.Error(err)
				}
				p := l.state(0)
				equal(t, "state, reason, tries", []any{p.State, p.Reason, p.Tries}, []any{tt.state, tt.reason, tt.tries})
				if wait := time.Until(p.NextLook); wait < tt.wait || wait > 2*tt.wait {
					t.Errorf("looked at again in %v", wait)
				}
			})
		})
	}
}

func TestCarry_AnEventThatCanNeverBeTakenIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		bad := fault.New(fault.Invalid, fault.ReasonBadText, "not like this").WithRemedy("do that")
		f := newForwarder(l, func(context.Context, Claim) (Outcome, error) { return Outcome{}, bad }, nil)
		if err := f.Drain(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		equal(t, "state", []any{l.state(0).State, l.state(0).Tries, l.rows[0].detail}, []any{ledger.GaveUp, 3, "not like this (do that)"})
	})
}

func TestCarry_ALostLeaseChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := newLedger(1)
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			l.mu.Lock()
			l.rows[0].leased, l.rows[0].progress.NextLook = false, time.Now().Add(time.Hour)
			l.mu.Unlock()
			return arrive(ctx, c)
		}, &log)
		if err := f.Drain(t.Context(), 0); err != nil {
			t.Error(err)
		}
		equal(t, "state", l.state(0).State, ledger.Pending)
		if !strings.Contains(log.String(), "lease_lost") {
			t.Errorf("the log does not say so: %s", log.String())
		}
	})
}

func TestCarry_LogsEachChangeOnceAndNoText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := newLedger(1)
		asked := 0
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			if asked++; asked < 5 {
				return Outcome{Answer: ledger.Working, Reason: "starting", After: time.Second}, nil
			}
			return arrive(ctx, c)
		}, &log)
		if err := f.Drain(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		info := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `"level":"INFO"`) && strings.Contains(line, `"delivery_id":"delivery-0"`) {
				info++
			}
		}
		equal(t, "lines", info, 2)
		if strings.Contains(log.String(), secret) {
			t.Error("the log holds the event's text")
		}
	})
}

func TestDrain_EndsWhenNothingIsDueSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(3)
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			switch {
			case c.ID == 0:
				return Outcome{Answer: ledger.Holding, Reason: "draft"}, nil
			case c.ID == 1 && l.state(1).Reason == "":
				return Outcome{Answer: ledger.Working, Reason: "starting", After: 4 * time.Second}, nil
			}
			return arrive(ctx, c)
		}, nil)
		begun := time.Now()
		if err := f.Drain(t.Context(), 5*time.Second); err != nil {
			t.Error(err)
		}
		equal(t, "took", time.Since(begun), 4*time.Second)
		equal(t, "totals", f.Totals(), Totals{Asked: 4, Delivered: 2})
	})
}

func TestDrain_DoesNotWaitForADispatcherThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(9)
		f := newForwarder(l, func(context.Context, Claim) (Outcome, error) {
			return Outcome{}, fault.New(fault.Unavailable, fault.ReasonDispatcherSilent, "away")
		}, nil)
		begun := time.Now()
		if err := f.Drain(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		equal(t, "took", time.Since(begun), time.Duration(0))
		if silent := f.Totals().Silent; silent == 0 || silent == 9 {
			t.Errorf("asked %d times", silent)
		}
	})
}

func TestClaim_WhatIsRearmedSendsItsItemsClaimsBackUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(3)
		l.rows[2].claim.WorkItem = l.rows[0].claim.WorkItem
		l.rows[2].progress.State = ledger.GaveUp
		var seen, asked []string
		l.see = func(items []string) (rearmed []string) {
			seen = append(seen, items...)
			if l.rows[2].progress.State == ledger.GaveUp {
				l.rows[2].progress.State = ledger.Pending
				return items[:1]
			}
			return nil
		}
		f := newForwarder(l, func(ctx context.Context, c Claim) (Outcome, error) {
			l.mu.Lock()
			asked = append(asked, c.DeliveryID)
			l.mu.Unlock()
			return arrive(ctx, c)
		}, nil)
		if err := f.Drain(t.Context(), 0); err != nil {
			t.Error(err)
		}
		slices.Sort(asked)
		equal(t, "asked", asked, []string{"delivery-0", "delivery-1", "delivery-2"})
		equal(t, "given back", l.released, 1)
		equal(t, "first seen", seen[:2], []string{"github:o/r#1", "github:o/r#2"})
	})
}
