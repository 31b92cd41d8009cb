package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

const (
	// shownRows is how many rows a page of a list has.
	shownRows = 50
	// itemEvents and itemRows are how many events, and rows of the ledger, the page of a work item has.
	itemEvents = 20
	itemRows   = 10
	// mostPage is the most that a service puts on one page.
	mostPage = 500
)

// listBody is a page of a list.
type listBody struct {
	Rows grid
	// More are the tables below it.
	More []grid
	// First and Next are where the list begins and goes on; empty where it does.
	First, Next string
}

// turn sets where a list goes on, and begins.
func (b *listBody) turn(path string, query url.Values, token string) {
	query.Del(saidKey)
	if query.Has(pageKey) {
		query.Del(pageKey)
		b.First = address(path, query)
	}
	if token != "" {
		query.Set(pageKey, token)
		b.Next = address(path, query)
	}
}

func address(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// pageKey is the name in an address of where a list goes on.
const pageKey = "page"

func (c *Console) sessions(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var all *dispatcherv1.ListSessionsResponse
	q := ask(r)
	q.about(func(ctx context.Context) error {
		return c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) (err error) {
			all, err = d.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{PageSize: shownRows, PageToken: query.Get(pageKey), Closed: query.Has("closed")})
			return err
		})
	})
	problems := q.problems()
	body := struct {
		listBody
		Closed bool
	}{Closed: query.Has("closed")}
	body.Rows = gridOf("Sessions", c.printer().SessionsTable(all.GetSessions()), c.Now(), "TARGET")
	if len(problems) > 0 {
		body.Rows.None = unknown
	}
	body.turn("/sessions", query, all.GetNextPageToken())
	c.show(w, r, page{name: "sessions", Title: "Sessions", Live: true, Problems: problems, Body: body})
}

// unknown is said in place of a table that could not be asked for.
const unknown = "not known"

// itemBody is what is known of a work item, and what can be said to its agent.
type itemBody struct {
	Item, Upstream, LedgerURL string

	Session, Rows, Events, Pulls grid
	// Story is that of its latest event, whose page is at StoryURL.
	Story    []view.Fact
	StoryURL string
	Screen   screen
	// Pause and Park say what holds its events back; empty for nothing.
	Pause, AllPaused, Park string
	// Key makes the message be sent once, and Text is what could not be sent.
	Key, Text string
}

// screen is what an agent shows, or why that is not shown.
type screen struct {
	Text, Note string
	Dead       bool
}

func (c *Console) item(w http.ResponseWriter, r *http.Request) {
	ref, err := workitem.Parse(r.URL.Query().Get("of"))
	if err != nil {
		c.fail(w, r, "Work item", err)
		return
	}
	c.showItem(w, r, ref, newKey(), "", page{Live: true})
}

// showItem shows a work item, with the key of the next message, and a text that could not be sent.
func (c *Console) showItem(w http.ResponseWriter, r *http.Request, ref workitem.Ref, key, text string, p page) {
	item := ref.String()
	body := itemBody{Item: item, Upstream: upstreamURL(item), LedgerURL: "/ledger?item=" + url.QueryEscape(item), Key: key, Text: text}
	var rows *pollerv1.ListLedgerResponse
	var links *pollerv1.ListLinksResponse
	var sessions *dispatcherv1.ListSessionsResponse
	var events []*dispatcherv1.Event
	var away []error
	q := ask(r)
	q.about(func(ctx context.Context) error {
		if err := c.Services.Poller(ctx, func(ctx context.Context, p pollerv1.PollerServiceClient) (err error) {
			if rows, err = p.ListLedger(ctx, &pollerv1.ListLedgerRequest{WorkItem: item, PageSize: itemRows}); err != nil {
				return err
			}
			links, err = p.ListLinks(ctx, &pollerv1.ListLinksRequest{Of: item, PageSize: itemRows})
			return err
		}); err != nil || len(rows.GetEntries()) == 0 {
			return err
		}
		latest := rows.GetEntries()[0].GetDeliveryId()
		story, err := c.Reports.Story(ctx, latest)
		body.Story, body.StoryURL = story.Facts, deliveryURL(latest)
		return err
	})
	q.about(func(ctx context.Context) error {
		err := c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) (err error) {
			sessions, err = d.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{WorkItem: item, PageSize: 1})
			return err
		})
		if body.Screen = (screen{Note: unknown}); err == nil {
			body.Screen = c.screen(ctx, item, sessions.GetSessions())
		}
		return err
	})
	q.about(func(ctx context.Context) error { return c.holds(ctx, item, &body) })
	q.about(func(ctx context.Context) error {
		events, away = c.Reports.Events(ctx, item, "", itemEvents)
		q.problem(away...)
		return nil
	})
	p.Problems = append(p.Problems, q.problems()...)
	words, now := c.printer(), c.Now()
	body.Session = gridOf("Session", words.SessionsTable(sessions.GetSessions()), now, "ITEM")
	body.Rows = gridOf("Its latest events in the ledger", words.LedgerTable(rows.GetEntries()), now, "ITEM")
	body.Events = gridOf("What was decided and done", words.EventsTable(events), now, "ITEM")
	body.Pulls = gridOf("Its pull requests", words.LinksTable(links.GetLinks()), now)
	if rows == nil {
		body.Rows.None, body.Pulls.None = unknown, unknown
	}
	if sessions == nil {
		body.Session.None = unknown
	}
	if len(away) > 0 {
		body.Events.None = unknown
	}
	p.name, p.Title, p.Body, p.At = "item", item, body, itemURL(item)
	c.show(w, r, p)
}

