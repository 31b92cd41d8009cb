package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// deliveryEvents and shownEvents are how many events the page of a delivery, and that of all, has.
const (
	deliveryEvents = 50
	shownEvents    = 100
)

// ledgerBody is a page of the ledger, and what chose its rows.
type ledgerBody struct {
	listBody
	States                            []string
	State, Item, Source, Kind, Reason string
}

func (c *Console) ledger(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	body := ledgerBody{State: query.Get("state"), Item: strings.TrimSpace(query.Get("item")), Source: strings.TrimSpace(query.Get("source")),
		Kind: strings.TrimSpace(query.Get("kind")), Reason: strings.TrimSpace(query.Get("reason"))}
	for n := 1; n < len(pollerv1.LedgerState_name); n++ {
		body.States = append(body.States, view.LedgerState(pollerv1.LedgerState(n)))
	}
	request, err := body.request(query.Get(pageKey))
	if err != nil {
		c.show(w, r, page{name: "ledger", Title: "Ledger", code: http.StatusBadRequest, Problems: []notice{noticeOf(err)}, Body: body})
		return
	}
	var rows *pollerv1.ListLedgerResponse
	q := ask(r)
	q.about(func(ctx context.Context) error {
		return c.Services.Poller(ctx, func(ctx context.Context, p pollerv1.PollerServiceClient) (err error) {
			rows, err = p.ListLedger(ctx, request)
			return err
		})
	})
	problems := q.problems()
	body.Rows = gridOf("Events", c.printer().LedgerTable(rows.GetEntries()), c.Now())
	if len(problems) > 0 {
		body.Rows.None = unknown
	}
	body.turn("/ledger", query, rows.GetNextPageToken())
	c.show(w, r, page{name: "ledger", Title: "Ledger", Live: true, Problems: problems, Body: body})
}

// request is what chooses the rows of one page.
func (b ledgerBody) request(token string) (*pollerv1.ListLedgerRequest, error) {
	r := &pollerv1.ListLedgerRequest{Source: b.Source, Kind: b.Kind, Reason: b.Reason, PageSize: shownRows, PageToken: token}
	if b.Item != "" {
		ref, err := workitem.Parse(b.Item)
		if err != nil {
			return nil, err
		}
		r.WorkItem = ref.String()
	}
	if b.State != "" {
		n := slices.Index(b.States, b.State)
		if n < 0 {
			return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no state %q", view.Clip(b.State, 50)).
				WithRemedy("the states are " + strings.Join(b.States, ", "))
		}
		r.State = pollerv1.LedgerState(n + 1)
	}
	return r, nil
}

// deliveryBody is what is known of a delivery.
type deliveryBody struct {
	ID, Item string
	// State is the ledger's word for it, else the dispatcher's.
	State string
	// Upstream is where it was written, if that is an address of the web.
	Upstream string
	Facts    []view.Fact
	Acts     []act
	Again    bool
	Events   grid
	// Trace is every step of one that has ended, or why that is not known. One that is on its way has it on a page of its own.
	Trace, NoTrace string
}

func (c *Console) delivery(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var story Story
	var events []*dispatcherv1.Event
	var missing error
	var away []error
	q := ask(r)
	q.about(func(ctx context.Context) error {
		story, missing = c.Reports.Story(ctx, id)
		return missing
	})
	q.about(func(ctx context.Context) error {
		if deliveryURL(id) == "" {
			return nil // the story says so
		}
		events, away = c.Reports.Events(ctx, "", id, deliveryEvents)
		q.problem(away...)
		return nil
	})
	q.problems()
	if missing != nil {
		c.fail(w, r, "Delivery", missing)
		return
	}
	e := story.Entry
	body := deliveryBody{ID: id, Item: e.GetWorkItem(), State: view.LedgerState(e.GetState()), Upstream: webURL(e.GetUrl()), Facts: story.Facts}
	if e == nil {
		body.Item, body.State = story.Delivery.GetWorkItem(), view.Outcome(story.Delivery.GetOutcome())
	}
	body.Acts, body.Again = actsOn(e)
	body.Events = gridOf("What was decided and done", c.printer().EventsTable(events), c.Now(), "ITEM", "DELIVERY")
	if len(away) > 0 {
		body.Events.None = unknown
	}
	waits := e == nil || view.Waits(e.GetState())
	if !waits {
		body.Trace, body.NoTrace = c.steps(id)
	}
	q.problem(story.Problems...)
	c.show(w, r, page{name: "delivery", Title: "Delivery " + id, Live: waits, Problems: q.problems(), Body: body})
}

// actsOn are what can be done with an event, and whether it may be typed once more.
func actsOn(e *pollerv1.LedgerEntry) ([]act, bool) {
	switch e.GetState() {
	case pollerv1.LedgerState_LEDGER_STATE_DROPPED:
		return []act{{"retry", "Retry"}, {"done", "Done"}}, false
	case pollerv1.LedgerState_LEDGER_STATE_GAVE_UP:
		return []act{{"retry", "Retry"}, {"done", "Done"}, {"cancel", "Cancel"}}, false
	case pollerv1.LedgerState_LEDGER_STATE_SETTLED:
		if e.GetReason() == "unconfirmed" {
			return []act{{"retry", "Retry"}, {"done", "Done"}}, true
		}
	case pollerv1.LedgerState_LEDGER_STATE_PENDING, pollerv1.LedgerState_LEDGER_STATE_HELD:
		return []act{{"retry", "Look again now"}, {"cancel", "Cancel"}}, false
	}
	return nil, false
}

// steps is the trace of a delivery, or why there is none.
func (c *Console) steps(id string) (trace, missing string) {
	text, err := c.Reports.Trace(id)
	if err != nil {
		n := noticeOf(err)
		return "", strings.TrimSuffix(n.Text+"; "+n.Remedy, "; ")
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = view.Clean(line)
	}
	return strings.Join(lines, "\n"), ""
}

// trace is the page of every step of a delivery until now.
func (c *Console) trace(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if deliveryURL(id) == "" {
		c.fail(w, r, "Trace", fault.New(fault.Invalid, fault.ReasonBadDeliveryID, "that is no delivery id"))
		return
	}
	body := deliveryBody{ID: id}
	body.Trace, body.NoTrace = c.steps(id)
	c.show(w, r, page{name: "trace", Title: "Trace of " + id, Body: body})
}

func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	q := ask(r)
	var events []*dispatcherv1.Event
	q.about(func(ctx context.Context) error {
		found, away := c.Reports.Events(ctx, "", "", shownEvents)
		q.problem(away...)
		events = found
		return nil
	})
	problems := q.problems()
	body := listBody{Rows: gridOf("The latest decisions", c.printer().EventsTable(events), c.Now())}
	if len(problems) > 0 {
		body.Rows.None = unknown
	}
	c.show(w, r, page{name: "list", Title: "Events", Live: true, Problems: problems, Body: body})
}
