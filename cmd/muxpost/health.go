package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

// healthTime bounds the question of a probe, which is asked again soon.
const healthTime = 3 * time.Second

func healthCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "health SERVICE", Short: "Ask a service of this machine whether it serves, as a probe of a container does", Args: args(1, 1, ""),
		Long: `health asks tmuxd, dispatcher or poller at the address where it listens on this machine, by grpc.health.v1, within three seconds. The dispatcher and
the poller serve while their database answers. Exit codes: 0 it serves, 1 it says that it does not, 3 it does not answer.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.health(cmd.Context(), layout.Service(given[0]))
		},
	}
}

func (a *app) health(ctx context.Context, service layout.Service) error {
	if !slices.Contains(layout.Services(), service) {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no service %q", service).WithRemedy("name tmuxd, dispatcher or poller")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	conn, err := s.conn(service)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return s.explained(service, err)
	}
	a.say("%s", answer.GetStatus())
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return errors.New("it does not serve")
	}
	return nil
}
