package delivertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Hosts are hosts by name. The first by name that has the session of an item, or else that answers and is not drained, is the one that is found.
type Hosts []*Host

var _ deliver.Hosts = Hosts(nil)

// On returns the host of that name.
func (h Hosts) On(name string) (deliver.Host, bool) {
	for _, host := range h {
		if host.name == name {
			return host, true
		}
	}
	return nil, false
}

// Seek finds a host.
func (h Hosts) Seek(ctx context.Context, w deliver.Want) (deliver.Host, deliver.Sight) {
	var chosen deliver.Host
	best := deliver.Sight{Probe: dispatch.ProbeNowhere, Detail: "no host may take it"}
	for _, host := range h {
		if slices.Contains(w.Left, host.name) {
			continue
		}
		s := host.Probe(ctx, w.WorkItem, w.DeliveryID)
		switch {
		case s.Probe == dispatch.ProbeUnreachable:
			if chosen == nil {
				best = s
			}
		case s.Probe != dispatch.ProbeAbsent || s.ConversationID != "":
			return host, s
		case chosen == nil && !host.Draining():
			chosen, best = host, s
		}
	}
	return chosen, best
}

// Listed returns the session of each host that answers, which is that of Item.
func (h Hosts) Listed(ctx context.Context) (found []deliver.Found, answered, silent []string) {
	for _, host := range h {
		s := host.Probe(ctx, Item, "")
		if s.Probe == dispatch.ProbeUnreachable {
			silent = append(silent, host.name)
			continue
		}
		answered = append(answered, host.name)
		if s.Probe != dispatch.ProbeAbsent {
			found = append(found, deliver.Found{WorkItem: Item, Host: host.name, Probe: s.Probe, Stamp: s.Incarnation.Stamp, ConversationID: s.ConversationID})
		}
	}
	return found, answered, silent
}

// Item is the work item of the one session that a Host has.
const Item = "github:octo/widget#7"

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Draining reports what the world says.
func (h *Host) Draining() bool { return h.World().Draining }

// Recorded returns what is recorded of a work item.
func (s *Store) Recorded(ctx context.Context, workItem string) (known deliver.Known, err error) {
	if err := s.lock(ctx); err != nil {
		return known, err
	}
	defer s.mu.Unlock()
	s.known(&known, workItem)
	return known, nil
}

// known fills in the session of an item. The lock is held.
func (s *Store) known(into *deliver.Known, workItem string) {
	into.Left = slices.Sorted(maps.Keys(s.superseded[workItem]))
	if e, ok := s.endings[workItem]; ok {
		into.Ending = &e
	}
	if record, ok := s.sessions[workItem]; ok {
		into.Session = &record
		return
	}
	for item, record := range s.sessions {
		if into.Delivery.Target != "" && record.Target == into.Delivery.Target {
			into.TargetOf = item
		}
	}
}

// leave moves a session away from its host. The lock is held.
func (s *Store) leave(workItem string) {
	record, ok := s.sessions[workItem]
	if !ok || record.Host == "" {
		return
	}
	if s.superseded[workItem] == nil {
		s.superseded[workItem] = map[string]deliver.Superseded{}
	}
	s.superseded[workItem][record.Host] = deliver.Superseded{WorkItem: workItem, Host: record.Host, Stamp: record.Incarnation.Stamp,
		Target: record.Target, Harness: record.Harness, ConversationID: record.ConversationID, Directory: record.Directory, Since: s.now()}
	if record.ConversationID != "" {
		record.Lineage = append(slices.Clone(record.Lineage), record.ConversationID)
	}
	record.Host, record.ConversationID, record.Incarnation, record.SocketPath, record.Directory = "", "", deliver.Incarnation{}, "", ""
	s.sessions[workItem] = record
}

// Sessions returns sessions, by work item.
func (s *Store) Sessions(ctx context.Context, q deliver.SessionQuery) (out []deliver.Session, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, item := range slices.Sorted(maps.Keys(s.sessions)) {
		r := s.sessions[item]
		if (q.WorkItem == "" || q.WorkItem == item) && (q.Host == "" || q.Host == r.Host) && item > q.After && len(out) < q.Limit &&
			(q.Closed || !r.Closed) {
			out = append(out, r)
		}
	}
	return out, nil
}

// SetIdle makes the sessions of these items those that have been idle for long.
func (s *Store) SetIdle(items ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = items
}

// Idle returns the sessions that SetIdle named.
func (s *Store) Idle(ctx context.Context, _ time.Duration, after string, limit int) (out []deliver.Session, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, item := range s.idle {
		if r, ok := s.sessions[item]; ok && item > after && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

// Hosts returns what is recorded of hosts.
func (s *Store) Hosts(ctx context.Context) (out []deliver.HostRecord, err error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
		out = append(out, s.hosts[name])
	}
	return out, nil
}

// PutHost records a host.
func (s *Store) PutHost(ctx context.Context, r deliver.HostRecord, told deliver.Event) (deliver.HostRecord, error) {
	if err := s.lock(ctx); err != nil {
		return r, err
	}
	defer s.mu.Unlock()
	r.CreatedAt, r.UpdatedAt = s.now(), s.now()
	if before, ok := s.hosts[r.Name]; ok {
		r.CreatedAt = before.CreatedAt
	}
	s.hosts[r.Name] = r
	s.events = append(s.events, told)
	return r, nil
}

// DropHost removes a host that no session is on.
func (s *Store) DropHost(ctx context.Context, name string, told deliver.Event) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range s.sessions {
		if r.Host == name && !r.Closed {
			return fault.New(fault.Conflict, "", "work items are recorded on the host")
		}
	}
	if _, ok := s.hosts[name]; !ok {
		return fault.New(fault.NotFound, "", "no such host")
	}
	delete(s.hosts, name)
	for _, left := range s.superseded {
		delete(left, name)
	}
	s.events = append(s.events, told)
	return nil
}

// EndSuperseded removes that a session was left behind.
func (s *Store) EndSuperseded(ctx context.Context, workItem, host string, told deliver.Event) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	if _, ok := s.superseded[workItem][host]; !ok {
		return false, nil
	}
	delete(s.superseded[workItem], host)
	s.events = append(s.events, told)
	return true, nil
}
