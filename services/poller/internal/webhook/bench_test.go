package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/store"
)

const (
	benchClients = 16
	// benchTurn is how long one way is measured before the other has its turn.
	benchTurn  = 2 * time.Second
	benchTurns = 5
)

// BenchmarkWebhook_BesideBareCommits prints how many webhooks are written down and answered in a second, beside how many rows of the same
// size the same database commits, each in a transaction of its own, from as many connections as there are clients. The database syncs each
// commit, as an installation's does. `make bench` runs it.
func BenchmarkWebhook_BesideBareCommits(b *testing.B) {
	pool := durable(b)
	url := serveBench(b, pool)
	bodies := make([][]byte, 32)
	for i := range bodies {
		bodies[i] = benchPayload(i)
	}
	if _, err := pool.Exec(b.Context(), `create table bare (id bigint generated always as identity primary key, guid text unique, payload bytea)`); err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	send := func(i int) error { return sendBench(client, url, bodies[i%len(bodies)]) }
	insert := func(i int) error {
		_, err := pool.Exec(context.Background(), `insert into bare (guid, payload) values ($1, $2)`, uuid.NewString(), bodies[i%len(bodies)])
		return err
	}
	var webhooks, bare int
	var webhookTime, bareTime time.Duration
	for range b.N {
		for _, do := range []func(int) error{send, insert} { // opens connections
			turn(b, do, 200*time.Millisecond)
		}
		for range benchTurns {
			n, d := turn(b, send, benchTurn)
			webhooks, webhookTime = webhooks+n, webhookTime+d
			n, d = turn(b, insert, benchTurn)
			bare, bareTime = bare+n, bareTime+d
		}
	}
	ours, theirs := float64(webhooks)/webhookTime.Seconds(), float64(bare)/bareTime.Seconds()
	fmt.Printf("ratio webhook clients=%d payload=%dKiB webhooks/s=%.0f bare_commits/s=%.0f ratio=%.2f (at least 0.20)\n",
		benchClients, len(bodies[0])>>10, ours, theirs, ours/theirs)
	b.ReportMetric(ours, "webhooks/s")
	b.ReportMetric(theirs, "commits/s")
	b.ReportMetric(ours/theirs, "ratio")
	if ours/theirs < 0.2 {
		b.Errorf("webhooks are taken at %.2f of the rate of bare commits", ours/theirs)
	}
}

// turn has all clients do something for a while, and returns how often it was done, and in what time.
func turn(b *testing.B, do func(i int) error, d time.Duration) (int, time.Duration) {
	b.Helper()
	var n atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for range benchClients {
		wait.Go(func() {
			for time.Since(began) < d {
				if err := do(int(n.Add(1))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return int(n.Load()), time.Since(began)
}

// durable is a database that syncs each commit.
func durable(b *testing.B) *pgxpool.Pool {
	b.Helper()
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "muxbench") // not b.TempDir: another user may run the cluster
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	cluster, err := local.Start(ctx, local.Options{Dir: filepath.Join(dir, "pg")})
	if err != nil {
		needs.Unmet(b, err)
	}
	b.Cleanup(func() { _ = cluster.Stop(context.Background()) })
	pool, err := db.Open(ctx, db.Config{URL: cluster.URL("postgres"), AppName: "bench", MaxConns: benchClients})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := migrations.Up(ctx, pool, nil); err != nil {
		b.Fatal(err)
	}
	var fsync, synchronous string
	if err := pool.QueryRow(ctx, `select current_setting('fsync'), current_setting('synchronous_commit')`).Scan(&fsync, &synchronous); err != nil ||
		fsync != "on" || synchronous != "on" {
		b.Fatalf("the database does not sync its commits: %s, %s, %v", fsync, synchronous, err)
	}
	return pool
}

const benchSecret = "It's a Secret to Everybody"

func serveBench(b *testing.B, pool *pgxpool.Pool) string {
	b.Helper()
	s := store.New(store.Config{Pool: pool, Quiet: pool, Holder: store.NewHolder(), Version: func() ledger.Version { return ledger.Version{} }})
	secrets := &Secrets{path: "/", read: func() ([]string, error) { return []string{benchSecret}, nil }}
	r := New(Config{
		Sources: []Source{{Name: "gh", Repositories: []string{"octo/widget"}, Secrets: secrets}}, Intake: hook.NewIntake(s, nil), Open: github.OpenPayload,
		Logger: slog.New(slog.DiscardHandler),
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, listener) }()
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return "http://" + listener.Addr().String() + "/webhooks/gh"
}

func sendBench(client *http.Client, url string, body []byte) error {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(benchSecret))
	mac.Write(body)
	for key, value := range map[string]string{
		"Content-Type": "application/json", headerEvent: "issue_comment", headerGUID: uuid.NewString(),
		headerSignature: signaturePrefix + hex.EncodeToString(mac.Sum(nil)),
	} {
		request.Header.Set(key, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return err
}

// benchPayload is about as large as what GitHub sends about a comment: most of it is addresses of its API.
func benchPayload(i int) []byte {
	var links strings.Builder
	for n := range 72 {
		fmt.Fprintf(&links, `"link_%d_url":"https://api.github.com/repos/octo/widget/things_%x{/other_things_%x}",`, n, sha256.Sum256([]byte{byte(i), byte(n)}), n)
	}
	return []byte(fmt.Sprintf(`{"action":"created","issue":{"number":%d,"node_id":"I_%d","title":"Paint it"},"comment":{"id":%d,"node_id":"IC_%d",`+
		`"body":"please\u0020rebase"},"repository":{%s"full_name":"octo/widget"},"sender":{"login":"alice"}}`, i+1, i, i, i, links.String()))
}
