package console

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

func (c *Console) hosts(w http.ResponseWriter, r *http.Request) {
	var hosts *dispatcherv1.ListHostsResponse
	var left *dispatcherv1.ListSupersededResponse
	q := ask(r)
	q.about(func(ctx context.Context) error {
		return c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) (err error) {
			if hosts, err = d.ListHosts(ctx, &dispatcherv1.ListHostsRequest{}); err != nil {
				return err
			}
			left, err = d.ListSuperseded(ctx, &dispatcherv1.ListSupersededRequest{PageSize: shownRows})
			return err
		})
	})
	problems := q.problems()
	p, now := c.printer(), c.Now()
	body := listBody{Rows: gridOf("Hosts", p.HostsTable(hosts.GetHosts()), now)}
	if hosts == nil {
		body.Rows.None = unknown
	}
	if len(left.GetSuperseded()) > 0 {
		body.More = []grid{gridOf("Sessions that were left behind on hosts which were given up", p.SupersededTable(left.GetSuperseded()), now)}
	}
	c.show(w, r, page{name: "list", Title: "Hosts", Live: true, Problems: problems, Body: body})
}

func (c *Console) sources(w http.ResponseWriter, r *http.Request) {
	var all *pollerv1.ListSourcesResponse
	q := ask(r)
	q.about(func(ctx context.Context) error {
		return c.Services.Poller(ctx, func(ctx context.Context, p pollerv1.PollerServiceClient) (err error) {
			all, err = p.ListSources(ctx, &pollerv1.ListSourcesRequest{})
			return err
		})
	})
	problems := q.problems()
	p, now := c.printer(), c.Now()
	body := listBody{Rows: gridOf("Sources", p.SourcesTable(all.GetSources()), now)}
	if all == nil {
		body.Rows.None = unknown
	}
	for _, s := range all.GetSources() {
		body.More = append(body.More, gridOf("Limits of "+s.GetName(), p.LimitsTable(s), now), gridOf("Repositories of "+s.GetName(), p.RepositoriesTable(s), now))
	}
	c.show(w, r, page{name: "list", Title: "Sources", Live: true, Problems: problems, Body: body})
}

func (c *Console) teams(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var all *teamv1.ListRunsResponse
	q := ask(r)
	q.about(func(ctx context.Context) error {
		return c.Services.Teams(ctx, func(ctx context.Context, t teamv1.TeamServiceClient) (err error) {
			all, err = t.ListRuns(ctx, &teamv1.ListRunsRequest{PageSize: shownRows, PageToken: query.Get(pageKey)})
			return err
		})
	})
	problems := q.problems()
	body := listBody{Rows: gridOf("Runs of teams", c.printer().RunsTable(all.GetRuns()), c.Now())}
	if all == nil {
		body.Rows.None = unknown
	}
	body.turn("/teams", query, all.GetNextPageToken())
	c.show(w, r, page{name: "list", Title: "Teams", Live: true, Problems: problems, Body: body})
}

// runBody is how a run of a team stands.
type runBody struct {
	// Head are the lines above its tasks.
	Head           []string
	Item           string
	Tasks, History grid
}

func (c *Console) run(w http.ResponseWriter, r *http.Request) {
	var whole *teamv1.GetRunResponse
	if err := c.Services.Teams(r.Context(), func(ctx context.Context, t teamv1.TeamServiceClient) (err error) {
		whole, err = t.GetRun(ctx, &teamv1.GetRunRequest{Run: r.PathValue("run")})
		return err
	}); err != nil {
		c.fail(w, r, "Run", err)
		return
	}
	p, now := c.printer(), c.Now()
	var head bytes.Buffer
	p.Out = &head
	p.RunHead(whole.GetRun())
	body := runBody{Head: strings.Split(strings.TrimSpace(head.String()), "\n"), Item: whole.GetRun().GetWorkItem(),
		Tasks:   gridOf("Tasks", p.TasksTable(whole.GetTasks(), whole.GetAttempts()), now),
		History: gridOf("What became of it", p.RunHistoryTable(whole.GetHistory()), now)}
	c.show(w, r, page{name: "run", Title: "Run of " + whole.GetRun().GetTeam(), Live: whole.GetRun().GetEndTime() == nil, Body: body})
}
