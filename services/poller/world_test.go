package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/version"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/services/poller/internal/forward"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(asProcess); config != "" {
		beProcess(config)
	}
	os.Exit(dbtest.Main(m))
}

// clock is the fake GitHub's.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// dispatcher is a real gRPC server that answers by a script, and remembers what it was asked.
type dispatcher struct {
	dispatcherv1.UnimplementedDispatcherServiceServer

	mu     sync.Mutex
	asked  []*dispatcherv1.DeliverRequest
	answer func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error)
	// reopened are the deliveries that were to be re-opened, each with who asked for it; refusal is the answer to that. While occupied is
	// true, what may be re-opened only if its name is free stays dropped.
	reopened []string
	refusal  error
	occupied bool
	// builds take part in every delivery, and Info tells them; none is a dispatcher that is older and tells nothing.
	builds []*dispatcherv1.Build
	// hints go to whoever watches; nil is a dispatcher that has none.
	hints chan string
	// session is the state of every session; living when it is not said. conversation is the one on record for it, empty for none.
	session      dispatcherv1.SessionState
	conversation string
	// harness is the one on record for every session.
	harness string
	// kept says why a working tree stays; empty lets it go.
	kept string
	// orders are what people ordered, in order, and silent is true while those are not answered.
	orders []string
	silent bool
	// runs are those of teams, by the order that began them.
	runs   map[string]string
	pauses map[string]*dispatcherv1.Pause
}

func (d *dispatcher) ListSessions(_ context.Context, r *dispatcherv1.ListSessionsRequest) (*dispatcherv1.ListSessionsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := cmp.Or(d.session, dispatcherv1.SessionState_SESSION_STATE_LIVE)
	if r.GetSkipProbe() {
		state = dispatcherv1.SessionState_SESSION_STATE_UNSPECIFIED
	}
	session := &dispatcherv1.Session{WorkItem: r.GetWorkItem(), State: state, ConversationId: d.conversation, Harness: d.harness}
	return &dispatcherv1.ListSessionsResponse{Sessions: []*dispatcherv1.Session{session}}, nil
}

func (d *dispatcher) Reopen(_ context.Context, r *dispatcherv1.ReopenRequest) (*dispatcherv1.ReopenResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reopened = append(d.reopened, r.GetDeliveryId()+" "+r.GetWho())
	if d.occupied && r.GetIfFree() {
		return &dispatcherv1.ReopenResponse{Delivery: &dispatcherv1.Delivery{Outcome: dispatcherv1.Outcome_OUTCOME_DROPPED}}, d.refusal
	}
	return &dispatcherv1.ReopenResponse{Reopened: true}, d.refusal
}

func (d *dispatcher) Info(ctx context.Context, r *dispatcherv1.InfoRequest) (*dispatcherv1.InfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.builds == nil {
		return d.UnimplementedDispatcherServiceServer.Info(ctx, r)
	}
	return &dispatcherv1.InfoResponse{Builds: d.builds}, nil
}

