package server

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	defaultPageSize = 50
	eventPageSize   = 100
	maxPageSize     = 500
	tokenPrefix     = "before:"
	// maxWord is longer than any name of a source, a kind or a reason.
	maxWord = 200
)

// filterOf checks what was asked for.
func filterOf(r *pollerv1.ListLedgerRequest) (poll.Filter, error) {
	var f poll.Filter
	var err error
	if f.WorkItem, err = itemOf(r.GetWorkItem()); err != nil {
		return f, err
	}
	if f.DeliveryID, err = deliveryOf(r.GetDeliveryId()); err != nil {
		return f, err
	}
	if r.GetState() != pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED {
		state, ok := states()[r.GetState()]
		if !ok {
			return f, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no ledger state %d", r.GetState())
		}
		f.State = &state
	}
	f.Source, f.Kind, f.Reason = r.GetSource(), r.GetKind(), r.GetReason()
	for what, word := range map[string]string{"source": f.Source, "kind": f.Kind, "reason": f.Reason} {
		if len(word) > maxWord {
			return f, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the %s has %d bytes and the limit is %d", what, len(word), maxWord)
		}
	}
	if r.GetSince() != nil {
		if err := r.GetSince().CheckValid(); err != nil {
			return f, fault.New(fault.Invalid, fault.ReasonBadArgument, "since is no time").WithRemedy("write it as 2026-01-31T12:00:00Z")
		}
		f.Since = r.GetSince().AsTime()
	}
	if f.Limit, err = limitOf(r.GetPageSize(), defaultPageSize); err != nil {
		return f, err
	}
	f.Before, err = parsePageToken(r.GetPageToken())
	return f, err
}

// queryOf checks what events were asked for.
func queryOf(r *pollerv1.ListPollEventsRequest) (q poll.EventQuery, err error) {
	q = poll.EventQuery{After: r.GetAfterSequence(), Source: r.GetSource(), Latest: r.GetLatest()}
	if q.After < 0 {
		return q, fault.New(fault.Invalid, fault.ReasonBadArgument, "after_sequence must not be negative")
	}
	if q.WorkItem, err = itemOf(r.GetWorkItem()); err != nil {
		return q, err
	}
	if q.DeliveryID, err = deliveryOf(r.GetDeliveryId()); err != nil {
		return q, err
	}
	for _, name := range r.GetTypes() {
		if ledger.EventTypes()[ledger.EventType(name)] == "" {
			return q, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%.64q is no type of the poller's events", name).
				WithRemedy("docs/events.md lists the types")
		}
		q.Types = append(q.Types, ledger.EventType(name))
	}
	q.Limit, err = limitOf(r.GetPageSize(), eventPageSize)
	return q, err
}

func itemOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	ref, err := workitem.Parse(text)
	if err != nil {
		return "", err
	}
	return ref.String(), nil
}

func deliveryOf(id string) (string, error) {
	if id != "" && !session.ValidDeliveryID(id) {
		return "", fault.New(fault.Invalid, fault.ReasonBadDeliveryID, "the delivery id is malformed").
			WithRemedy("copy it from a row of the ledger: 8 to 64 characters of a-z, 0-9, - and _")
	}
	return id, nil
}

func limitOf(size int32, usual int) (int, error) {
	if size < 0 || size > maxPageSize {
		return 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "page_size is %d; it must be 1 to %d, or 0 for %d", size, maxPageSize, usual)
	}
	return cmp.Or(int(size), usual), nil
}

// pageToken names the last row of a page. Callers pass it on as it is.
func pageToken(id int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenPrefix + strconv.FormatInt(id, 10)))
}

func parsePageToken(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	bad := fault.New(fault.Invalid, fault.ReasonBadArgument, "the page token is not one that this service gave").
		WithRemedy("pass next_page_token on as it came, or leave it empty for the first page")
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, bad
	}
	digits, ok := strings.CutPrefix(string(text), tokenPrefix)
	id, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || id <= 0 {
		return 0, bad
	}
	return id, nil
}
