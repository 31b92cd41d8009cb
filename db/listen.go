package db

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/internal/obs"
)

// The pause before a lost connection is made again, doubled up to the longest.
const (
	firstListenPause = 100 * time.Millisecond
	maxListenPause   = 10 * time.Second
)

// Listen calls heard whenever something is announced on a channel of the pool's database (NOTIFY), until ctx ends. It has a connection of
// its own, outside the pool, so that it can neither wait for one of the pool's nor keep one from others. A lost connection is made again,
// and heard is called once for each that was made; what was announced meanwhile is not heard. Behind a transaction pooler nothing may be
// heard at all. So whoever listens must look by itself now and then.
func Listen(ctx context.Context, pool *pgxpool.Pool, channel string, heard func(), log *slog.Logger) {
	pause := firstListenPause
	for {
		err := listen(ctx, pool, channel, heard, func() { pause = firstListenPause })
		log.DebugContext(ctx, "the connection for announcements was lost", obs.KeyError, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxListenPause)
	}
}

func listen(ctx context.Context, pool *pgxpool.Pool, channel string, heard, connected func()) error {
	config := pool.Config().ConnConfig.Copy()
	config.Tracer = nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is given up either way
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	connected()
	for {
		// Once before the first wait too: something may have come in before we listened.
		heard()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}
