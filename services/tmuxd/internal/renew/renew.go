// Package renew has the certificate of this host renewed before it ends: by the dispatcher, which is shown the present one. The files are
// replaced, and whoever uses them reads them again.
//
// It issues nothing, and knows nothing of sessions.
package renew

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// every is how often the certificate is looked at; a third of its life, in which it is renewed, has many such times.
const every = time.Hour

// Config says which certificate is renewed, and by whom.
type Config struct {
	Files identity.Files
	// Dispatcher is its address for other machines.
	Dispatcher string
	Logger     *slog.Logger
	Now        func() time.Time
	// Every is how often the certificate is looked at; an hour when 0.
	Every time.Duration
}

// Run renews the certificate whenever it is due, until ctx ends.
func Run(ctx context.Context, c Config) error {
	if c.Every == 0 {
		c.Every = every
	}
	for {
		if err := Once(ctx, c); err != nil && ctx.Err() == nil {
			c.Logger.WarnContext(ctx, "the certificate of this host could not be renewed; it is tried again", obs.KeyError, err)
		}
		timer := time.NewTimer(c.Every + rand.N(c.Every/10+1)) //nolint:gosec // so that hosts do not all ask at once
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Once renews the certificate if it is due.
func Once(ctx context.Context, c Config) error {
	have, err := c.Files.Look()
	if err != nil || !have.Due(c.Now()) {
		return err
	}
	if !c.Now().Before(have.Ends) {
		return fault.Newf(fault.Conflict, "", "it ended at %s, and cannot be shown any more", have.Ends.Format(time.RFC3339)).
			WithRemedy("invite the host again: muxpost hosts invite, and muxpost hosts join here")
	}
	config, err := c.Files.Client(func(id identity.ID) bool { return id == identity.Dispatcher })
	if err != nil {
		return err
	}
	conn, err := rpc.Dial(c.Dispatcher, rpc.DialOptions{Name: "the dispatcher", Silent: fault.ReasonDispatcherSilent, TLS: config})
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // It was one question.
	key, request, err := authority.Request()
	if err != nil {
		return err
	}
	answer, err := dispatcherv1.NewDispatcherServiceClient(conn).Renew(ctx, &dispatcherv1.RenewRequest{Request: request})
	if err != nil {
		return err
	}
	if err := authority.Replace(c.Files, answer.GetCertificate(), key, answer.GetAuthority()); err != nil {
		return err
	}
	got, err := c.Files.Look()
	if err == nil {
		c.Logger.InfoContext(ctx, "the certificate of this host was renewed", "until", got.Ends)
	}
	return err
}
