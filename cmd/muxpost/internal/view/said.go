package view

import (
	"fmt"

	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// WaitLine says in a few words how an event stands that may still be on its way: its state, why, and what it waits behind.
func WaitLine(e *pollerv1.LedgerEntry) string {
	line := LedgerState(e.GetState())
	if e.GetReason() != "" {
		line += " (" + Clean(e.GetReason()) + ")"
	}
	if behind := Behind(e); behind != "" {
		line += ", " + behind
	}
	return line
}

// Retried says what came of a retry of a delivery, which was asked for with the order to type it again, or without.
func Retried(id string, answer *pollerv1.RetryResponse, again bool) string {
	e := answer.GetEntry()
	item := Clean(e.GetWorkItem())
	switch {
	case again:
		return fmt.Sprintf("%s of %s is typed once more, as %s: it may then be there twice", id, item, e.GetDeliveryId())
	case answer.GetEvidenceOnly():
		return fmt.Sprintf("%s of %s is only looked for again: nothing is typed", id, item)
	case answer.GetRetried():
		return fmt.Sprintf("%s of %s is tried again, with %s", id, item, Count(int(e.GetBudget()), "new try", "new tries"))
	}
	when := "it is looked at now"
	if e.GetWaitsBehind() != nil {
		when = "its turn comes when that has ended"
	}
	return fmt.Sprintf("%s of %s is on its way already: %s; %s", id, item, WaitLine(e), when)
}

// Settled says what came of a person's word that a delivery is done.
func Settled(id string, answer *pollerv1.SettleResponse) string {
	item := Clean(answer.GetEntry().GetWorkItem())
	if answer.GetSettled() {
		return fmt.Sprintf("%s of %s is done and is not tried again", id, item)
	}
	return fmt.Sprintf("%s of %s was done already: %s", id, item, Clean(answer.GetEntry().GetDetail()))
}

// Cancelled says what came of cancelling a delivery.
func Cancelled(id string, answer *pollerv1.CancelResponse) string {
	item := Clean(answer.GetEntry().GetWorkItem())
	if answer.GetCancelled() {
		return fmt.Sprintf("%s of %s is cancelled and is not delivered any more", id, item)
	}
	return fmt.Sprintf("%s of %s was cancelled already: %s", id, item, Clean(answer.GetEntry().GetDetail()))
}
