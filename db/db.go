// Package db is how the central services reach Postgres: one way to open a pool, one way to run a transaction, and one mapping
// from what the server and the network say to the kinds of core/fault.
//
// Three rules hold for everything that goes through it. No secret is shown: neither a URL's password nor the value of a
// parameter appears in an error, a log line or a span. Every wait has a bound. A collision of two transactions is tried again
// here, and nowhere else.
//
// The package knows no table and no statement of ours; those belong to the stores of the services, and their schemas to
// db/migrations. A server for a laptop or a test comes from db/local, a database for a test from db/dbtest.
package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/core/fault"
)

// openTimeout bounds how long Open waits for a first answer, and how long the pool waits for a new connection where the URL has
// no connect_timeout.
const openTimeout = 5 * time.Second

// Config says which database to open and how.
type Config struct {
	// URL is a postgres:// URL or a keyword/value string. It may hold a password, so it is never taken from argv.
	URL string
	// MaxConns is the largest number of connections in the pool. Zero leaves the choice to the URL (pool_max_conns) or to pgx.
	MaxConns int32
	// EndIdle has each connection ended that stands still within a transaction for ten seconds, as InTx has for its own: for whoever begins
	// transactions by other means, as River does. It stays with a connection, so it is not for a pool behind a transaction pooler.
	EndIdle bool
	// AppName is what pg_stat_activity shows for these connections. Empty leaves what the URL says.
	AppName string
	// TracerProvider receives a span for each statement that is part of a trace. Nil means no spans.
	TracerProvider trace.TracerProvider
	// Pool names the pool in metrics, where a process has several; AppName when empty.
	Pool string
	// MeterProvider receives durations, error counts and the state of the pool. Nil means no metrics.
	MeterProvider metric.MeterProvider
}

// Open returns a pool whose server has answered once. A URL that cannot be read is fault.Invalid; a server that does not
// answer within five seconds, or refuses, is fault.Unavailable with ReasonDatabase. The caller closes the pool.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, unreachable(pc.ConnConfig, err)
	}
	pingCtx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := pool.Ping(pingCtx); err != nil {
		pool.Close()
		if ctx.Err() != nil {
			return nil, Fault(ctx.Err())
		}
		return nil, unreachable(pc.ConnConfig, err)
	}
	if cfg.MeterProvider != nil {
		named := otelpgx.WithStatsAttributes(semconv.DBClientConnectionPoolName(cmp.Or(cfg.Pool, cfg.AppName)))
		if err := otelpgx.RecordStats(pool, otelpgx.WithStatsMeterProvider(cfg.MeterProvider), named); err != nil {
			pool.Close()
			return nil, fault.Wrap(fault.Internal, fault.ReasonBadConfig, "the pool's metrics cannot be registered", err)
		}
	}
	return pool, nil
}

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	// pgx reads an empty string as "whatever the environment says", which would reach a database nobody named.
	if strings.TrimSpace(cfg.URL) == "" {
		return nil, noURL()
	}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, badURL(err)
	}
	if cfg.MaxConns > 0 {
		pc.MaxConns = cfg.MaxConns
	}
	if cfg.AppName != "" {
		pc.ConnConfig.RuntimeParams["application_name"] = cfg.AppName
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = openTimeout
	}
	if cfg.EndIdle {
		// Asked for at the start of the connection, a pooler that keeps it for the client would refuse it as unknown.
		pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set "+idleSetting(idleLimit))
			return err
		}
	}
	if cfg.TracerProvider != nil || cfg.MeterProvider != nil {
		pc.ConnConfig.Tracer = newTracer(cfg)
	}
	return pc, nil
}

func unreachable(cc *pgx.ConnConfig, err error) error {
	remedy := "see that PostgreSQL runs and listens there"
	switch SQLState(err) {
	case "28P01", "28000":
		remedy = "check the user and the password in the database URL, and pg_hba.conf on the server"
	case "3D000":
		remedy = "create the database, or correct its name in the database URL"
	case "53300":
		remedy = "the server has no connection left: raise max_connections there, or lower the pools' sizes"
	}
	if errors.Is(err, context.DeadlineExceeded) && SQLState(err) == "" {
		remedy = "nothing answered in time: see that the host and the port are right, and that PostgreSQL runs and listens there"
	}
	message := fmt.Sprintf("cannot open %s", describe(cc.Config))
	return fault.Wrap(fault.Unavailable, fault.ReasonDatabase, message, shown(err)).WithRemedy(remedy)
}

// describe names a database without its password: the name, where it is, and as whom.
func describe(c pgconn.Config) string {
	places := []string{place(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		// The same place again is the attempt without TLS.
		if p := place(f.Host, f.Port); p != places[len(places)-1] {
			places = append(places, p)
		}
	}
	return fmt.Sprintf("database %q at %s as user %q", c.Database, strings.Join(places, ", "), c.User)
}

func place(host string, port uint16) string {
	if network, address := pgconn.NetworkAddress(host, port); network == "unix" {
		return address
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}
