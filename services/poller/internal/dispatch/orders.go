package dispatch

import (
	"context"
	"strings"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

var _ poll.Agents = (*Client)(nil)

// Pause holds the deliveries of an item back, and reports whether they were already.
func (c *Client) Pause(ctx context.Context, workItem, who, reason string) (existed bool, err error) {
	answer, err := c.api.Pause(ctx, &dispatcherv1.PauseRequest{WorkItem: workItem, Who: bounded(who), Reason: reason})
	return answer.GetExisted(), err
}

// Unpause ends the pause of an item, and reports whether there was one.
func (c *Client) Unpause(ctx context.Context, workItem, who string) (ended bool, err error) {
	answer, err := c.api.Unpause(ctx, &dispatcherv1.UnpauseRequest{WorkItem: workItem, Who: bounded(who)})
	return answer.GetPause() != nil, err
}

// Stop ends the agent of an item.
func (c *Client) Stop(ctx context.Context, workItem, who, reason string) (already, waits bool, err error) {
	answer, err := c.api.StopSession(ctx, &dispatcherv1.StopSessionRequest{WorkItem: workItem, Who: bounded(who), Reason: reason})
	return answer.GetAlready(), answer.GetWaits(), err
}

// Clean removes the working tree of an item, where its agent has ended and nothing would be lost; kept says why it stays.
func (c *Client) Clean(ctx context.Context, workItem, who string) (kept string, err error) {
	answer, err := c.api.RemoveTree(ctx, &dispatcherv1.RemoveTreeRequest{WorkItem: workItem, Who: bounded(who)})
	if err != nil || answer.GetRemoved() {
		return "", err
	}
	return answer.GetDetail(), nil
}

// Team begins the run of the team that is configured for an item, and returns how many tasks it has. The same order again returns the same run.
func (c *Client) Team(ctx context.Context, workItem, who, order string) (run string, tasks int, err error) {
	answer, err := c.teams.StartItemRun(ctx, &teamv1.StartItemRunRequest{WorkItem: workItem, Who: bounded(who), OrderKey: order})
	return answer.GetRun().GetRunId(), int(answer.GetRun().GetTasks()), err
}

// Agent returns how the session of an item stands, and whether its events are held back.
func (c *Client) Agent(ctx context.Context, workItem string) (poll.Agent, error) {
	var a poll.Agent
	page, err := c.api.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{WorkItem: workItem, PageSize: 1})
	if err != nil {
		return a, err
	}
	if sessions := page.GetSessions(); len(sessions) > 0 && !sessions[0].GetClosed() {
		s := sessions[0]
		a.State = words(s.GetState().String(), "SESSION_STATE_")
		if activity := s.GetActivity(); activity != dispatcherv1.SessionActivity_SESSION_ACTIVITY_UNSPECIFIED {
			a.Activity = words(activity.String(), "SESSION_ACTIVITY_")
		}
		a.Host, a.Harness, a.Ending = s.GetHost(), s.GetHarness(), s.GetEnding() != nil
	}
	for token := ""; ; {
		page, err := c.api.ListPauses(ctx, &dispatcherv1.ListPausesRequest{PageSize: maxPage, PageToken: token})
		if err != nil {
			return a, err
		}
		for _, p := range page.GetPauses() {
			if p.GetWorkItem() == "" || p.GetWorkItem() == workItem {
				a.Paused, a.PausedBy = true, p.GetWho()
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			return a, nil
		}
	}
}

const (
	// maxPage is the largest page of a list.
	maxPage = 500
	// maxWho is how much the dispatcher takes of who said something, in bytes.
	maxWho = 100
)

func bounded(who string) string {
	if len(who) > maxWho {
		return strings.ToValidUTF8(who[:maxWho], "")
	}
	return who
}

// words are a value of the contract's as people read it.
func words(value, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value, prefix), "_", " "))
}
