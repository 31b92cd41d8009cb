package poll

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
)

// leases is a ledger of which a test says when a source is due, and when a lease is lost. It is used by one look at a time.
type leases struct {
	fakeLedger

	every          []time.Duration
	dueErr         error
	renewals, lost int // lost is the renewal that fails because somebody else has the lease
	silent         bool
}

func (l *leases) BeginLook(ctx context.Context, source, holder string, lease, every time.Duration) (Look, error) {
	l.every = append(l.every, every)
	return l.fakeLedger.BeginLook(ctx, source, holder, lease, every)
}

func (l *leases) LookDue(_ context.Context, _ string, every time.Duration) (time.Duration, error) {
	return every, l.dueErr
}

func (l *leases) KeepLook(context.Context, string, string, time.Duration) error {
	l.renewals++
	switch {
	case l.silent:
		return fault.New(fault.Unavailable, fault.ReasonDatabase, "away")
	case l.renewals == l.lost:
		return fault.New(fault.Fenced, fault.ReasonLeaseLost, "lost")
	}
	return nil
}

// slow is a source that answers after a while.
type slow struct {
	fakeSource

	takes time.Duration
}

func (s *slow) Items(ctx context.Context, _ string) (Listing, error) {
	timer := time.NewTimer(s.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Listing{At: time.Now()}, nil
	case <-ctx.Done():
		return Listing{}, fault.Wrap(fault.Unavailable, "", "called off", ctx.Err())
	}
}

func watching(l *leases, takes, interval time.Duration) *Poller {
	return New(Config{Ledger: l, Rearmer: noRearmer{}, Holder: "me", Budget: 3, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Tracer: noop.NewTracerProvider().Tracer(""), Sources: []Watched{{Name: "gh", Host: "github.com", Source: &slow{takes: takes},
			Repositories: []string{"o/r"}, Interval: interval}}})
}

type noRearmer struct{}

func (noRearmer) See(context.Context, []string) ([]string, error) { return nil, nil }

func TestRun_LooksAtOnceAndThenWheneverASourceIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		if err := watching(l, 0, time.Minute).Run(ctx); err != nil {
			t.Error(err)
		}
		equal(t, "looks", l.every, []time.Duration{0, time.Minute, time.Minute, time.Minute})
	})
}

func TestRun_GoesOnWhileTheLedgerDoesNotSayWhenASourceIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{dueErr: fault.New(fault.Unavailable, fault.ReasonDatabase, "away")}
		ctx, cancel := context.WithTimeout(t.Context(), 10*patience+time.Millisecond)
		defer cancel()
		if err := watching(l, 0, time.Hour).Run(ctx); err != nil {
			t.Error(err)
		}
		equal(t, "looks", len(l.every), 11)
	})
}

func TestRun_AStopLetsALookEndWithinTheGrace(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Hour: time.Second + lookGrace} {
		synctest.Test(t, func(t *testing.T) {
			l := &leases{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			if err := watching(l, takes, time.Hour).Run(ctx); err != nil {
				t.Error(err)
			}
			equal(t, "took", time.Since(begun), want)
			equal(t, "ended on the record", len(l.ends), 1)
		})
	}
}

func TestLook_RenewsItsLeaseAndIsGivenUpOnceThatIsLost(t *testing.T) {
	for name, tt := range map[string]struct {
		lost   int
		silent bool
		takes  time.Duration
		fails  bool
	}{
		"kept":                    {0, false, 20 * time.Second, false},
		"lost":                    {2, false, 2 * lookRenewal, true},
		"the ledger says nothing": {0, true, 20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &leases{lost: tt.lost, silent: tt.silent}
				begun := time.Now()
				r, err := watching(l, 20*time.Second, time.Hour).Look(t.Context(), "gh")
				equal(t, "took, failed", []any{time.Since(begun), r.Err != nil, err}, []any{tt.takes, tt.fails, nil})
				equal(t, "renewals", l.renewals, int(tt.takes/lookRenewal))
			})
		})
	}
}

func TestLook_OfASourceThatIsNotThere(t *testing.T) {
	if _, err := watching(&leases{}, 0, time.Hour).Look(t.Context(), "nope"); !errors.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
