package poll

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	maxEntryID    = 64
	maxEntryState = 300
)

// Ack is a person's word to have seen an entry of the list of what needs a person. What the list holds is for who shows it to say.
type Ack struct {
	EntryID string
	// State is the entry's when it was seen: with another one it is on the list again.
	State string
	// DeliveryID is what the entry is about; empty when it is about no event.
	DeliveryID  string
	Who, Reason string
	At          time.Time
}

// Acks keeps them. Its errors are faults.
type Acks interface {
	// Acknowledge writes one down, in place of an earlier one of the same entry, and returns it.
	Acknowledge(ctx context.Context, a Ack) (Ack, error)
	// Acknowledged returns up to n of them, the latest first.
	Acknowledged(ctx context.Context, n int) ([]Ack, error)
}

// Check refuses what cannot be kept, with fault.Invalid.
func (a Ack) Check() error {
	if a.EntryID == "" || a.State == "" {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "the entry and its state must be said").
			WithRemedy("muxpost attention lists what can be acknowledged")
	}
	if err := plainWord("the entry", a.EntryID, maxEntryID); err != nil {
		return err
	}
	if err := plainWord("its state", a.State, maxEntryState); err != nil {
		return err
	}
	if a.DeliveryID != "" {
		return Again{DeliveryID: a.DeliveryID, Who: a.Who, Reason: a.Reason}.check()
	}
	return checkWords(a.Who, a.Reason)
}
