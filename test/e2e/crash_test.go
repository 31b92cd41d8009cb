package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/internal/failpoint"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// crashing is a stack whose services can be made to die at named places.
type crashing struct {
	*world
	pool *pgxpool.Pool
	// env is the environment without a place to die at.
	env []string
	// patience is how long something may take that is waited for.
	patience time.Duration
	// idle leaves everything to time: leases end and events are looked at again when their time comes, and not earlier.
	idle bool
	// tries is how many an event may have spent.
	tries int32
	// all are the items that were found as they should be, and are judged once more in the end.
	all *[]judged
}

// crashStack brings one up that watches an empty repository. Turns of its agents are short, because a test waits for them. change may
// change its configuration before that, and may be nil.
func crashStack(t *testing.T, limit time.Duration, change func(*world)) *crashing {
	t.Helper()
	return crashStackOf(t, &mortal, limit, change)
}

// crashStackOf is crashStack with other programs.
func crashStackOf(t *testing.T, b *build, limit time.Duration, change func(*world)) *crashing {
	t.Helper()
	seed := fakegithub.Seed{Repos: []fakegithub.Repo{{
		Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"},
	}}}
	c := &crashing{env: []string{"FAKEAGENT_TURN=100ms"}, patience: 30 * time.Second, all: &[]judged{}}
	c.world = startBuild(t, b, limit, seed, func(w *world) {
		w.Env = c.env
		if change != nil {
			change(w)
		}
	})
	c.pool = c.connect()
	return c
}

// connect returns a pool on the stack's database.
func (c *crashing) connect() *pgxpool.Pool {
	c.t.Helper()
	pool, err := pgxpool.New(c.ctx, c.databaseURL())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(pool.Close)
	return pool
}

// on reports failures to a subtest.
func (c *crashing) on(t *testing.T) *crashing {
	w, sub := *c.world, *c
	w.t, sub.world = t, &w
	return &sub
}

