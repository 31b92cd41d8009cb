package poll

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
)

// turns is a source and a ledger of repositories, on the bubble's clock: reading one takes time and costs requests, and the source's limit
// is charged for them.
type turns struct {
	fakeSource

	mu        sync.Mutex
	ends      []LookEnd
	took      map[string]time.Duration
	cost      map[string]int64
	spent     map[string]int64
	full      []string
	rate      Rate
	reset     time.Time
	items     map[string][]Item
	known     map[string]RepositoryLook
	looked    map[string]time.Time
	fullRead  map[string]time.Time
	until     map[string]time.Time
	exhausted int
}

func newTurns() *turns {
	return &turns{took: map[string]time.Duration{}, cost: map[string]int64{}, spent: map[string]int64{}, known: map[string]RepositoryLook{},
		looked: map[string]time.Time{}, fullRead: map[string]time.Time{}, until: map[string]time.Time{}, items: map[string][]Item{}}
}

func (s *turns) Items(ctx context.Context, repository string) (Listing, error) {
	s.mu.Lock()
	s.read = append(s.read, repository)
	if WantsFull(ctx) {
		s.full = append(s.full, repository)
	}
	s.spent[repository] += s.cost[repository]
	if s.rate.Limit > 0 {
		if time.Now().After(s.reset) {
			s.rate.Remaining, s.reset = s.rate.Limit, time.Now().Add(time.Hour)
		}
		if s.rate.Remaining -= int(s.cost[repository]); s.rate.Remaining < 0 {
			s.rate.Remaining = 0
			s.exhausted++
		}
	}
	took, items := s.took[repository], s.items[repository]
	s.mu.Unlock()
	select {
	case <-time.After(took):
		return Listing{Items: items, At: time.Now()}, s.err
	case <-ctx.Done():
		return Listing{}, fault.Wrap(fault.Unavailable, fault.ReasonSourceUnreachable, "no answer", ctx.Err())
	}
}

func (s *turns) Use() Use { return Use{} }

func (s *turns) Rate(string) (Rate, time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rate, time.Until(s.reset), s.rate.Limit > 0
}

func (s *turns) Spent(repository string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent[repository]
}

// turnsLedger is the ledger of a turns.
type turnsLedger struct {
	fakeLedger
	*turns
}

func (s *turnsLedger) Items(context.Context, []string) (map[string]Owner, error) { return nil, nil }

func (s *turnsLedger) BeginLook(context.Context, string, string, time.Duration, time.Duration) (Look, error) {
	look := Look{Repositories: map[string]RepositoryLook{}}
	for name, k := range s.known {
		k.Since, k.SinceFull, k.Wait = time.Since(s.looked[name]), time.Since(s.fullRead[name]), max(0, time.Until(s.until[name]))
		look.Repositories[name] = k
	}
	return look, nil
}

func (s *turnsLedger) EndLook(_ context.Context, _, _ string, end LookEnd) error {
	for _, e := range end.Repositories {
		name := strings.ToLower(e.Name)
		s.known[name] = RepositoryLook{Quiet: e.Quiet, Problem: e.Problem}
		s.looked[name], s.until[name] = time.Now(), time.Now().Add(e.Wait)
		if e.Full {
			s.fullRead[name] = time.Now()
		}
	}
	s.turns.ends = append(s.turns.ends, end)
	return nil
}

func (s *turns) poller(change func(*Watched), repositories ...string) *Poller {
	w := Watched{Name: "gh", Provider: "github", Host: "github.com", Source: s, Meter: s, Repositories: repositories, Interval: 30 * time.Second,
		MaxInterval: 5 * time.Minute}
	if change != nil {
		change(&w)
	}
	return New(Config{Ledger: &turnsLedger{turns: s}, Rearmer: seesNothing{}, Holder: "me", Budget: 3, Logger: slog.New(slog.DiscardHandler),
		Tracer: noop.NewTracerProvider().Tracer(""), Now: time.Now, Sources: []Watched{w}})
}

// run looks at every interval for a while, and returns how often each repository was read.
func (s *turns) run(t *testing.T, p *Poller, d time.Duration) map[string]int {
	t.Helper()
	s.read = nil
	for end := time.Now().Add(d); time.Now().Before(end); {
		next := time.Now().Add(30 * time.Second)
		_, err := p.Look(t.Context(), "gh")
		must(t, err)
		time.Sleep(max(0, time.Until(next)))
	}
	count := map[string]int{}
	for _, name := range s.read {
		count[name]++
	}
	return count
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("octo/%03d", i))
	}
	return out
}

func TestRounds_PlainConfigurationsReadEverythingAtEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		s.rate, s.reset = Rate{Limit: 5000, Remaining: 5000}, time.Now().Add(time.Hour)
		count := s.run(t, s.poller(nil, names(manyRepositories)...), time.Hour)
		for name, n := range count {
			if n != 120 {
				t.Errorf("%s was read %d times", name, n)
			}
		}
		equal(t, "repositories", len(count), manyRepositories)
	})
}

