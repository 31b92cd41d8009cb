package delivertest

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// death is one incarnation that was seen dead.
type death struct {
	counts bool
	at     time.Time
}

// Died counts.
func (s *Store) Died(ctx context.Context, l lease.Lease, workItem, stamp string, within time.Duration) (out deliver.Deaths, err error) {
	if err := s.lock(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	if !s.holds(workItem, l) {
		return out, leaseLost()
	}
	if _, known := s.deaths[workItem][stamp]; !known && stamp != "" {
		s.died(workItem, stamp, true)
	}
	for _, d := range s.deaths[workItem] {
		if d.counts && d.at.After(s.now().Add(-within)) {
			out.Count++
		}
	}
	if p, ok := s.parks[workItem]; ok {
		out.Park, out.Age = &p, s.now().Sub(p.Since)
	}
	return out, nil
}

func (s *Store) died(workItem, stamp string, counts bool) {
	if s.deaths[workItem] == nil {
		s.deaths[workItem] = map[string]death{}
	}
	s.deaths[workItem][stamp] = death{counts: counts, at: s.now()}
}

// park parks an item, or ends that.
func (s *Store) park(p deliver.Park) {
	if p.Lifted {
		before := s.parks[p.WorkItem]
		before.Lifted, before.Versions = true, p.Versions
		s.parks[p.WorkItem] = before
		s.forgive(p.WorkItem)
		return
	}
	p.Since = s.now()
	s.parks[p.WorkItem] = p
}

func (s *Store) forgive(workItem string) {
	for stamp, d := range s.deaths[workItem] {
		d.counts = false
		s.deaths[workItem][stamp] = d
	}
}

// Unpark ends a park.
func (s *Store) Unpark(ctx context.Context, workItem string, told deliver.Event) (deliver.Park, bool, error) {
	if err := s.lock(ctx); err != nil {
		return deliver.Park{}, false, err
	}
	defer s.mu.Unlock()
	p, ok := s.parks[workItem]
	if !ok || p.Lifted {
		return deliver.Park{}, false, nil
	}
	delete(s.parks, workItem)
	s.forgive(workItem)
	s.events = append(s.events, told)
	return p, true, nil
}
