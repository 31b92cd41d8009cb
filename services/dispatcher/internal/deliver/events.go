package deliver

import (
	"strconv"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/internal/obs"
)

// Names of the fields of events. The first five stand in every event.
const (
	fieldWorkItem       = obs.KeyWorkItem
	fieldTarget         = obs.KeyTarget
	fieldHost           = obs.KeyHost
	fieldHarness        = obs.KeyHarness
	fieldDeliveryID     = obs.KeyDeliveryID
	fieldKind           = "kind"
	fieldReason         = obs.KeyReason
	fieldDetail         = "detail"
	fieldRemedy         = "remedy"
	fieldHow            = "how"
	fieldResumed        = "resumed"
	fieldConversationID = "conversation_id"
	fieldIncarnation    = obs.KeyIncarnation
	fieldWho            = "who"
	fieldOrder          = "order"
	fieldDeaths         = "deaths"
	fieldWithin         = "within"
)

// events returns a decision's events with their fields. They are stored with the change that they tell of, so they are made once
// the record in memory stands as it will.
func (r *run) events(d dispatch.Decision, detail, remedy string) []Event {
	out := make([]Event, 0, len(d.Events))
	for _, t := range d.Events {
		out = append(out, Event{
			Type: t, WorkItem: r.req.WorkItem, DeliveryID: r.req.DeliveryID, TraceID: r.trace,
			Fields: r.fields(t, d, detail, remedy),
		})
	}
	return out
}

func (r *run) fields(t dispatch.EventType, d dispatch.Decision, detail, remedy string) map[string]string {
	f := map[string]string{
		fieldWorkItem: r.req.WorkItem, fieldTarget: r.req.ref.Target(), fieldHost: r.hostName(), fieldHarness: r.shownHarness(),
		fieldDeliveryID: r.req.DeliveryID, fieldKind: string(r.req.Kind),
	}
	switch t {
	case dispatch.DispatchSucceeded:
		f[fieldHow], f[fieldConversationID] = string(d.How), r.conversation()
	case dispatch.DispatchFailed:
		f[fieldReason], f[fieldDetail] = string(d.Reason), detail
	case dispatch.DispatchDropped, dispatch.SessionSpawnFailed:
		f[fieldReason], f[fieldRemedy] = string(d.Reason), remedy
	case dispatch.SessionSpawned:
		f[fieldConversationID], f[fieldIncarnation] = r.conversation(), r.session.Incarnation.Stamp
	case dispatch.SessionRespawned:
		f[fieldResumed] = strconv.FormatBool(r.facts.Fresh == dispatch.SpawnNotTried)
		f[fieldConversationID], f[fieldIncarnation] = r.conversation(), r.session.Incarnation.Stamp
	case dispatch.SessionResumeFailed:
		f[fieldReason], f[fieldConversationID] = string(d.Reason), r.conversation()
	case dispatch.SessionRegistered:
		f[fieldReason], f[fieldIncarnation], f[fieldWho] = string(d.Reason), r.session.Incarnation.Stamp, "" // nobody ordered it
	case dispatch.SessionParked:
		f[fieldDeaths], f[fieldWithin], f[fieldDetail] = strconv.Itoa(r.deaths.Count), r.config.Breaker.Within.String(), r.detail
	case dispatch.SessionUnparked:
		f[fieldReason], f[fieldWho] = string(r.lifts()), ""
	case dispatch.DispatchQueued, dispatch.SessionRespawnAverted, dispatch.DispatchPaused, dispatch.DispatchUnpaused,
		dispatch.DispatchReopened, dispatch.SessionStopped, dispatch.SessionClosed, dispatch.SessionEndOrdered, dispatch.SessionEndCancelled,
		dispatch.SessionEndLapsed:
	}
	return f
}
