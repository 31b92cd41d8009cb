package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// fenced is a real tmuxd with real agents, and a database of its own, for as many dispatchers as a test starts.
type fenced struct {
	t        *testing.T
	bin, dir string
	url      string
	pool     *pgxpool.Pool
	process  *exec.Cmd
	host     tmuxdv1.TmuxdServiceClient
}

// programs builds tmuxd, the wrapper and the bundled agent.
func programs(t *testing.T) (dir string) {
	t.Helper()
	for _, needed := range []string{"tmux", "go"} {
		needs.Program(t, needed)
	}
	dir = t.TempDir()
	for name, pkg := range map[string]string{"muxpost-tmuxd": "services/tmuxd", "muxpost-exec": "cmd/muxpost-exec", "fakeagent": "test/fakeagent"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "muxpost.dev/muxpost/"+pkg).CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

func newFenced(t *testing.T, bin string) *fenced {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	f := &fenced{t: t, bin: bin, dir: dir, url: dbtest.NewURL(t)}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if f.pool, err = db.Open(t.Context(), db.Config{URL: f.url, AppName: t.Name()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.pool.Close)
	config := fmt.Sprintf("tmuxd: {listen: %[1]q, host: a, make_directory: true}\ndispatcher:\n  listen: 127.0.0.1:0\n  harness: fakeagent\n"+
		"  host: {name: a, address: %[1]q}\n", f.address())
	if err := os.WriteFile(f.config(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f.host = tmuxdv1.NewTmuxdServiceClient(rpctest.Dial(t, f.address(), rpc.DialOptions{Name: "the host"}))
	t.Cleanup(f.endAgents)
	f.up()
	t.Cleanup(func() { f.down(syscall.SIGTERM) })
	return f
}

func (f *fenced) address() string { return "unix:" + filepath.Join(f.dir, "tmuxd.sock") }
func (f *fenced) config() string  { return filepath.Join(f.dir, "muxpost.yaml") }

// up starts tmuxd and waits until it answers.
func (f *fenced) up() {
	f.t.Helper()
	log, err := os.OpenFile(filepath.Join(f.dir, "tmuxd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	f.process = exec.Command(filepath.Join(f.bin, "muxpost-tmuxd"), "--config", f.config(), "--data-dir", f.dir)
	f.process.Stderr = log
	f.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := f.process.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.until("tmuxd answers", func() bool {
		_, err := f.host.Info(f.t.Context(), &tmuxdv1.InfoRequest{})
		return err == nil
	})
}

// down ends tmuxd by a signal; its agents live on.
func (f *fenced) down(sig syscall.Signal) {
	_ = f.process.Process.Signal(sig)
	_ = f.process.Wait()
}

// endAgents ends the tmux servers of this host, by the pids that tmuxd remembers, and waits until the agents' processes are gone: they
// write until they end.
func (f *fenced) endAgents() {
	files, _ := filepath.Glob(filepath.Join(f.dir, "tmuxd", "sessions", "*.json"))
	for _, file := range files {
		var memory struct {
			Server  struct{ Pid int }
			PanePid int
		}
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &memory) != nil || memory.Server.Pid <= 0 {
			continue
		}
		if !bytes.Contains(commandLine(memory.Server.Pid), []byte(f.dir)) {
			continue
		}
		// Told to end, a server would wait for a control client whose tmuxd was killed.
		_ = syscall.Kill(memory.Server.Pid, syscall.SIGKILL)
		for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
			if len(commandLine(memory.Server.Pid)) == 0 && len(commandLine(memory.PanePid)) == 0 {
				break
			}
		}
	}
}

// commandLine is that of a process; one that ended has none.
func commandLine(pid int) []byte {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return line
}

func (f *fenced) until(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(f.dir, "tmuxd.log"))
			f.t.Fatalf("waited in vain until %s\n%s", what, log)
		}
	}
}

// dispatcher runs one more dispatcher on the database and the host, until the test ends.
func (f *fenced) dispatcher() dispatcherv1.DispatcherServiceClient {
	f.t.Helper()
	log := &logLines{ready: make(chan string, 1)}
	reader, writer := io.Pipe()
	go log.read(reader)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- start(ctx, []string{"--config", f.config(), "--data-dir", f.dir}, at("", "MUXPOST_DATABASE_URL", f.url), io.Discard, writer)
	}()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("the service ended with %v", err)
		}
		_ = writer.Close()
		if f.t.Failed() {
			f.t.Log(log)
		}
	})
	select {
	case addr := <-log.ready:
		return dispatcherv1.NewDispatcherServiceClient(rpctest.Dial(f.t, addr, rpc.DialOptions{Name: "the dispatcher"}))
	case err := <-done:
		done <- err
		f.t.Fatalf("the service did not start: %v", err)
		return nil
	}
}

