package rpc_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

func TestServer_RefusesMoreCallsThanItTakesAndSaysWhenToAskAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		begun, release := make(chan struct{}), make(chan struct{})
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{MaxCalls: 2}, service{
			ask: func(_ context.Context, text string) (string, error) {
				begun <- struct{}{}
				<-release
				return text, nil
			},
			follow: func(ctx context.Context) error { <-ctx.Done(); return nil },
		})), rpc.DialOptions{})
		var calls errgroup.Group
		for range 2 {
			calls.Go(func() error { _, err := ask(t.Context(), conn, "x"); return err })
			<-begun
		}
		_, err := ask(t.Context(), conn, "one more")
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Throttled || f.Reason != fault.ReasonOverloaded || f.RetryAfter <= 0 || f.Remedy == "" {
			t.Errorf("one more: %v", err)
		}
		// What is long-lived is counted by itself, and whether the service lives can be asked at any time.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		follow(t, ctx, conn)
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		close(release)
		if err := calls.Wait(); err != nil {
			t.Error(err)
		}
		go func() { <-begun }()
		if _, err := ask(t.Context(), conn, "again"); err != nil {
			t.Errorf("after the others ended: %v", err)
		}
	})
}
