package delivertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Store is deliver.Store in memory. The suite in CheckStore holds it to what the real one does.
type Store struct {
	mu         sync.Mutex
	now        func() time.Time
	down       bool
	token      int64
	deliveries map[string]deliver.Delivery
	sessions   map[string]deliver.Session
	leases     map[string]lease.Lease
	events     []deliver.Event
	pauses     map[string]deliver.Pause
	hosts      map[string]deliver.HostRecord
	superseded map[string]map[string]deliver.Superseded // by work item and host
	deaths     map[string]map[string]death
	parks      map[string]deliver.Park
	endings    map[string]deliver.Ending
	idle       []string
}

var _ deliver.Store = (*Store)(nil)

// NewStore returns an empty store whose leases end by a clock.
func NewStore(now func() time.Time) *Store {
	return &Store{
		now: now, deliveries: map[string]deliver.Delivery{}, sessions: map[string]deliver.Session{}, leases: map[string]lease.Lease{},
		pauses: map[string]deliver.Pause{}, hosts: map[string]deliver.HostRecord{}, superseded: map[string]map[string]deliver.Superseded{},
		deaths: map[string]map[string]death{}, parks: map[string]deliver.Park{}, endings: map[string]deliver.Ending{},
	}
}

// SetDown makes the store answer nothing but fault.Unavailable, or ends that.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// EndLease ends the lease of a work item early.
func (s *Store) EndLease(workItem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[workItem]
	l.Until = s.now()
	s.leases[workItem] = l
}

// Put records a session.
func (s *Store) Put(record deliver.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[record.WorkItem] = record
}

// Session returns the session of a work item.
func (s *Store) Session(workItem string) (deliver.Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, ok := s.sessions[workItem]
	return record, ok
}

// Stored returns a delivery; the zero one when it is not known.
func (s *Store) Stored(id string) deliver.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deliveries[id]
}

// Events returns all events in order.
func (s *Store) Events() []deliver.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// lock locks the store, unless it is down or ctx has ended.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Unavailable, "", "the call ended", err)
	}
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, fault.ReasonDatabase, "the database cannot be reached")
	}
	return nil
}

// Begin inserts or counts.
func (s *Store) Begin(ctx context.Context, d deliver.Delivery, queued deliver.Event) (deliver.Delivery, []deliver.Pause, error) {
	if err := s.lock(ctx); err != nil {
		return deliver.Delivery{}, nil, err
	}
	defer s.mu.Unlock()
	found, ok := s.deliveries[d.ID]
	switch {
	case !ok:
		d.CreatedAt, d.UpdatedAt = s.now(), s.now()
		found = d
		s.events = append(s.events, queued)
	case found.Fingerprint != d.Fingerprint:
		return deliver.Delivery{}, nil, fault.New(fault.Conflict, fault.ReasonDeliveryMismatch, "the delivery is known already")
	default:
		found.Asked++
	}
	s.deliveries[d.ID] = found
	return found, s.paused(d.WorkItem), nil
}

// TakeLease takes a lease by lease.MayTake.
func (s *Store) TakeLease(ctx context.Context, workItem, holder string) (lease.Lease, bool, error) {
	if err := s.lock(ctx); err != nil {
		return lease.Lease{}, false, err
	}
	defer s.mu.Unlock()
	if !s.leases[workItem].MayTake(holder, s.now()) {
		return lease.Lease{}, false, nil
	}
	s.token++
	l := lease.Lease{Holder: holder, Token: s.token, Until: s.now().Add(lease.Time)}
	s.leases[workItem] = l
	return l, true, nil
}

// Look returns what is known.
func (s *Store) Look(ctx context.Context, workItem, deliveryID string) (known deliver.Known, err error) {
	if known.Delivery, err = s.Delivery(ctx, deliveryID); err != nil {
		return known, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known(&known, workItem)
	return known, nil
}

// Delivery returns a delivery.
func (s *Store) Delivery(ctx context.Context, id string) (deliver.Delivery, error) {
	if err := s.lock(ctx); err != nil {
		return deliver.Delivery{}, err
	}
	defer s.mu.Unlock()
	d, ok := s.deliveries[id]
	if !ok {
		return d, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no such delivery")
	}
	return d, nil
}

// Save makes a change under the lease.
func (s *Store) Save(ctx context.Context, l lease.Lease, workItem string, c deliver.Change) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if !s.holds(workItem, l) {
		return leaseLost()
	}
	if c.Session != nil {
		for item, other := range s.sessions {
			if item != workItem && other.Target == c.Session.Target {
				return fault.New(fault.Conflict, fault.ReasonTargetCollision, "another work item has a session of the same name")
			}
		}
		s.sessions[workItem] = *c.Session
	}
	if c.Outcome != nil {
		s.put(c.Outcome)
		s.leases[workItem] = lease.Lease{Token: l.Token}
	}
	if c.Left {
		s.leave(workItem)
	}
	if c.Ordered != "" {
		s.died(workItem, c.Ordered, false)
	}
	s.end(workItem, c)
	if c.Park != nil {
		s.park(*c.Park)
	}
	s.events = append(s.events, c.Events...)
	return nil
}

func (s *Store) holds(workItem string, l lease.Lease) bool {
	held := s.leases[workItem]
	return held.Token == l.Token && held.Holder != ""
}

func leaseLost() error {
	return fault.New(fault.Fenced, fault.ReasonLeaseLost, "the lease went to another run")
}

// put stores an outcome, with its time if it is another than before.
func (s *Store) put(d *deliver.Delivery) {
	if before := s.deliveries[d.ID]; before.Outcome != d.Outcome || before.Reason != d.Reason {
		d.UpdatedAt = s.now()
	}
	s.deliveries[d.ID] = *d
}

// Release gives the lease back.
func (s *Store) Release(ctx context.Context, workItem string, l lease.Lease) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.leases[workItem].Token == l.Token {
		s.leases[workItem] = lease.Lease{Token: l.Token}
	}
	return nil
}