func (d *dispatcher) WatchSessions(r *dispatcherv1.WatchSessionsRequest, stream grpc.ServerStreamingServer[dispatcherv1.WatchSessionsResponse]) error {
	if d.hints == nil {
		return d.UnimplementedDispatcherServiceServer.WatchSessions(r, stream)
	}
	for {
		select {
		case item := <-d.hints:
			if err := stream.Send(&dispatcherv1.WatchSessionsResponse{WorkItem: item}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (d *dispatcher) Deliver(_ context.Context, r *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r)
	out, err := outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), error(nil)
	if d.answer != nil {
		out, err = d.answer(r)
	}
	if out != nil {
		out.Builds = d.builds
	}
	return out, err
}

func (d *dispatcher) requests() []*dispatcherv1.DeliverRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

func outcome(o dispatcherv1.Outcome, reason string, again time.Duration) *dispatcherv1.DeliverResponse {
	return &dispatcherv1.DeliverResponse{
		Delivery: &dispatcherv1.Delivery{Outcome: o, Reason: reason, Detail: "explained", Remedy: "do this"}, LookAgain: durationpb.New(again),
	}
}

// world is a poller's surroundings, all of them real but GitHub and the dispatcher's decisions.
type world struct {
	*fakegithub.Server
	clock      *clock
	dispatcher *dispatcher
	url        string // GitHub's
	database   string
	address    string // the dispatcher's
	dir        string
	config     string // the configuration file
	host       string // in names of work items
}

const standard = `
    repositories: [acme/widgets]
    label: agent
    authors: [Alice]
    interval: 1s
`

// newWorld serves acme/widgets; source is the rest of the source's configuration.
func newWorld(t *testing.T, source string) *world {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	w := &world{clock: &clock{now: time.Now()}, dispatcher: &dispatcher{}, dir: t.TempDir(), database: dbtest.NewURL(t)}
	w.Server = fakegithub.New(fakegithub.Config{Tokens: map[string]string{"tok": "reader"}, RequireToken: true, Now: w.clock.Now})
	must(t, w.AddRepo(fakegithub.Repo{Owner: "Acme", Name: "Widgets", Associations: map[string]string{
		"alice": fakegithub.Collaborator, "mallory": fakegithub.Owner, // an association is not what counts
	}}))
	server := httptest.NewServer(w.Server)
	t.Cleanup(func() { w.Close(); server.Close() })
	w.url, w.host = server.URL, strings.TrimPrefix(server.URL, "http://")
	grpcServer := rpc.NewServer(rpc.Options{})
	dispatcherv1.RegisterDispatcherServiceServer(grpcServer, w.dispatcher)
	teamv1.RegisterTeamServiceServer(grpcServer, itemTeams{d: w.dispatcher})
	w.address = rpctest.Serve(t, grpcServer)
	must(t, os.WriteFile(filepath.Join(w.dir, "token"), []byte("tok\n"), 0o600))
	w.configure(t, source)
	return w
}

func (w *world) configure(t *testing.T, source string) {
	t.Helper()
	w.config = filepath.Join(w.dir, "muxpost.yaml")
	must(t, os.WriteFile(w.config, fmt.Appendf(nil, `poller:
  listen: 127.0.0.1:0
  data_dir: %s
  database_url: %q
  dispatcher: %s
  workers: 4
  sources:
  - name: gh
    kind: github
    base_url: %s
    token_file: token
%s`, w.dir, w.database, w.address, w.url, strings.Trim(source, "\n")), 0o600))
}

// where is the poller's surroundings: nothing but the file says anything.
func (w *world) where() settings.Where {
	return settings.Where{Getenv: func(string) string { return "" }}
}

// open assembles a poller that runs nothing by itself.
func (w *world) open(t *testing.T) *parts {
	t.Helper()
	return w.release(t, "v1")
}

// release assembles a poller of a release.
func (w *world) release(t *testing.T, name string) *parts {
	t.Helper()
	return w.build(t, version.Info{Version: name})
}

// build assembles a poller as a build.
func (w *world) build(t *testing.T, info version.Info) *parts {
	t.Helper()
	where := w.where()
	where.File = w.config
	c, err := settings.LoadService(where, layout.Poller)
	must(t, err)
	p, err := assemble(t.Context(), c, buildOf(info), &bytes.Buffer{})
	must(t, err)
	t.Cleanup(func() { p.close(context.Background()) })
	return p
}

// look looks once, and the look must succeed.
func look(t *testing.T, p *parts) poll.Result {
	t.Helper()
	r := tryLook(t, p)
	must(t, r.Err)
	return r
}

func tryLook(t *testing.T, p *parts) poll.Result {
	t.Helper()
	r, err := p.poller.LookNow(t.Context(), "gh")
	must(t, err)
	return r
}

// rows returns the ledger, oldest first, each as "kind author state reason".
func rows(t *testing.T, p *parts) []string {
	t.Helper()
	var out []string
	for _, e := range entries(t, p) {
		out = append(out, strings.TrimSpace(strings.Join([]string{e.Kind, e.Author, e.State.String(), e.Reason}, " ")))
	}
	return out
}

// counts returns how many events are in each state.
func counts(t *testing.T, p *parts) map[ledger.State]int64 {
	t.Helper()
	all, err := p.store.Count(t.Context(), poll.Filter{})
	must(t, err)
	out := map[ledger.State]int64{}
	for _, c := range all {
		out[c.State] += c.Events
	}
	return out
}

func entries(t *testing.T, p *parts) []poll.Entry {
	t.Helper()
	all, err := p.store.List(t.Context(), poll.Filter{Limit: 10_000})
	must(t, err)
	slices.Reverse(all)
	return all
}

// texts returns the texts of the events that wait, in the order in which they would go out, and ends them.
func texts(t *testing.T, p *parts) []string {
	t.Helper()
	var out []string
	for {
		claims, err := p.store.Claim(t.Context(), 1)
		must(t, err)
		if len(claims) == 0 {
			return out
		}
		out = append(out, claims[0].Text)
		_, _, err = p.store.Finish(t.Context(), claims[0], forward.Outcome{}, func(pr ledger.Progress, now time.Time) ledger.Progress {
			return ledger.Apply(pr, ledger.Arrived, "", 0, now, 0)
		})
		must(t, err)
	}
}

func (w *world) issue(t *testing.T, is fakegithub.Issue) int {
	t.Helper()
	n, err := w.AddIssue("acme", "widgets", is)
	must(t, err)
	return n
}

// labelled adds an issue by an author, with the label.
func (w *world) labelled(t *testing.T, author string) int {
	t.Helper()
	return w.issue(t, fakegithub.Issue{Title: "Paint it", Author: author, Body: "Please paint it blue.", Labels: []string{"agent"}})
}

func (w *world) comment(t *testing.T, n int, author, body string) int64 {
	t.Helper()
	id, err := w.AddComment("acme", "widgets", n, fakegithub.Comment{Author: author, Body: body})
	must(t, err)
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ref(t *testing.T, text string) workitem.Ref {
	t.Helper()
	r, err := workitem.Parse(text)
	must(t, err)
	return r
}

// keyOf reads a natural key back.
func keyOf(t *testing.T, text string) ledger.Key {
	t.Helper()
	part := strings.Split(text, "|")
	k := ledger.Key{Provider: part[0], Host: part[1], Kind: part[2], ObjectID: part[3], Revision: part[4]}
	equal(t, "key", k.String(), text)
	return k
}

// looked reports whether a look has read what it begins with: pull requests are listed after the issues.
func (w *world) looked() bool { return w.Counts()["GET /repos/acme/widgets/pulls"].Requests > 0 }
