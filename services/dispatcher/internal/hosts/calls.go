package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// Probe asks for the session of a work item and for the phase of a delivery there. Who did not answer, and how, is a value.
func (h *Host) Probe(ctx context.Context, workItem, deliveryID string) deliver.Sight {
	return h.look(ctx, &tmuxdv1.SessionStateRequest{WorkItem: workItem, DeliveryId: deliveryID})
}

// Show asks for the session of a work item and for what its agent does, for people; with look its screen is read for that in any case.
func (h *Host) Show(ctx context.Context, workItem string, look bool) deliver.Sight {
	return h.look(ctx, &tmuxdv1.SessionStateRequest{WorkItem: workItem, Activity: true, Look: look})
}

func (h *Host) look(ctx context.Context, request *tmuxdv1.SessionStateRequest) deliver.Sight {
	end, err := h.begin(ctx)
	if err != nil {
		return unseen(h.Name(), err)
	}
	answer, err := h.client.SessionState(ctx, request)
	if err = end(err); err != nil {
		return unseen(h.Name(), err)
	}
	sight := sightOf(answer)
	sight.Host = h.Name()
	return sight
}

// unseen is what an error says of a session: nothing. Who did not answer decides what may be tried.
func unseen(host string, err error) deliver.Sight {
	out := deliver.Sight{Host: host, Probe: dispatch.ProbeUnreachable, Detail: words(err)}
	switch kind := fault.KindOf(err); {
	case kind == fault.Unavailable && answeredByHost(err):
		out.Probe = dispatch.ProbeUnknown
	case kind != fault.Unavailable && kind != fault.Unauthenticated && kind != fault.Denied:
		out.Probe = dispatch.ProbeUnknown
	}
	return out
}

// answeredByHost reports whether the host itself said that something behind it did not answer.
func answeredByHost(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == fault.ReasonTmuxNoAnswer || reason == fault.ReasonTmuxMissing || reason == fault.ReasonStorage
}

// Spawn starts a session. The error is fault.Fenced or nil.
func (h *Host) Spawn(ctx context.Context, o deliver.SpawnOrder) (deliver.SpawnReport, error) {
	if !h.paced(ctx) {
		return deliver.SpawnReport{Spawn: dispatch.SpawnSilent, Detail: fmt.Sprintf("more sessions are being started on the host than %d in a second", startsPerSecond)}, nil
	}
	end, err := h.begin(ctx)
	if err != nil {
		return deliver.SpawnReport{Spawn: dispatch.SpawnSilent, Detail: words(err)}, nil
	}
	request := &tmuxdv1.SpawnRequest{
		WorkItem: o.WorkItem, Harness: o.Harness, Directory: o.Directory, FencingToken: o.Token, Timeout: timeout(ctx),
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: freshReason(o.Reason)}},
	}
	if o.Resume != "" {
		request.Conversation = &tmuxdv1.SpawnRequest_Resume{Resume: &tmuxdv1.Resume{ConversationId: o.Resume}}
	}
	if o.DeliveryID != "" {
		request.Prompt = &tmuxdv1.Prompt{DeliveryId: o.DeliveryID, Text: o.Text}
	}
	answer, err := h.client.Spawn(ctx, request)
	switch err = end(err); {
	case errors.Is(err, fault.Fenced):
		return deliver.SpawnReport{}, err
	case err != nil:
		return deliver.SpawnReport{Spawn: spawnError(err), Detail: words(err), Remedy: remedy(err)}, nil
	}
	return spawnOf(answer), nil
}

// paced waits until a further session may start on the host; false when that takes too long.
func (h *Host) paced(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, paceTime)
	defer cancel()
	return h.pace.Wait(ctx) == nil
}

func spawnError(err error) dispatch.Spawn {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Throttled:
		if fault.ReasonOf(err) == fault.ReasonNoCapacity {
			return dispatch.SpawnNoCapacity
		}
		return dispatch.SpawnSilent
	case fault.Invalid, fault.NotFound, fault.Denied, fault.Unauthenticated:
		if fault.ReasonOf(err) == fault.ReasonCannotResume {
			return dispatch.SpawnCannotResume
		}
		return dispatch.SpawnRefused
	case fault.Internal, fault.Conflict, fault.AlreadyExists, fault.Fenced:
	}
	return dispatch.SpawnFailed
}

