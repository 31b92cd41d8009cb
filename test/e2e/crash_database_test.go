package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/needs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// postmaster is the process of the local Postgres.
func (c *crashing) postmaster() int {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil || pid < 2 {
		c.t.Fatalf("the postmaster's file begins with %q", line)
	}
	return pid
}

// The database dies while the dispatcher knows what came of an act and has not recorded it.
func TestCrash_Postgres(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 3*time.Minute, nil)
	c.patience, c.idle = 90*time.Second, true // those who hold leases live here
	number := 0
	for _, place := range []string{"dispatcher.spawn.answered", "dispatcher.paste.answered"} {
		marker := c.arm(place + "=stop")
		if number == 0 {
			number = c.open()
		} else {
			c.say(number, "The database is about to die.")
			c.say(number, "And this comes after it.")
		}
		c.pollNow()
		pid := c.reached(marker, "dispatcher")
		postmaster := c.postmaster()
		if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.until("the postmaster is dead", func() bool { return gone(postmaster) })
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.up()
		if c.postmaster() == postmaster {
			t.Error("the database was not started again")
		}
		if c.pid("dispatcher") != pid {
			t.Error("the dispatcher did not outlive the database")
		}
		c.ended(number, 1)
	}
	c.judge(number, c.session(number).GetConversationId(), c.ended(number, 3))
}

// postgres runs one of Postgres's own programs on the stack's database.
func (c *crashing) postgres(program, url string, args ...string) {
	c.t.Helper()
	if out, err := c.tryPostgres(program, url, args...); err != nil {
		c.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// restore brings the database back while the services use it. The tables that are replaced are locked in another order than a service locks
// them, so Postgres may have to call one of the two off: then nothing was changed, and it is done again.
func (c *crashing) restore(url, backup string) {
	c.t.Helper()
	for range 20 {
		out, err := c.tryPostgres("psql", url, "--single-transaction", "-v", "ON_ERROR_STOP=1", "-q", "-f", backup)
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "deadlock detected") {
			c.t.Fatalf("psql: %v\n%s", err, out)
		}
	}
	c.t.Fatal("the restore met a deadlock each time")
}

func (c *crashing) tryPostgres(program, url string, args ...string) ([]byte, error) {
	c.t.Helper()
	found, err := local.Find()
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(found.Dir, program)
	if _, err := os.Stat(path); err != nil {
		needs.Unmet(c.t, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, path, append(args, "-d", url)...).CombinedOutput()
}

// The database goes back to what it was before a delivery: the event is found again, asked about under the same id, and not typed again.
func TestCrash_Restore(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"WhileNothingRuns": false, "UnderThem": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crashStack(t, 2*time.Minute, nil)
			number := c.open()
			c.pollNow()
			c.ended(number, 1)
			conversation := c.session(number).GetConversationId()
			backup := filepath.Join(c.Dir, "backup.sql")
			c.postgres("pg_dump", c.databaseURL(), "--clean", "--if-exists", "-f", backup)
			for range 3 {
				c.say(number, "This is delivered after the backup.")
			}
			c.pollNow()
			before := c.ended(number, 4)
			url := c.databaseURL()
			if !running {
				c.stop("poller")
				c.stop("dispatcher")
			}
			c.restore(url, backup)
			c.up()
			c.pollNow()
			after := c.ended(number, 4)
			for i, row := range after[1:] {
				was := before[i+1]
				if row.GetDeliveryId() != was.GetDeliveryId() || !row.GetCreateTime().AsTime().After(was.GetCreateTime().AsTime()) {
					t.Errorf("an event was %v, and after the restore it is %v", was, row)
				}
				d, err := c.Dispatcher.GetDelivery(c.ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: row.GetDeliveryId()})
				if err != nil || d.GetDelivery().GetHow() != dispatcherv1.How_HOW_ALREADY {
					t.Errorf("after the restore: %v %v", d, err)
				}
			}
			c.judge(number, conversation, after)
			// The host takes new deliveries, of this item and of others.
			c.say(number, "And this is new.")
			other := c.open()
			c.pollNow()
			c.judge(number, conversation, c.ended(number, 5))
			rows := c.ended(other, 1)
			c.judge(other, c.session(other).GetConversationId(), rows)
		})
	}
}

// The database goes back while events of several items are on their way: some recorded as delivered, some being typed, some waiting.
func TestCrash_RestoreUnderLoad(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 3*time.Minute, nil)
	c.patience, c.tries = time.Minute, 2 // the statement of a delivery may be refused by the tables that are being replaced
	const items, events = 6, 5
	numbers := make([]int, items)
	for i := range numbers {
		numbers[i] = c.open()
	}
	c.pollNow()
	conversations := map[int]string{}
	for _, n := range numbers {
		c.ended(n, 1)
		conversations[n] = c.session(n).GetConversationId()
	}
	backup := filepath.Join(c.Dir, "backup.sql")
	c.postgres("pg_dump", c.databaseURL(), "--clean", "--if-exists", "-f", backup)
	for range events {
		for _, n := range numbers {
			c.say(n, "This is on its way when the database goes back.")
		}
	}
	c.pollNow()
	var delivered, open int
	c.until("some events are delivered and others are not", func() bool {
		err := c.pool.QueryRow(c.ctx, `select count(*) filter (where state = 'delivered'), count(*) filter (where state in ('pending', 'leased', 'held'))
			from poller.events`).Scan(&delivered, &open)
		return err == nil && delivered > items+events && open > 0
	})
	t.Logf("%d events were delivered and %d on their way", delivered, open)
	c.restore(c.databaseURL(), backup)
	c.up()
	c.pollNow()
	for _, n := range numbers {
		c.judge(n, conversations[n], c.ended(n, 1+events))
	}
}