func (c *crashing) up() {
	c.t.Helper()
	if out, err := c.Run(c.ctx, "up"); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

// gone reports whether a process has ended, with all its threads: until then it keeps its files and sockets.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err != nil || len(tasks) <= 1 && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

// arm starts a service again, so that it ends at a place ("=kill") or stops there ("=stop"). It returns the marker of that.
func (c *crashing) arm(place string) (marker string) {
	c.t.Helper()
	service, _, _ := strings.Cut(place, ".")
	marker = filepath.Join(c.Dir, "failpoint-"+random())
	c.stop(service)
	c.Env = append(slices.Clone(c.env), failpoint.Variable+"="+place, failpoint.OnceVariable+"="+marker)
	c.up()
	c.Env = c.env
	return marker
}

// stop ends a service as an operator would.
func (c *crashing) stop(service string) {
	c.t.Helper()
	pid := c.pid(service)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	c.until("the "+service+" has ended", func() bool { return gone(pid) })
}

// kill ends a service at whatever it does.
func (c *crashing) kill(service string) {
	c.t.Helper()
	pid := c.pid(service)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	c.until("the "+service+" is dead", func() bool { return gone(pid) })
}

func random() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

// reached waits until the place was passed, proves that it was the service which passed it, and returns its process.
func (c *crashing) reached(marker, service string) int {
	c.t.Helper()
	var pid int
	c.soon("the place was passed", func() bool {
		data, err := os.ReadFile(marker)
		if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	if pid != c.pid(service) {
		c.t.Fatalf("process %d passed the place, and the %s is %d", pid, service, c.pid(service))
	}
	return pid
}

// died waits for the end of a service at its place. What it held is held by nobody then: its leases are ended, as time would.
func (c *crashing) died(marker, service string) {
	c.t.Helper()
	pid := c.reached(marker, service)
	c.until("the "+service+" is dead", func() bool { return gone(pid) })
	c.endLeases(service)
}

// endLeases ends the leases of a service that is dead. The test does not wait half a minute for each.
func (c *crashing) endLeases(service string) {
	c.t.Helper()
	if c.idle || service == "tmuxd" {
		return
	}
	// A statement that it sent may still run, and take one.
	c.until("the database has dropped its connections", func() bool {
		var n int
		err := c.pool.QueryRow(c.ctx, `select count(*) from pg_stat_activity where application_name = $1`, "muxpost-"+service).Scan(&n)
		return err == nil && n == 0
	})
	statements := map[string][]string{
		"dispatcher": {`update dispatcher.leases set until = clock_timestamp() where holder <> ''`},
		"poller": {`update poller.events set lease_until = clock_timestamp() where state = 'leased'`,
			`update poller.sources set lease_until = clock_timestamp() where lease_until is not null`},
	}
	for _, statement := range statements[service] {
		if _, err := c.pool.Exec(c.ctx, statement); err != nil {
			c.t.Fatal(err)
		}
	}
}

// soon is until for what must come within the patience, and has waiting events looked at now rather than when their time comes.
func (c *crashing) soon(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(c.patience)
	for hurry := time.Now(); !ok(); {
		if now := time.Now(); now.After(deadline) || c.ctx.Err() != nil {
			c.t.Fatalf("waited in vain until %s", what)
		} else if !c.idle && now.After(hurry) {
			hurry = now.Add(500 * time.Millisecond)
			// While the database is away there is nothing to hurry.
			_, _ = c.pool.Exec(c.ctx, `update poller.events set next_look = clock_timestamp() where state in ('pending', 'held')
				and next_look > clock_timestamp()`)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// pollNow has the source read. The poller may be about to die of it.
func (c *crashing) pollNow() {
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	_, _ = c.Poller.PollNow(ctx, &pollerv1.PollNowRequest{})
}

// say writes a comment on an item upstream.
func (c *crashing) say(number int, body string) {
	c.t.Helper()
	if err := c.Comment(c.ctx, stack.Author, number, body); err != nil {
		c.t.Fatal(err)
	}
}

// open opens an issue upstream.
func (c *crashing) open() int {
	c.t.Helper()
	n, err := c.Open(c.ctx, stack.Author, "The build is red")
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// ended waits until an item has so many events and all have ended, and expects them delivered. It returns them in upstream order.
func (c *crashing) ended(number, count int) []*pollerv1.LedgerEntry {
	c.t.Helper()
	var rows []*pollerv1.LedgerEntry
	defer func() {
		if c.t.Failed() {
			screen, err := c.Screen(c.ctx, stack.Item(number))
			c.t.Logf("the ledger of %s: %v\nits agent shows (%v):\n%s", stack.Item(number), rows, err, screen)
		}
	}()
	c.soon(fmt.Sprintf("%d events of %s ended", count, stack.Item(number)), func() bool {
		found, err := c.Events(c.ctx, stack.Item(number))
		if err != nil {
			return false
		}
		rows = found
		return len(rows) >= count && !slices.ContainsFunc(rows, func(r *pollerv1.LedgerEntry) bool { return waits(r.GetState()) })
	})
	for _, r := range rows {
		if r.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED || r.GetTries() > c.tries {
			c.t.Errorf("an event ended as %v after %d tries: %s %s", r.GetState(), r.GetTries(), r.GetReason(), r.GetDetail())
		}
	}
	return rows
}

func waits(s pollerv1.LedgerState) bool {
	return slices.Contains([]pollerv1.LedgerState{pollerv1.LedgerState_LEDGER_STATE_PENDING, pollerv1.LedgerState_LEDGER_STATE_LEASED,
		pollerv1.LedgerState_LEDGER_STATE_HELD}, s)
}

// session is what the dispatcher has recorded of an item.
func (c *crashing) session(number int) *dispatcherv1.Session {
	c.t.Helper()
	s, err := c.Session(c.ctx, stack.Item(number))
	if err != nil || s == nil {
		c.t.Fatalf("no session of %s is recorded: %v", stack.Item(number), err)
	}
	return s
}

func (c *crashing) stateOf(number int) *tmuxdv1.SessionStateResponse {
	c.t.Helper()
	st, err := c.Tmuxd.SessionState(c.ctx, &tmuxdv1.SessionStateRequest{WorkItem: stack.Item(number)})
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}
