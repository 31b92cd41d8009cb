// Package e2e tests the product as it ships: the real programs, started by `muxpost up`, with a real tmux, a real Postgres and real HTTP.
// What arrived is judged by the agent's own record.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/internal/needs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// build is a set of programs, built once a test run if a test asks for it.
type build struct {
	tags string
	once sync.Once
	dir  string
	err  error
}

var (
	// shipped are the programs as they ship.
	shipped build
	// mortal are the same, but can be made to die at named places.
	mortal = build{tags: "failpoints"}
)

// programs returns the directory of the programs as they ship.
func programs() (string, error) { return shipped.make() }

// packages are those of the programs, by what is built of each.
func packages() map[string]string {
	const module = "muxpost.dev/muxpost/"
	return map[string]string{
		"": module + "cmd/...", "fakeagent": module + "test/fakeagent", "fakegithub": module + "test/fakegithub/cmd/fakegithub",
		"muxpost-tmuxd": module + "services/tmuxd", "muxpost-dispatcher": module + "services/dispatcher", "muxpost-poller": module + "services/poller",
	}
}

// make returns the directory of the programs.
func (b *build) make() (string, error) {
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "muxpost-bin"); b.err != nil {
			return
		}
		for out, pkg := range packages() {
			if text, err := exec.Command("go", "build", "-tags", b.tags, "-o", filepath.Join(b.dir, out), pkg).CombinedOutput(); err != nil {
				b.err = fmt.Errorf("cannot build %s: %w\n%s", pkg, err, text)
				return
			}
		}
	})
	return b.dir, b.err
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, b := range []*build{&shipped, &mortal} {
		b.once.Do(func() {}) // nobody asked
		if b.dir != "" {
			os.RemoveAll(b.dir)
		}
	}
	os.Exit(code)
}

// world is a stack under test.
type world struct {
	*stack.Stack
	t   *testing.T
	ctx context.Context
}

const number = 7

var item = stack.Item(number)

func issue() fakegithub.Seed {
	return fakegithub.Seed{Repos: []fakegithub.Repo{{
		Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"},
		Issues: []fakegithub.Issue{{Number: number, Title: "The build is red", Author: stack.Author, Labels: []string{stack.Label}, Body: "Please fix it."}},
	}}}
}

// start brings a stack up. change may change its configuration or environment before that.
func start(t *testing.T, seed fakegithub.Seed, change func(*world)) *world {
	t.Helper()
	return startBuild(t, &shipped, 2*time.Minute, seed, change)
}

// startBuild is start with other programs, and with the time that the test may take.
func startBuild(t *testing.T, b *build, limit time.Duration, seed fakegithub.Seed, change func(*world)) *world {
	t.Helper()
	needs.Program(t, "tmux")
	bin, err := b.make()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	var out bytes.Buffer
	s, err := stack.New(ctx, bin, seed, &out)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Stack: s, t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			w.showLogs()
		}
		s.Close(ctx)
	})
	if change != nil {
		change(w)
	}
	if err := s.Up(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return w
}

// showLogs prints the end of each service's log after a failure.
func (w *world) showLogs() {
	files, _ := filepath.Glob(filepath.Join(w.Dir, "log", "*.log"))
	for _, f := range files {
		data, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		w.t.Logf("%s:\n%s", filepath.Base(f), strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// configure replaces a part of the configuration.
func (w *world) configure(old, new string) {
	w.t.Helper()
	data, err := os.ReadFile(w.ConfigFile())
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		w.t.Fatalf("the configuration has no %q:\n%s", old, data)
	}
	if err := os.WriteFile(w.ConfigFile(), []byte(strings.Replace(string(data), old, new, 1)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// delivered waits for the nth event of the item, and expects it delivered.
func (w *world) delivered(n int) (*pollerv1.LedgerEntry, *dispatcherv1.Delivery) {
	w.t.Helper()
	row, err := w.WaitEvent(w.ctx, item, n)
	if err != nil {
		w.t.Fatal(err)
	}
	if row.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
		w.t.Fatalf("event %d ended as %v: %s %s", n, row.GetState(), row.GetReason(), row.GetDetail())
	}
	res, err := w.Dispatcher.GetDelivery(w.ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: row.GetDeliveryId()})
	if err != nil {
		w.t.Fatal(err)
	}
	return row, res.GetDelivery()
}

func (w *world) comment(login, body string) {
	w.t.Helper()
	if err := w.Comment(w.ctx, login, number, body); err != nil {
		w.t.Fatal(err)
	}
}

// took expects the agent to have recorded these deliveries, each once and in order, and nothing else.
func (w *world) took(conversation string, ids ...string) {
	w.t.Helper()
	texts, err := w.Conversation(conversation).Texts("user")
	if err != nil {
		w.t.Fatal(err)
	}
	if len(texts) != len(ids) {
		w.t.Fatalf("the agent recorded %d messages, not %d:\n%s", len(texts), len(ids), strings.Join(texts, "\n---\n"))
	}
	for i, id := range ids {
		if !strings.HasPrefix(texts[i], prompt.Mark(id)+"\n") {
			w.t.Errorf("message %d is not delivery %s:\n%s", i, id, texts[i])
		}
	}
}

func (w *world) state() *tmuxdv1.SessionStateResponse {
	w.t.Helper()
	st, err := w.Tmuxd.SessionState(w.ctx, &tmuxdv1.SessionStateRequest{WorkItem: item})
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for !ok() {
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("waited in vain until %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// events are the types of the dispatcher's events about the item, in order.
func (w *world) events() []string {
	w.t.Helper()
	res, err := w.Dispatcher.ListEvents(w.ctx, &dispatcherv1.ListEventsRequest{WorkItem: item, PageSize: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	var types []string
	for _, e := range res.GetEvents() {
		types = append(types, e.GetType())
	}
	return types
}
