package delivertest

import (
	"context"
	"maps"
	"slices"

	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Endings returns the orders that wait.
func (s *Store) Endings(ctx context.Context, q deliver.EndingQuery) (out []deliver.Ending, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, item := range slices.Sorted(maps.Keys(s.endings)) {
		if item > q.After && (q.WorkItem == "" || q.WorkItem == item) && len(out) < q.Limit {
			out = append(out, s.endings[item])
		}
	}
	return out, nil
}

// end makes the changes of a change that an order to end an agent brings.
func (s *Store) end(workItem string, c deliver.Change) {
	if c.Left || c.Session != nil && c.Session.Closed {
		delete(s.parks, workItem)
		s.forgive(workItem)
	}
	switch before, ok := s.endings[workItem]; {
	case c.Ending != nil:
		e := *c.Ending
		e.Since = s.now()
		if ok {
			e.Since = before.Since
		}
		s.endings[workItem] = e
	case c.EndingOver:
		delete(s.endings, workItem)
	}
}