func request(id string) *dispatcherv1.DeliverRequest {
	return &dispatcherv1.DeliverRequest{DeliveryId: id, WorkItem: item, Kind: dispatcherv1.EventKind_EVENT_KIND_COMMENT, Text: "this is " + id}
}

// ask asks for a delivery once.
func (f *fenced) ask(d dispatcherv1.DispatcherServiceClient, id string) *dispatcherv1.Delivery {
	f.t.Helper()
	answer, err := d.Deliver(f.t.Context(), request(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return answer.GetDelivery()
}

// delivered asks for a delivery until it is in the conversation, as the poller does.
func (f *fenced) delivered(d dispatcherv1.DispatcherServiceClient, id string) (conversation string) {
	f.t.Helper()
	var last *dispatcherv1.Delivery
	f.until(id+" is delivered", func() bool {
		last = f.ask(d, id)
		if o := last.GetOutcome(); o == dispatcherv1.Outcome_OUTCOME_DROPPED || o == dispatcherv1.Outcome_OUTCOME_UNCONFIRMED {
			f.t.Fatalf("%v", last)
		}
		return last.GetOutcome() == dispatcherv1.Outcome_OUTCOME_DELIVERED
	})
	return last.GetConversationId()
}

// took expects the agent's own record to hold exactly these deliveries, each once, in order.
func (f *fenced) took(conversation string, ids ...string) {
	f.t.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, prompt.Typed(id, "this is "+id))
	}
	c := agenttest.Conversation{Home: filepath.Join(f.dir, "tmuxd", "harness", "fakeagent"), Session: conversation}
	c.WaitUser(f.t, 20*time.Second, want...)
}

func (f *fenced) info() *tmuxdv1.InfoResponse {
	f.t.Helper()
	info, err := f.host.Info(f.t.Context(), &tmuxdv1.InfoRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// sql changes the database behind the dispatchers' backs.
func (f *fenced) sql(statement string) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), statement); err != nil {
		f.t.Fatal(err)
	}
}

// past expects an act under a token to be refused by the host's floor, at the item and at one that the host never saw.
func (f *fenced) past(token int64) {
	f.t.Helper()
	for _, at := range []string{item, "github:octo/widget#8"} {
		_, paste := f.host.Paste(f.t.Context(), &tmuxdv1.PasteRequest{WorkItem: at, DeliveryId: "delivery-old", Text: "from the past", FencingToken: token})
		_, spawn := f.host.Spawn(f.t.Context(), &tmuxdv1.SpawnRequest{WorkItem: at, Harness: "fakeagent", FencingToken: token,
			Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}})
		for act, err := range map[string]error{"paste": paste, "spawn": spawn} {
			if !errors.Is(err, fault.Fenced) || !strings.Contains(err.Error(), "floor of this host") {
				f.t.Errorf("%s under %d at %s: %v", act, token, at, err)
			}
		}
	}
}

func TestFloor_OnARealHostAndDatabase(t *testing.T) {
	t.Parallel()
	bin := programs(t)
	for name, test := range map[string]func(*fenced){
		"a restored database cannot reopen the past":                floorAfterARestore,
		"a floor that was lost comes back":                          floorAfterALoss,
		"a lease under way is refused, and taken anew":              floorOverALease,
		"dispatchers that meet a host at once harm nobody":          floorByMany,
		"a dispatcher that takes over refuses what was there first": floorOfATakeover,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFenced(t, bin))
		})
	}
}

