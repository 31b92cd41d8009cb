package model

import "muxpost.dev/muxpost/core/lease"

// FloorConfig says which rules of the floor of fencing tokens are checked against which faults.
type FloorConfig struct {
	Rules FloorRules
	// Limits says how often each fault may strike, and Faults how many may strike in all.
	Limits map[Fault]int
	Faults int
	// Apart: the two deliveries go to two sessions, and not to one.
	Apart bool
	// Refusals is how often one delivery may be refused at the host; zero counts nothing.
	Refusals int
	// Forgotten: when the database is restored, an order may still be on its way whose lease is not below a floor that the host was
	// given, and is not in the backup. Otherwise such orders have come to nothing by then: the floor cannot know of them.
	Forgotten bool
	// MaxStates ends a search that grew out of hand; zero is no limit.
	MaxStates int
}

// FloorRules are the parts of the protocol that make the floor. Each can be left out.
type FloorRules struct {
	// Floor: the host keeps the floor that it is given, says what it is, and lets nothing in that is below it.
	Floor bool
	// Seen: the host lets nothing in at a session that is older than what the session has seen.
	Seen bool
	// Once: a floor is given once on each connection, and not with every greeting.
	Once bool
	// Again: a floor is given as well when the host has a lower one than this dispatcher has given it.
	Again bool
	// Raise: with every greeting the sequence is raised above what the host has seen.
	Raise bool
	// Clock: a token is never lower than one that was drawn earlier, whatever becomes of the database, as one is that is drawn from a
	// clock.
	Clock bool
}

const peers = 2 // dispatchers

// floorState is one state of the fencing of a host: two dispatchers, one database, one host with two sessions. Tokens are the numbers
// themselves: in a database that was set back it counts by how much. Time in the order in which leases were taken, which no database
// can set back, is their age: it grows with every lease, and nothing in the protocol knows it.
type floorState struct {
	db        books
	backup    books
	backedUp  bool
	peers     [peers]peer
	runs      [runs]errand
	late      typing // an order that nobody waits for
	lateFloor uint8
	host      door
	typed     uint8         // bits: the deliveries that were typed
	newest    [events]uint8 // the age of the newest lease that something was typed under
	given     uint8         // the highest floor that the host was ever given
	age       uint8         // of the last lease
	ever      uint8         // the highest token that was ever drawn
	refused   [events]uint8 // how often each delivery was refused
	left      [floorKinds]uint8
	faults    uint8
}

// books is the dispatchers' part of the database.
type books struct {
	done   uint8 // bits: the deliveries that are recorded as delivered
	last   uint8 // the sequence of tokens
	leases [events]held
}

// held is the lease of one session's work item.
type held struct {
	holder  uint8 // 1 and 2 are runs, gone is a run that is over, 0 nobody
	expired bool
	token   uint8
}

// peer is one dispatcher's side of its connection with the host.
type peer struct {
	met    bool // greeted on this connection
	fenced bool // a floor was given on this connection
	stale  bool // the host was started again, and this dispatcher has not noticed
	since  bool // its token was drawn since the host last lost a floor
	floor  uint8
	stage  greeting
	drawn  uint8 // the floor that is on its way
}

type greeting uint8

const (
	notGreeting greeting = iota
	giving               // the floor is drawn and on its way
)

// errand is one run: a delivery under a lease.
type errand struct {
	active  bool
	expired bool
	stage   errandStage
	peer    uint8
	order   typing
}

type errandStage uint8

const (
	leased errandStage = iota
	ordered
	accepted
)

// typing is an order to type a delivery. The zero value is none.
type typing struct {
	some     bool
	delivery uint8
	token    uint8
	age      uint8
	from     uint8 // the run that waits for it, from 1; 0 for none
}

// door is what the host keeps, what it has let in, and a command list of an earlier life that may still run.
type door struct {
	greeted bool // since it last lost a floor: it has a new one, or who gave it the highest is content with what it has
	floor   uint8
	highest uint8
	seen    [events]uint8
	inside  [events]typing
	flight  typing
}

// floorModel is the fencing of a host under one configuration.
type floorModel struct {
	config FloorConfig
	// refused is how often any delivery was refused, at most.
	refused int
}