func TestRounds_OfManyRepositoriesTheQuietAreReadMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		all := names(manyRepositories + 1)
		s.items[all[7]] = []Item{item(t)} // it is new each time
		count := s.run(t, s.poller(nil, all...), 2*time.Hour)
		equal(t, "the busy one", count[all[7]], 240)
		for _, name := range all[8:] {
			if count[name] < 24 || count[name] > 40 {
				t.Errorf("%s was read %d times in two hours, with a most of 5m", name, count[name])
			}
		}
	})
}

func TestRounds_ALookThatRunsOutOfTimeIsGoneOnWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		all := names(10)
		for _, name := range all {
			s.took[name] = 12 * time.Second
		}
		count := s.run(t, s.poller(nil, all...), 30*time.Minute)
		for _, name := range all {
			if n := count[name]; n < count[all[0]]-1 || n > count[all[0]]+1 {
				t.Errorf("%s was read %d times, the first %d", name, n, count[all[0]])
			}
		}
	})
}

func TestRounds_OneThatNeverEndsLeavesTimeForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		s.took["a/loud"] = time.Hour
		p := s.poller(nil, "a/loud", "b/quiet", "c/quiet")
		r, err := p.Look(t.Context(), "gh")
		must(t, err)
		must(t, r.Err)
		equal(t, "read", s.read, []string{"a/loud", "b/quiet", "c/quiet"})
		if problem := s.ends[0].Repositories[0].Problem; !strings.Contains(problem, "longer than one look") {
			t.Errorf("what is told of it: %q", problem)
		}
		// By itself it has the whole time.
		s = newTurns()
		s.took["a/loud"] = LookTime - time.Second
		r, err = s.poller(nil, "a/loud").Look(t.Context(), "gh")
		must(t, err)
		must(t, r.Err)
	})
}

func TestRounds_AfterALimitTheOthersComeFirst(t *testing.T) {
	s := newTurns()
	p := s.poller(nil, "a/b", "c/d", "e/f")
	s.err = fault.New(fault.Throttled, fault.ReasonRateLimited, "limited")
	for range 3 {
		_, err := p.Look(t.Context(), "gh")
		must(t, err)
	}
	equal(t, "read", s.read, []string{"a/b", "c/d", "e/f"})
}

func TestRounds_BelowTheReserveWhatCostsMuchIsSlowAndNothingRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		s.rate, s.reset = Rate{Limit: 5000, Remaining: 600}, time.Now().Add(time.Hour)
		all := names(10)
		s.cost[all[0]] = 40
		for _, name := range all[1:6] {
			s.cost[name] = 1
		}
		count := s.run(t, s.poller(nil, all...), time.Hour)
		equal(t, "looks beyond the limit", s.exhausted, 0)
		for _, name := range all[6:] {
			equal(t, "one that costs nothing", count[name], 120)
		}
		for _, name := range all[1:6] {
			if count[name] < 25 {
				t.Errorf("%s costs little, and was read %d times", name, count[name])
			}
		}
		if n := count[all[0]]; n < 2 || n > 12 {
			t.Errorf("the loud one was read %d times", n)
		}
		t.Logf("loud %d, little %d, nothing %d; %d remain", count[all[0]], count[all[1]], count[all[9]], s.rate.Remaining)
		// In the next hour there is enough for all.
		time.Sleep(time.Second)
		count = s.run(t, s.poller(nil, all...), 10*time.Minute)
		if n := count[all[0]]; n < 19 {
			t.Errorf("with a full budget the loud one was read %d times in 20 looks", n)
		}
	})
}

func TestRounds_ByHandEverythingIsRead(t *testing.T) {
	s := newTurns()
	s.rate, s.reset = Rate{Limit: 5000, Remaining: 1}, time.Now().Add(time.Hour)
	s.cost["a/b"] = 5
	p := s.poller(nil, "a/b", "c/d")
	for range 3 {
		_, err := p.LookNow(t.Context(), "gh")
		must(t, err)
	}
	equal(t, "read", len(s.read), 6)
}

func TestRounds_EachIsReadInFullOnceAnHourAtAMomentOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		all := names(50)
		p := s.poller(func(w *Watched) { w.FullRead = time.Hour }, all...)
		s.run(t, p, 30*time.Second)
		equal(t, "in full by order at first sight", len(s.full), 0)
		most := 0
		for range 48 * 12 {
			before := len(s.full)
			s.run(t, p, 5*time.Minute)
			most = max(most, len(s.full)-before)
		}
		if n := len(s.full); n < 50*40 || n > 50*62 {
			t.Errorf("%d full reads in two days", n)
		}
		if most > 25 {
			t.Errorf("%d of 50 within five minutes", most)
		}
	})
}

func TestRounds_AProblemOfOneThatIsNotDueStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		s.rate, s.reset = Rate{Limit: 5000, Remaining: 100}, time.Now().Add(time.Hour)
		s.cost["a/b"] = 50
		s.err = fault.New(fault.NotFound, fault.ReasonSourceRefused, "there is nothing of that name")
		p := s.poller(nil, "a/b")
		_, err := p.Look(t.Context(), "gh")
		must(t, err)
		time.Sleep(30 * time.Second)
		r, err := p.Look(t.Context(), "gh")
		must(t, err)
		equal(t, "read", len(s.read), 1)
		if r.Err == nil || !strings.Contains(r.Err.Error(), "nothing of that name") {
			t.Errorf("got %v", r.Err)
		}
	})
}
