package delivertest

import (
	"context"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// paused returns the pauses that hold back a work item. The lock is held.
func (s *Store) paused(workItem string) (out []deliver.Pause) {
	for _, scope := range []string{"", workItem} {
		if p, ok := s.pauses[scope]; ok {
			out = append(out, p)
		}
	}
	return out
}

// Postpone stores an outcome without a lease.
func (s *Store) Postpone(ctx context.Context, d *deliver.Delivery) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if l := s.leases[d.WorkItem]; s.deliveries[d.ID].Outcome.Final() || l.Holder != "" && s.now().Before(l.Until) {
		return false, nil
	}
	s.put(d)
	return true, nil
}

// Pause makes a pause, or returns the one that stands.
func (s *Store) Pause(ctx context.Context, p deliver.Pause, told deliver.Event) (deliver.Pause, bool, error) {
	if err := s.lock(ctx); err != nil {
		return p, false, err
	}
	defer s.mu.Unlock()
	if stands, ok := s.pauses[p.WorkItem]; ok {
		return stands, false, nil
	}
	p.Since = s.now()
	s.pauses[p.WorkItem] = p
	s.events = append(s.events, told)
	return p, true, nil
}

// Unpause ends a pause.
func (s *Store) Unpause(ctx context.Context, workItem string, told deliver.Event) (deliver.Pause, bool, error) {
	if err := s.lock(ctx); err != nil {
		return deliver.Pause{}, false, err
	}
	defer s.mu.Unlock()
	p, ok := s.pauses[workItem]
	if ok {
		delete(s.pauses, workItem)
		s.events = append(s.events, told)
	}
	return p, ok, nil
}

// Reopen stores an outcome in place of dropped.
func (s *Store) Reopen(ctx context.Context, d *deliver.Delivery, told deliver.Event) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if s.deliveries[d.ID].Outcome != dispatch.Dropped {
		return false, nil
	}
	s.put(d)
	s.events = append(s.events, told)
	return true, nil
}