func floorAfterARestore(f *fenced) {
	d := f.dispatcher()
	f.delivered(d, "delivery-1")
	f.sql("select setval('dispatcher.fencing_token', 500)")
	conversation := f.delivered(d, "delivery-2")
	seen := f.info().GetHighestFencingToken()
	if seen <= 500 {
		f.t.Fatalf("the host has seen %d", seen)
	}
	// While the connection stands, the host's refusal is what tells that the sequence went back.
	f.sql("select setval('dispatcher.fencing_token', 3)")
	f.delivered(d, "delivery-3")
	// With a new connection comes a new floor, from a sequence that was raised above all that the host has seen.
	f.sql("select setval('dispatcher.fencing_token', 3)")
	f.down(syscall.SIGKILL)
	f.up()
	f.until("the host has a new floor", func() bool { return f.info().GetFencingFloor() > seen })
	f.past(400)
	f.past(f.info().GetFencingFloor() - 1)
	f.delivered(d, "delivery-4")
	f.took(conversation, "delivery-1", "delivery-2", "delivery-3", "delivery-4")
}

func floorAfterALoss(f *fenced) {
	d := f.dispatcher()
	conversation := f.delivered(d, "delivery-1")
	before := f.info()
	f.down(syscall.SIGKILL)
	for _, file := range []string{"floor.json", "token.json"} {
		if err := os.Remove(filepath.Join(f.dir, "tmuxd", file)); err != nil {
			f.t.Fatal(err)
		}
	}
	f.up()
	f.until("the host has a floor again", func() bool { return f.info().GetFencingFloor() > before.GetHighestFencingToken() })
	f.past(before.GetHighestFencingToken())
	f.delivered(d, "delivery-2")
	f.took(conversation, "delivery-1", "delivery-2")
}

func floorOverALease(f *fenced) {
	first := f.dispatcher()
	conversation := f.delivered(first, "delivery-1")
	// A lock holds the delivery between its lease and its paste.
	tx, err := f.pool.Begin(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(f.t.Context(), "lock table dispatcher.sessions in access exclusive mode"); err != nil {
		f.t.Fatal(err)
	}
	answered := make(chan *dispatcherv1.Delivery, 1)
	go func() {
		answer, err := first.Deliver(context.WithoutCancel(f.t.Context()), request("delivery-2"))
		if err != nil {
			f.t.Error(err)
		}
		answered <- answer.GetDelivery()
	}()
	var token int64
	f.until("the delivery has its lease", func() bool {
		return f.pool.QueryRow(f.t.Context(), "select token from dispatcher.leases where holder <> ''").Scan(&token) == nil
	})
	second := f.dispatcher()
	if floor := f.info().GetFencingFloor(); floor <= token {
		f.t.Fatalf("the second dispatcher gave the floor %d, and the lease has %d", floor, token)
	}
	if err := tx.Rollback(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	// It is refused under its own lease, and goes on under a new one within the same call.
	if got := <-answered; got.GetOutcome() != dispatcherv1.Outcome_OUTCOME_DELIVERED && got.GetReason() != "busy" {
		f.t.Errorf("under the older token: %v", got)
	}
	var after int64
	if err := f.pool.QueryRow(f.t.Context(), "select token from dispatcher.leases").Scan(&after); err != nil || after <= token {
		f.t.Errorf("the lease has the token %d after %d, %v", after, token, err)
	}
	f.delivered(first, "delivery-2")
	f.delivered(second, "delivery-3")
	f.took(conversation, "delivery-1", "delivery-2", "delivery-3")
}

func floorByMany(f *fenced) {
	f.down(syscall.SIGKILL)
	var all []dispatcherv1.DispatcherServiceClient
	for range 3 {
		all = append(all, f.dispatcher())
	}
	f.up()
	var conversation string
	var ids []string
	for i := range 6 {
		ids = append(ids, fmt.Sprintf("delivery-%d", i))
		conversation = f.delivered(all[i%len(all)], ids[i])
	}
	f.took(conversation, ids...)
}

func floorOfATakeover(f *fenced) {
	conversation := f.delivered(f.dispatcher(), "delivery-1")
	before := f.info()
	second := f.dispatcher()
	if floor := f.info().GetFencingFloor(); floor <= before.GetHighestFencingToken() {
		f.t.Errorf("the floor is %d, and %d was seen", floor, before.GetHighestFencingToken())
	}
	f.past(before.GetHighestFencingToken())
	f.delivered(second, "delivery-2")
	f.took(conversation, "delivery-1", "delivery-2")
}