// freshReason is the contract's word for why a conversation is new. A recorded id that is malformed cannot be resumed.
func freshReason(r dispatch.Reason) string {
	if r == dispatch.ReasonBadConversationID {
		r = dispatch.ReasonCannotResume
	}
	return string(r)
}

// Paste has a delivery typed, or settled. The error is fault.Fenced or nil.
func (h *Host) Paste(ctx context.Context, o deliver.PasteOrder) (deliver.PasteReport, error) {
	end, err := h.begin(ctx)
	if err != nil {
		return deliver.PasteReport{Paste: dispatch.PasteSilent, Detail: words(err)}, nil
	}
	answer, err := h.client.Paste(ctx, &tmuxdv1.PasteRequest{
		WorkItem: o.WorkItem, DeliveryId: o.DeliveryID, Text: o.Text, IncarnationStamp: o.Stamp, FencingToken: o.Token, Timeout: timeout(ctx),
	})
	switch err = end(err); {
	case errors.Is(err, fault.Fenced):
		return deliver.PasteReport{}, err
	case err != nil:
		paste := dispatch.PasteFailed
		if kind := fault.KindOf(err); kind == fault.Unavailable || kind == fault.Throttled {
			paste = dispatch.PasteSilent
		}
		return deliver.PasteReport{Paste: paste, Detail: words(err)}, nil
	}
	paste, detail := pasteOf(answer)
	return deliver.PasteReport{Paste: paste, Detail: detail}, nil
}

// Terminate ends an agent with all that it started. What nobody answers is an error: whether it ended is not known then.
func (h *Host) Terminate(ctx context.Context, o deliver.TerminateOrder) (deliver.TerminateReport, error) {
	end, err := h.begin(ctx)
	if err != nil {
		return deliver.TerminateReport{}, err
	}
	var answer *tmuxdv1.TerminateResponse
	if o.Unneeded {
		// A call of its own: an older tmuxd would take a field that it does not know for nothing, and end an agent that is needed.
		var out *tmuxdv1.TerminateUnneededResponse
		out, err = h.client.TerminateUnneeded(ctx, &tmuxdv1.TerminateUnneededRequest{
			WorkItem: o.WorkItem, IncarnationStamp: o.Stamp, FencingToken: o.Token, Grace: durationpb.New(o.Grace), Reason: o.Reason,
		})
		answer = out.GetResult()
	} else {
		answer, err = h.client.Terminate(ctx, &tmuxdv1.TerminateRequest{
			WorkItem: o.WorkItem, IncarnationStamp: o.Stamp, FencingToken: o.Token, Grace: durationpb.New(o.Grace), Reason: o.Reason,
		})
	}
	if err = end(err); err != nil {
		return deliver.TerminateReport{}, err
	}
	switch v := answer.GetOutcome().(type) {
	case *tmuxdv1.TerminateResponse_Terminated:
		detail := exitOf(v.Terminated.GetExit())
		if v.Terminated.GetKilled() {
			detail = also(detail, "after it had not ended in time")
		}
		return deliver.TerminateReport{Ended: true, Already: v.Terminated.GetAlready(), Detail: detail}, nil
	case *tmuxdv1.TerminateResponse_Refused:
		return deliver.TerminateReport{Detail: also(word(v.Refused.GetReason().String(), "REFUSAL_REASON_"), plain(v.Refused.GetDetail()))}, nil
	case *tmuxdv1.TerminateResponse_Remains:
		return deliver.TerminateReport{Detail: also("something of it still lives", plain(v.Remains.GetDetail()))}, nil
	}
	return deliver.TerminateReport{Detail: "the host's answer has no outcome; see that tmuxd and the dispatcher are of one release"}, nil
}

// timeout is how long the host may take: less than our own deadline, which is not its clock's.
func timeout(ctx context.Context) *durationpb.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return durationpb.New(max(time.Until(deadline)-returning, returning))
}
