package host

import (
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/internal/failpoint"
)

// Floors is the part of Disk that keeps the floor of fencing tokens.
type Floors interface {
	// Floor returns the lowest fencing token that may act on this host; zero when none was given. RaiseFloor raises it; it never sinks.
	Floor() int64
	RaiseFloor(floor int64) error
}

// Fence is what this host refuses older acts by.
type Fence struct {
	// Floor is the lowest fencing token that may still act here, at any session. Zero means that none was given.
	Floor int64
	// Highest is the highest fencing token that this host knows: one that acted, or the floor. Whoever raises the sequence of tokens
	// above it is heard here.
	Highest int64
}

// Fence returns what holds now.
func (h *Host) Fence() Fence {
	floor := h.Disk.Floor()
	return Fence{Floor: floor, Highest: max(floor, h.Disk.Token())}
}

// RaiseFence refuses every mutation under a token older than floor, from now on and for every session, one never seen included. It returns
// what holds then, which is more when a higher floor was given before.
//
// The floor is checked at the door (fence) and is no part of the guard inside tmux, so an act that was let in before goes on under its own
// token. That is safe: it ends before the lease that it runs under; until it ends it has the turn of its target, so that no newer act comes
// between; and once a newer one acted, its token stands in @mux_fence and the server refuses the rest of the older. What an earlier life of
// tmuxd let in may run until the first act on its session, which moves the generation on: nothing newer has acted there by then.
func (h *Host) RaiseFence(floor int64) (Fence, error) {
	if floor <= 0 {
		return Fence{}, fault.New(fault.Invalid, fault.ReasonBadArgument, "a floor above zero is required").
			WithRemedy("take one from the sequence that fencing tokens come from")
	}
	if floor > lease.MaxToken {
		return Fence{}, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the fencing token %d is higher than any lease has", floor).
			WithRemedy("take the one of the lease under which this is done; by hand, one of microseconds since 1970")
	}
	if err := h.Disk.RaiseFloor(floor); err != nil {
		return Fence{}, storage(err)
	}
	return h.Fence(), nil
}

// fence refuses a token below the host's floor, or older than one already seen for the target, and remembers a newer one.
func (h *Host) fence(s sight, token int64) error {
	if token <= 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "a fencing token above zero is required").
			WithRemedy("take the one of the lease under which this is done; by hand, any number above those used before")
	}
	if token > lease.MaxToken {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the fencing token %d is higher than any lease has", token).
			WithRemedy("take the one of the lease under which this is done; by hand, one of microseconds since 1970")
	}
	if floor := h.Disk.Floor(); token < floor {
		return fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, the floor of this host: no session here takes it",
			token, floor).WithRemedy("ask again under a new lease; by hand, take a number that is not below the floor")
	}
	seen := s.memory.Token
	if s.pane != nil {
		seen = max(seen, s.pane.Fence)
	}
	if token < seen {
		// Whoever asks is told by Fence above what to raise its sequence: a host that lost its own files knows it from its sessions alone.
		// A session's word is not trusted with more, for its agent can write there what it likes.
		if lease.Learnable(seen) {
			if err := h.Disk.RaiseToken(seen); err != nil {
				return storage(err)
			}
		}
		return fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, which this session has seen", token, seen)
	}
	if err := h.Disk.RaiseToken(token); err != nil {
		return storage(err)
	}
	failpoint.Hit("tmuxd.fence.raised")
	// A token that was seen binds, whatever comes of the act.
	if m := s.remembered(token); m != s.memory {
		if err := h.Disk.Remember(m); err != nil {
			return storage(err)
		}
	}
	return nil
}
