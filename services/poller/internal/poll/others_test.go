package poll

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

// shelf is a repository of items that no list shows, each of which takes a second to be asked for.
type shelf struct {
	*turns
	known []Known
	// asked are the numbers of each look, and pulls is how often the pull requests were read by then. Either may take all the time.
	asked               [][]uint64
	pulls               []int
	slowItem, slowPulls bool
}

func (s *shelf) Item(ctx context.Context, repository string, number uint64, _ bool) (Item, error) {
	last := len(s.asked) - 1
	s.asked[last] = append(s.asked[last], number)
	select {
	case <-time.After(s.takes()):
	case <-ctx.Done():
		return Item{}, fault.Wrap(fault.Unavailable, fault.ReasonSourceUnreachable, "no answer", ctx.Err())
	}
	k := s.known[number-1]
	ref, err := workitem.Parse(k.WorkItem)
	return Item{Ref: ref, NodeID: k.NodeID, Repository: repository, UpdatedAt: k.SeenUpdatedAt, Open: true}, err
}

func (s *shelf) takes() time.Duration {
	if s.slowItem {
		return time.Hour
	}
	return time.Second
}

func (s *shelf) run(t *testing.T, p *Poller, looks int) {
	t.Helper()
	for range looks {
		s.asked, s.pulls = append(s.asked, nil), append(s.pulls, 0)
		r, err := p.Look(t.Context(), "gh")
		must(t, err)
		if !s.slowItem && !s.slowPulls {
			must(t, r.Err)
		}
	}
}

type shelfLedger struct {
	turnsLedger
	shelf *shelf
}

func (l *shelfLedger) Known(context.Context, string, []string) ([]Known, error) {
	return slices.Clone(l.shelf.known), nil
}

func (l *shelfLedger) KnownPulls(ctx context.Context, _ string, _ []string) ([]KnownPull, error) {
	l.shelf.pulls[len(l.shelf.pulls)-1]++
	if l.shelf.slowPulls {
		<-ctx.Done()
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonSourceUnreachable, "no answer", ctx.Err())
	}
	return nil, nil
}

// newShelf is a shelf of so many items that are quiet, and the poller that looks at it.
func newShelf(items int, repositories ...string) (*shelf, *Poller) {
	s := &shelf{turns: newTurns()}
	for n := range uint64(items) {
		s.known = append(s.known, Known{WorkItem: fmt.Sprintf("github:octo/widget#%d", n+1), NodeID: fmt.Sprint("I_", n+1), Place: "github:octo/widget",
			Number: n + 1, Baselined: true, SeenAt: time.Now(), SeenUpdatedAt: time.Now().Add(-time.Hour)})
	}
	p := s.poller(func(w *Watched) { w.Source = s }, repositories...)
	p.config.Ledger = &shelfLedger{turnsLedger{turns: s.turns}, s}
	return s, p
}

func TestOthers_TakeTurnsWithinAPartOfTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(95, "octo/widget")
		s.run(t, p, 10)
		count := map[uint64]int{}
		for i, asked := range s.asked {
			if len(asked) < 9 || len(asked) > 11 {
				t.Errorf("look %d asked for %d", i, len(asked))
			}
			for _, n := range asked {
				count[n]++
			}
		}
		for n := range uint64(95) {
			if count[n+1] == 0 {
				t.Errorf("nobody asked for %d", n+1)
			}
		}
		equal(t, "how often the pull requests were read", s.pulls, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	})
}

func TestOthers_AfterAStartTheyBeginAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := map[uint64]bool{}
		for range 30 {
			s, p := newShelf(95, "octo/widget")
			s.run(t, p, 1)
			first[s.asked[0][0]] = true
		}
		if len(first) < 5 {
			t.Errorf("30 starts began with %v", first)
		}
	})
}

func TestOthers_NeitherTheyNorPullRequestsStarveTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(95, "octo/widget")
		s.slowItem = true
		s.run(t, p, 4)
		equal(t, "pull requests, while each item takes all the time", s.pulls, []int{0, 1, 0, 1})
		s, p = newShelf(95, "octo/widget")
		s.slowPulls = true
		s.run(t, p, 4)
		for i, asked := range s.asked {
			if len(asked) < 9 {
				t.Errorf("while pull requests take all the time, look %d asked for %d", i, len(asked))
			}
		}
	})
}
