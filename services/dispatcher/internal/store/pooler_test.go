package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
)

// pooled starts a pooler that gives a connection to the server away after each transaction, and returns the URL through it, as the documentation
// has people write it.
func pooled(t *testing.T, direct string) string {
	t.Helper()
	bin := needs.Program(t, "pgbouncer")
	config, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ini := fmt.Sprintf("[databases]\n%[1]s = host=%[2]s port=%[3]d user=%[4]s dbname=%[1]s\n[pgbouncer]\nunix_socket_dir=%[5]s\nlisten_port=6432\n"+
		"auth_type=any\npool_mode=transaction\ndefault_pool_size=3\nmax_client_conn=100\n", config.Database, config.Host, config.Port, config.User, dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if os.Getuid() == 0 { // it does not run as root
		owner, err := user.Lookup("postgres") // whose server it is
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(owner.Uid, 10, 32)
		gid, _ := strconv.ParseUint(owner.Gid, 10, 32)
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the pooler says:\n%s", text)
		}
	})
	return (&url.URL{Scheme: "postgres", User: url.User(config.User), Path: "/" + config.Database, RawQuery: url.Values{
		"host": {dir}, "port": {"6432"}, "default_query_exec_mode": {"exec"}}.Encode()}).String()
}

// limitsItsTransactionAlone holds that a transaction has its limit for standing still, and that nobody who has its connection afterwards does.
func limitsItsTransactionAlone(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const ask = "select current_setting('idle_in_transaction_session_timeout')"
	for range 6 { // twice as often as there are connections to the server
		var within, after string
		err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), ask).Scan(&within) })
		if err == nil {
			err = pool.QueryRow(t.Context(), ask).Scan(&after)
		}
		if err != nil || within != "10s" || after != "0" {
			t.Errorf("the limit is %s within and %s after it, %v", within, after, err)
		}
	}
}

// Nothing that the dispatcher does stays with a connection: it works where each transaction has another one.
func TestStore_WorksBehindATransactionPooler(t *testing.T) {
	through := pooled(t, dbtest.NewURL(t))
	var s *store.Store
	var pool *pgxpool.Pool
	for limit := time.Now().Add(20 * time.Second); s == nil; time.Sleep(20 * time.Millisecond) {
		var err error
		pool, err = db.Open(t.Context(), db.Config{URL: through, MaxConns: 12})
		if err == nil {
			t.Cleanup(pool.Close)
			s = store.New(pool)
		} else if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
	delivertest.CheckStore(t, s)
	limitsItsTransactionAlone(t, pool)
	// Leases of many at once: each token once, and each later one higher.
	var mu sync.Mutex
	tokens := map[int64]bool{}
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			var last int64
			for range 20 {
				l, ok, err := s.TakeLease(context.WithoutCancel(t.Context()), fmt.Sprintf("github:octo/pooled#%d", i), "a")
				if err != nil || !ok || l.Token <= last {
					t.Errorf("%+v after %d, %v, %v", l, last, ok, err)
					return
				}
				last = l.Token
				mu.Lock()
				if tokens[last] {
					t.Errorf("token %d was given twice", last)
				}
				tokens[last] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// What is announced is heard by whoever has the connection that listens just now, so that who follows events depends on the looks.
	ctx, cancel := context.WithCancel(t.Context())
	more, listened := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		listened <- s.Listen(ctx, func() {
			select {
			case more <- struct{}{}:
			default:
			}
		}, slog.New(slog.DiscardHandler))
	}()
	if _, err := pool.Exec(t.Context(), "insert into dispatcher.events (type) values ($1)", string(dispatch.SessionStopped)); err != nil {
		t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for found := false; !found; {
		select {
		case <-more:
		case <-limit:
			t.Fatal("the event was not found")
		}
		page, err := s.Events(t.Context(), deliver.EventQuery{Limit: 10, Types: []dispatch.EventType{dispatch.SessionStopped}})
		if err != nil {
			t.Fatal(err)
		}
		found = len(page.Events) > 0 && page.Events[len(page.Events)-1].Sequence == page.Last
	}
	cancel()
	if err := <-listened; err != nil {
		t.Error(err)
	}
	if _, err := s.ForgetEvents(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
