package deliver

import (
	"context"
	"log/slog"
	"strings"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// How long operators' words may be, in bytes.
const (
	maxPauseReason = 300
	maxWho         = 100
)

// Shadow reports whether it only looks and decides.
func (d *Deliverer) Shadow() bool { return d.config.Shadow }

// Pause holds back the deliveries of a work item (empty for all): none is begun until Unpause, and what is under way ends. A pause
// that stands is left as it is and returned, with false. Words that are too long or not UTF-8 are fault.Invalid.
func (d *Deliverer) Pause(ctx context.Context, p Pause) (Pause, bool, error) {
	if err := checkWords("reason", p.Reason, maxPauseReason); err != nil {
		return Pause{}, false, err
	}
	if err := checkWords("who", p.Who, maxWho); err != nil {
		return Pause{}, false, err
	}
	told, err := operatorEvent(ctx, dispatch.DispatchPaused, p.WorkItem, p.Who)
	if err != nil {
		return Pause{}, false, err
	}
	p.WorkItem, p.Reason, p.Who = told.WorkItem, line(p.Reason), line(p.Who)
	told.Fields[fieldReason] = p.Reason
	stands, made, err := d.config.Store.Pause(ctx, p, told)
	if made {
		d.operated(ctx, told)
	}
	return stands, made, err
}

// Unpause ends the pause of a work item (empty for that of all) and returns it; false when none stands.
func (d *Deliverer) Unpause(ctx context.Context, workItem, who string) (Pause, bool, error) {
	if err := checkWords("who", who, maxWho); err != nil {
		return Pause{}, false, err
	}
	told, err := operatorEvent(ctx, dispatch.DispatchUnpaused, workItem, who)
	if err != nil {
		return Pause{}, false, err
	}
	ended, stood, err := d.config.Store.Unpause(ctx, told.WorkItem, told)
	if stood {
		d.operated(ctx, told)
	}
	return ended, stood, err
}

// Reopen takes back that a delivery was dropped: it is decided again when it is asked for again. It reports false for one that has
// not ended, and with ifFree for one whose session's name belongs to somebody else, as far as its host says now. One that is in its
// conversation is fault.Conflict, and one that is not known fault.NotFound.
func (d *Deliverer) Reopen(ctx context.Context, id, who string, ifFree bool) (Delivery, bool, error) {
	if !session.ValidDeliveryID(id) {
		return Delivery{}, false, errDeliveryID()
	}
	if err := checkWords("who", who, maxWho); err != nil {
		return Delivery{}, false, err
	}
	found, err := d.config.Store.Delivery(ctx, id)
	if err != nil {
		return Delivery{}, false, err
	}
	if found.Outcome == dispatch.Delivered {
		return Delivery{}, false, fault.Newf(fault.Conflict, "", "the delivery %s is in its conversation, and nothing is typed twice", id).
			WithRemedy("send a message of your own with muxpost send")
	}
	if ifFree && found.Outcome == dispatch.Dropped {
		_, sight, err := d.probe(ctx, found.WorkItem)
		if err != nil {
			return Delivery{}, false, err
		}
		if !sight.Probe.Free() {
			return found, false, nil
		}
	}
	told, err := operatorEvent(ctx, dispatch.DispatchReopened, found.WorkItem, who)
	if err != nil {
		return Delivery{}, false, err
	}
	told.DeliveryID = id
	for key, value := range map[string]string{fieldDeliveryID: id, fieldKind: string(found.Kind), fieldReason: string(found.Reason),
		fieldHost: found.Host, fieldHarness: found.Harness} {
		told.Fields[key] = value
	}
	out := found
	out.Outcome, out.Reason, out.Remedy, out.Steps = dispatch.InProgress, dispatch.ReasonReopened, "", nil
	out.Detail = line("it was re-opened" + by(who) + " after it had been dropped (" + string(found.Reason) +
		"), and is decided again when it is asked for")
	reopened, err := d.config.Store.Reopen(ctx, &out, told)
	if err != nil {
		return Delivery{}, false, err
	}
	if !reopened {
		// It had not ended, or somebody else was faster.
		found, err = d.config.Store.Delivery(ctx, id)
		return found, false, err
	}
	d.operated(ctx, told)
	return out, true, nil
}

func by(who string) string {
	if who = line(who); who == "" {
		return ""
	}
	return " by " + who
}

// operatorEvent is what people can follow of an operator's act; the item is in its canonical form, or empty for all.
func operatorEvent(ctx context.Context, t dispatch.EventType, workItem, who string) (Event, error) {
	target := ""
	if workItem != "" {
		ref, err := workitem.Parse(workItem)
		if err != nil {
			return Event{}, err
		}
		workItem, target = ref.String(), ref.Target()
	}
	return Event{Type: t, WorkItem: workItem, TraceID: obs.TraceID(ctx), Fields: map[string]string{
		fieldWorkItem: workItem, fieldTarget: target, fieldHost: "", fieldHarness: "", fieldDeliveryID: "", fieldWho: line(who),
	}}, nil
}

// operated writes an operator's act to the log.
func (d *Deliverer) operated(ctx context.Context, told Event) { d.config.operated(ctx, told) }

func (c *Config) operated(ctx context.Context, told Event) {
	c.Logger.LogAttrs(ctx, slog.LevelInfo, "an operator said", slog.String(obs.KeyEvent, string(told.Type)),
		slog.String(obs.KeyWorkItem, told.WorkItem), slog.String(obs.KeyDeliveryID, told.DeliveryID),
		slog.String(fieldWho, told.Fields[fieldWho]), slog.String(obs.KeyReason, told.Fields[fieldReason]))
}

func checkWords(field, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s must be UTF-8 of at most %d bytes", field, most)
	}
	return nil
}

// probe asks the host that the session of a work item is recorded on, or whichever has one. The host is nil when nobody can be asked.
func (d *Deliverer) probe(ctx context.Context, workItem string) (Host, Sight, error) {
	known, err := d.config.Store.Recorded(ctx, workItem)
	if err != nil {
		return nil, Sight{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if known.Session != nil && known.Session.Host != "" {
		host, _ := d.config.Hosts.On(known.Session.Host)
		return host, probeOn(ctx, host, known.Session.Host, workItem, ""), nil
	}
	host, sight := d.config.Hosts.Seek(ctx, Want{WorkItem: workItem, Harness: d.config.Harness, Left: known.Left})
	return host, sight, nil
}