// CheckFloor explores every state of the fencing of a host that can be reached, and checks the promises as Check does.
func CheckFloor(c FloorConfig) Result {
	m := &floorModel{config: c}
	r := check(m, c.MaxStates)
	r.Refused = m.refused
	return r
}

// sessionOf is the session that a delivery goes to.
func (m *floorModel) sessionOf(delivery uint8) uint8 {
	if m.config.Apart {
		return delivery
	}
	return 0
}

// AllFloorRules returns the rules as they are built, but for Clock: what the floor does is shown without it, and so holds whatever becomes of
// the database's clock.
func AllFloorRules() FloorRules {
	return FloorRules{Floor: true, Seen: true, Once: true, Again: true, Raise: true}
}

func (m *floorModel) first() floorState {
	s := floorState{faults: uint8(m.config.Faults)}
	for f, n := range m.config.Limits {
		s.left[f] = uint8(min(n, m.config.Faults))
	}
	return s
}

func (m *floorModel) over(s *floorState) bool { return s.db.done == 1<<events-1 }

// quiet is also said where an order is under way: all that is still under way was typed before.
func (m *floorModel) quiet(s *floorState) bool { return s.left[Restore] == 0 }

func (m *floorModel) tally(*floorState, *Result) {}

func (m *floorModel) ended(s *floorState) (out string) {
	for d := range uint8(events) {
		if s.db.done&bit(d) != 0 {
			out += " [" + string('1'+rune(d)) + " delivered]"
		}
	}
	return out
}

// lease is a work item's lease as core/lease reads it.
func (h held) lease() lease.Lease {
	l := lease.Lease{Holder: holders[h.holder], Token: int64(h.token), Until: epoch.Add(lease.Time)}
	if h.expired {
		l.Until = epoch
	}
	return l
}

// tidy puts a state into the one form that all states with the same future share.
func (s *floorState) tidy(m *floorModel) {
	for r := range s.runs {
		if !s.runs[r].active {
			s.runs[r] = errand{}
		}
	}
	if !s.runs[0].active && s.runs[1].active {
		s.swapRuns()
	}
	for d := range uint8(events) {
		if s.db.done&bit(d) != 0 && s.left[Restore] == 0 {
			s.refused[d] = 0
		}
	}
	if s.left[Restore] == 0 {
		s.backup, s.backedUp = books{}, false
	}
	if !m.config.Rules.Clock {
		s.ever = 0
	}
	for _, b := range [...]*books{&s.db, &s.backup} {
		for i := range b.leases {
			if b.leases[i].holder == 0 || b.leases[i].holder == gone {
				b.leases[i].token = 0
			}
		}
	}
	if s.typed&bit(s.host.flight.delivery) != 0 {
		s.host.flight = typing{}
	}
	if m.config.Apart {
		s.forgetAges()
	}
	s.forgetFloors()
	s.rank()
	if m.config.Apart {
		s.turn()
	}
}

// turn has the two dispatchers, and the two deliveries with their sessions, change places where that gives the smaller state: nothing
// tells one from the other. In a trace they may so change names.
func (s *floorState) turn() {
	if s.peers[1].key() < s.peers[0].key() {
		s.peers[0], s.peers[1] = s.peers[1], s.peers[0]
		for r := range s.runs {
			s.runs[r].peer = 1 - s.runs[r].peer
		}
	}
	if s.key(1) < s.key(0) {
		s.swapDeliveries()
	}
	if s.runs[1].active && (s.runs[1].order.delivery < s.runs[0].order.delivery ||
		s.runs[1].order.delivery == s.runs[0].order.delivery && s.runs[1].order.token < s.runs[0].order.token) {
		s.swapRuns()
	}
}

// key is a number that orders dispatchers.
func (p peer) key() (k uint64) {
	for _, b := range [...]bool{p.met, p.fenced, p.stale, p.since} {
		k <<= 1
		if b {
			k |= 1
		}
	}
	for _, v := range [...]uint8{p.floor, uint8(p.stage), p.drawn} {
		k = k<<8 | uint64(v)
	}
	return k
}