// screen is what the agent of a session shows, if it lives on this machine.
func (c *Console) screen(ctx context.Context, item string, sessions []*dispatcherv1.Session) screen {
	switch {
	case len(sessions) == 0:
		return screen{Note: "no session is recorded"}
	case c.Host == "" || sessions[0].GetHost() != c.Host:
		return screen{Note: "it is on host " + view.Clean(sessions[0].GetHost()) + ", and only screens of this machine are shown here"}
	}
	var shown *tmuxdv1.CaptureResponse
	if err := c.Services.Tmuxd(ctx, func(ctx context.Context, t tmuxdv1.TmuxdServiceClient) (err error) {
		shown, err = t.Capture(ctx, &tmuxdv1.CaptureRequest{WorkItem: item, Format: tmuxdv1.CaptureFormat_CAPTURE_FORMAT_TEXT})
		return err
	}); err != nil {
		return screen{Note: noticeOf(err).Text}
	}
	lines := make([]string, 0, len(shown.GetLines()))
	for _, line := range shown.GetLines() {
		lines = append(lines, view.Clean(line))
	}
	return screen{Text: strings.Join(lines, "\n"), Dead: shown.GetDead()}
}

// holds finds what holds a work item back.
func (c *Console) holds(ctx context.Context, item string, body *itemBody) error {
	p := c.printer()
	return c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) error {
		for token, more := "", true; more; more = token != "" {
			page, err := d.ListPauses(ctx, &dispatcherv1.ListPausesRequest{PageSize: mostPage, PageToken: token})
			if err != nil {
				return err
			}
			for _, pause := range page.GetPauses() {
				switch pause.GetWorkItem() {
				case item:
					body.Pause = p.PauseLine(pause)
				case "":
					body.AllPaused = p.PauseLine(pause)
				}
			}
			token = page.GetNextPageToken()
		}
		for token, more := "", true; more; more = token != "" {
			page, err := d.ListParks(ctx, &dispatcherv1.ListParksRequest{PageSize: mostPage, PageToken: token})
			if err != nil {
				return err
			}
			for _, park := range page.GetParks() {
				if park.GetWorkItem() == item {
					body.Park = "it is parked since " + p.When(park.GetCreateTime()) + ": its agent died " +
						view.Count(int(park.GetDeaths()), "time", "times") + " within " + view.Short(park.GetWithin().AsDuration())
				}
			}
			token = page.GetNextPageToken()
		}
		return nil
	})
}

// itemOf reads the work item of a form.
func itemOf(r *http.Request) (workitem.Ref, error) {
	text := r.PostFormValue("item")
	if text == "" {
		return workitem.Ref{}, fault.New(fault.Invalid, fault.ReasonBadWorkItem, "no work item is named")
	}
	return workitem.Parse(text)
}

// scopeOf reads what a form pauses or unpauses: a work item, or all where that is said and no item is.
func scopeOf(r *http.Request) (workitem.Ref, error) {
	if r.PostFormValue("all") != "" && r.PostFormValue("item") == "" {
		return workitem.Ref{}, nil
	}
	return itemOf(r)
}
