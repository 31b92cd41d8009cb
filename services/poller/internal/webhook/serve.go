package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// GitHub gives a delivery up after ten seconds; whoever takes longer to say what it has to say is not GitHub.
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	writeTime  = 20 * time.Second
	idleTime   = time.Minute
	maxHeader  = 16 << 10
	// stopTime is how long requests under way may go on once Serve is told to stop.
	stopTime = 5 * time.Second
)

// Serve answers requests that come in at a listener until ctx ends, and closes it.
func (r *Receiver) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: r, ReadHeaderTimeout: headerTime, ReadTimeout: r.readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		// What it says of connections is said by who is not known.
		ErrorLog: slog.NewLogLogger(r.config.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fault.Wrap(fault.Internal, "", "the receiver of webhooks cannot go on", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		r.config.Logger.WarnContext(ctx, "webhooks were cut off by the stop; redeliver them, or leave them to the next look", obs.KeyError, err)
		server.Close() //nolint:errcheck // Everything is cut off; there is nobody left to tell.
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fault.Wrap(fault.Internal, "", "the receiver of webhooks did not stop in good order", err)
	}
	return nil
}
