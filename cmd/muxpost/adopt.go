package main

import (
	"context"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func adoptCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "adopt ITEM", Short: "Record a session of an item that its host has and the record lacks",
		Args: args(1, 1, "muxpost sessions --orphans lists them"),
		Long: `adopt takes a session into the record that its host has and the record lacks: a living one that carries muxpost's stamp for the item, or
one that has ended and whose conversation the host knows. So it also takes back a muxpost close. Nothing is started and nothing is typed; the
item's events go into it from then on. What does not carry the stamp is refused.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.adopt(cmd.Context(), given[0], o) },
	}
	a.whoFlag(c, &o)
	a.jsonFlag(c)
	return c
}

func (a *app) adopt(ctx context.Context, item string, o operatorFlags) error {
	ref, err := parseItem(item)
	if err != nil {
		return err
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	var answer *dispatcherv1.AdoptSessionResponse
	err = s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.AdoptSession(ctx, &dispatcherv1.AdoptSessionRequest{WorkItem: ref.String(), Who: a.by(o)})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	record, verb := answer.GetSession(), "is recorded now"
	if answer.GetAlready() {
		verb = "was recorded already"
	}
	a.say("the session of %s on host %s %s", ref, view.Clean(record.GetHost()), verb)
	return nil
}

// orphans lists sessions without a record, and records without a session.
func (s *services) orphans(ctx context.Context, limit int) (*dispatcherv1.ListOrphansResponse, error) {
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	var answer *dispatcherv1.ListOrphansResponse
	err := s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		answer, err = c.ListOrphans(ctx, &dispatcherv1.ListOrphansRequest{PageSize: int32(limit)}) //nolint:gosec // at most maxPage
		return err
	})
	return answer, err
}