// key is a number that orders deliveries.
func (s *floorState) key(d uint8) uint64 {
	k := uint64(s.db.done>>d&1) | uint64(s.typed>>d&1)<<1 | uint64(s.backup.done>>d&1)<<2
	for _, v := range [...]uint8{
		s.host.seen[d], s.refused[d], s.db.leases[d].token, s.db.leases[d].holder, s.host.inside[d].token, s.backup.leases[d].token, s.newest[d],
	} {
		k = k<<8 | uint64(v)
	}
	return k
}

func (s *floorState) swapDeliveries() {
	swapBits := func(v uint8) uint8 { return v>>1&1 | v&1<<1 }
	for _, b := range [...]*books{&s.db, &s.backup} {
		b.done = swapBits(b.done)
		b.leases[0], b.leases[1] = b.leases[1], b.leases[0]
	}
	s.typed = swapBits(s.typed)
	h := &s.host
	h.seen[0], h.seen[1] = h.seen[1], h.seen[0]
	h.inside[0], h.inside[1] = h.inside[1], h.inside[0]
	s.newest[0], s.newest[1] = s.newest[1], s.newest[0]
	s.refused[0], s.refused[1] = s.refused[1], s.refused[0]
	for _, o := range s.orders() {
		if o.some {
			o.delivery = 1 - o.delivery
		}
	}
}

// forgetAges leaves out what two deliveries to one session alone can break.
func (s *floorState) forgetAges() {
	s.age, s.newest = 0, [events]uint8{}
	for _, o := range s.orders() {
		o.age = 0
	}
}

// forgetFloors drops what can make no difference any more: floors below the host's while it cannot lose that, and what the host has
// seen once the sequence is above it and cannot go back.
func (s *floorState) forgetFloors() {
	if s.left[FilesLost] == 0 {
		for p := range s.peers {
			if s.peers[p].floor <= s.host.floor {
				s.peers[p].floor = 0
			}
		}
		if s.lateFloor <= s.host.floor {
			s.lateFloor = 0
		}
	}
	if s.left[Restore] > 0 {
		return
	}
	for _, v := range s.tokens() {
		if *v > s.db.last {
			return
		}
	}
	s.host.highest = 0
}

func (s *floorState) orders() [6]*typing {
	return [...]*typing{&s.runs[0].order, &s.runs[1].order, &s.late, &s.host.inside[0], &s.host.inside[1], &s.host.flight}
}

// tokens are all that a state holds.
func (s *floorState) tokens() [23]*uint8 {
	return [...]*uint8{
		&s.db.last, &s.db.leases[0].token, &s.db.leases[1].token, &s.backup.last, &s.backup.leases[0].token, &s.backup.leases[1].token,
		&s.peers[0].floor, &s.peers[0].drawn, &s.peers[1].floor, &s.peers[1].drawn, &s.runs[0].order.token, &s.runs[1].order.token,
		&s.late.token, &s.lateFloor, &s.host.floor, &s.host.highest, &s.host.seen[0], &s.host.seen[1], &s.host.inside[0].token,
		&s.host.inside[1].token, &s.host.flight.token, &s.given, &s.ever,
	}
}

// rank renumbers tokens and ages so that no more is left of them than what can still make a difference: their order, and of tokens
// that the sequence may still come to pass, how far away they are.
func (s *floorState) rank() {
	ages := [...]*uint8{
		&s.age, &s.runs[0].order.age, &s.runs[1].order.age, &s.late.age, &s.host.inside[0].age, &s.host.inside[1].age, &s.host.flight.age,
		&s.newest[0], &s.newest[1],
	}
	compress(ages[:])
	tokens := s.tokens()
	passed := s.db.last // the sequence never comes to a token up to here again
	if s.backedUp {
		passed = min(passed, s.backup.last)
	}
	var has [32]bool
	for _, v := range tokens {
		has[*v] = true
	}
	var to [32]uint8
	next := uint8(0)
	for v := 1; v < len(has); v++ {
		if has[v] || v > int(passed) {
			next++
		}
		to[v] = next
	}
	for _, v := range tokens {
		*v = to[*v]
	}
}

// swapRuns exchanges the places of the two runs.
func (s *floorState) swapRuns() {
	other := [...]uint8{0, 2, 1, gone}
	s.runs[0], s.runs[1] = s.runs[1], s.runs[0]
	for i := range s.db.leases {
		s.db.leases[i].holder = other[s.db.leases[i].holder]
		s.host.inside[i].from = other[s.host.inside[i].from]
	}
}
