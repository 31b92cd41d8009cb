package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func sourcesCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "sources [NAME]", Short: "List the sources: how they are read, and what is left of their limits", Args: args(0, 1, "muxpost sources lists them"),
		Long: `sources lists what is read, as whom, when next, and how many requests are left. With NAME it lists that source's limits and repositories.
Requests are counted since the poller that answers was started; those that found nothing new are free.`,
		Example: "  muxpost sources\n  muxpost sources github",
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			var all *pollerv1.ListSourcesResponse
			if err := s.poller(cmd.Context(), callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
				all, err = c.ListSources(ctx, &pollerv1.ListSourcesRequest{})
				return err
			}); err != nil {
				return err
			}
			if len(given) > 0 {
				all.Sources = slices.DeleteFunc(all.Sources, func(s *pollerv1.Source) bool { return s.GetName() != given[0] })
				if len(all.Sources) == 0 {
					return fault.Newf(fault.NotFound, fault.ReasonSourceNotFound, "there is no source called %q", view.Clean(given[0])).
						WithRemedy("muxpost sources lists them")
				}
			}
			switch {
			case a.json:
				return view.JSON(a.stdout, all)
			case len(given) > 0:
				a.printer().Source(all.GetSources()[0])
			default:
				a.printer().Sources(all.GetSources())
			}
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

type sourceReport struct {
	Name         string   `json:"name"`
	Kind         string   `json:"kind"`
	Repositories []string `json:"repositories"`
	Interval     string   `json:"interval"`
	// Unknown is true while it is not known how the looks went: the poller does not answer, or was started without this source.
	Unknown       bool       `json:"unknown,omitempty"`
	LastLook      *time.Time `json:"last_look,omitempty"`
	LastSuccess   *time.Time `json:"last_success,omitempty"`
	LastError     string     `json:"last_error,omitempty"`
	LastErrorTime *time.Time `json:"last_error_time,omitempty"`
	NotBefore     *time.Time `json:"not_before,omitempty"`
	Items         int        `json:"items"`
	// Webhooks is how they stand; nil where the source takes none.
	Webhooks *webhookReport `json:"webhooks,omitempty"`
}

type webhookReport struct {
	LastReceived *time.Time `json:"last_received,omitempty"`
	Waiting      int        `json:"waiting"`
	Failed       int        `json:"failed"`
	LastError    string     `json:"last_error,omitempty"`
	// MissedEvents is how many events the latest gap had, which was noticed at GapFound.
	MissedEvents int        `json:"missed_events,omitempty"`
	GapFound     *time.Time `json:"gap_found,omitempty"`
}

func webhooksOf(s *pollerv1.WebhookState) *webhookReport {
	if s == nil {
		return nil
	}
	return &webhookReport{
		LastReceived: timeOf(s.GetLastReceivedTime()), Waiting: int(s.GetWaiting()), Failed: int(s.GetFailed()), LastError: s.GetLastError(),
		MissedEvents: int(s.GetLastGap().GetEvents()), GapFound: timeOf(s.GetLastGap().GetFindTime()),
	}
}

// state says in a few words how they stand.
func (w *webhookReport) state(p view.Printer) string {
	if w == nil {
		return ""
	}
	state := "; no webhook has come yet"
	if w.LastReceived != nil {
		state = "; latest webhook " + p.Ago(*w.LastReceived)
	}
	if w.Waiting > 0 {
		state += ", " + view.Count(w.Waiting, "waits", "wait")
	}
	if w.Failed > 0 {
		state += ", " + p.Paint(view.Warn, strconv.Itoa(w.Failed)+" failed") + ": " + p.Clip(w.LastError, 100)
	}
	if w.GapFound != nil {
		state += ", " + p.Paint(view.Warn, "webhooks missed "+view.Count(w.MissedEvents, "event", "events")) + " " + p.Ago(*w.GapFound)
	}
	return state
}

// configuredSources returns the sources as the configuration has them.
func (s *services) configuredSources() []sourceReport {
	out := make([]sourceReport, 0, len(s.Poller.Sources))
	for _, c := range s.Poller.Sources {
		out = append(out, sourceReport{Name: c.Name, Kind: c.Kind, Repositories: c.Repositories, Interval: c.Interval.String(), Unknown: true})
	}
	return out
}

// sourceStatus returns the sources that the poller was started with, and then those that the configuration has besides.
func (s *services) sourceStatus(ctx context.Context) ([]sourceReport, error) {
	var answer *pollerv1.ListSourcesResponse
	err := s.poller(ctx, statusTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.ListSources(ctx, &pollerv1.ListSourcesRequest{})
		return err
	})
	out := make([]sourceReport, 0, len(answer.GetSources()))
	for _, a := range answer.GetSources() {
		out = append(out, sourceReport{
			Name: a.GetName(), Kind: a.GetKind(), Repositories: a.GetRepositories(), Interval: a.GetInterval().AsDuration().String(),
			LastLook: timeOf(a.GetLastLookTime()), LastSuccess: timeOf(a.GetLastSuccessTime()), LastError: a.GetLastError(),
			LastErrorTime: timeOf(a.GetLastErrorTime()), NotBefore: timeOf(a.GetNotBefore()), Items: int(a.GetKnownItems()),
			Webhooks: webhooksOf(a.GetWebhook()),
		})
	}
	for _, c := range s.configuredSources() {
		if !slices.ContainsFunc(out, func(r sourceReport) bool { return r.Name == c.Name }) {
			out = append(out, c)
		}
	}
	return out, err
}

// when says when the look that failed began, as far as that is known.
func (r sourceReport) when(p view.Printer) string {
	if r.LastErrorTime == nil {
		return ""
	}
	return " " + p.Ago(*r.LastErrorTime)
}

// sourceFacts say of each source how it stands.
func (r report) sourceFacts(p view.Printer) []view.Fact {
	var f facts
	if len(r.Sources) == 0 {
		f.add("sources", "none configured: events come by hand alone (muxpost send)")
	}
	for i, s := range r.Sources {
		f.add(map[bool]string{true: "sources"}[i == 0], "%s (%s): %s", s.Name, strings.Join(s.Repositories, ", "), s.state(p, r.serves("poller")))
	}
	return f
}

// state says in one line how the latest look went.
func (r sourceReport) state(p view.Printer, answered bool) string {
	var state string
	switch {
	case r.Unknown && answered:
		return p.Paint(view.Warn, "not known to the poller that runs: muxpost down && muxpost up")
	case r.Unknown:
		return p.Paint(view.Warn, "not known: the poller does not answer")
	case r.LastLook == nil:
		return "not looked at yet"
	case r.LastError != "":
		state = p.Paint(view.Bad, "failed"+r.when(p)) + ": " + p.Clip(r.LastError, 100)
		if r.LastSuccess != nil {
			state += "; last read " + p.Ago(*r.LastSuccess)
		}
	case r.LastSuccess == nil:
		return "being looked at for the first time"
	default:
		state = p.Paint(view.Good, "read "+p.Ago(*r.LastSuccess)) + ", " + view.Count(r.Items, "open work item", "open work items")
	}
	if r.NotBefore != nil {
		state += "; it asked to be left alone until " + r.NotBefore.Local().Format("15:04:05")
	}
	return state + r.Webhooks.state(p)
}
