package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/stack"
)

// follows runs the blocks of docs/backup.md that are for one thing, in their order. One for the superuser is run where the dump is, as he would.
func (c *crashing) follows(purpose, backup string) {
	c.t.Helper()
	server := filepath.Join(c.Dir, "postgres")
	socket := "host=" + server + " user=postgres dbname="
	ran := 0
	for _, r := range recipes(c.t, "backup.md", 7) {
		if !r.has(purpose) {
			continue
		}
		cmd := exec.CommandContext(c.ctx, "sh", "-eu", "-c", r.text)
		cmd.Env = append(os.Environ(), "PATH="+c.Bin+":"+os.Getenv("PATH"), "MUXPOST_DATA_DIR="+c.Dir, "MUXPOST_CONFIG="+c.ConfigFile(), "data="+c.Dir,
			"backup="+backup, "database="+socket+"muxpost", "server="+socket+"postgres", "tried="+socket+"muxpost_tried")
		cmd.Env = append(cmd.Env, c.env...)
		if purpose == "superuser" {
			cmd.Dir, cmd.Env = backup, append(cmd.Env, "PGHOST="+server, "PGUSER=postgres")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("docs/backup.md:%d: %v\n%s%s", r.line, err, r.text, out)
		}
		ran++
	}
	if ran == 0 {
		c.t.Fatalf("docs/backup.md has no block for %s", purpose)
	}
}

// backupStack is a stack on which the commands of docs/backup.md can be run.
func backupStack(t *testing.T, limit time.Duration) *crashing {
	t.Helper()
	for _, program := range []string{"pg_dump", "pg_restore", "psql"} {
		needs.Program(t, program)
	}
	c := crashStack(t, limit, nil)
	c.patience, c.tries = time.Minute, 1
	return c
}

// drawsAbove draws a fencing token from a restored database, whether the dispatcher has greeted its hosts yet or not: it binds them only if
// it is newer than what they have seen.
func (c *crashing) drawsAbove(newest int64) {
	c.t.Helper()
	var drawn int64
	if err := c.pool.QueryRow(c.ctx, `select dispatcher.next_token()`).Scan(&drawn); err != nil || drawn <= newest {
		c.t.Errorf("after the restore fencing tokens go on from %d, and hosts have seen %d: %v", drawn, newest, err)
	}
}

// The database is dumped while events are on their way, and everything goes on. Then it is replaced by the dump: agents are where they were,
// hosts have seen newer fencing tokens than it knows, an item has an agent that it never heard of, and a token is revoked that it does not know
// to be. What upstream still has arrives once in all.
func TestBackup_TheCommandsBringEverythingBack(t *testing.T) {
	t.Parallel()
	c := backupStack(t, 4*time.Minute)
	backup := filepath.Join(c.Dir, "backup")
	numbers := []int{c.open(), c.open(), c.open()}
	c.pollNow()
	conversations := map[int]string{}
	for _, n := range numbers {
		c.ended(n, 1)
		conversations[n] = c.session(n).GetConversationId()
	}
	for range 3 {
		for _, n := range numbers {
			c.say(n, "This is on its way when the dump is made.")
		}
	}
	c.pollNow()
	var open int
	c.until("events are on their way, in the ledger and at the dispatcher", func() bool {
		err := c.pool.QueryRow(c.ctx, `select count(*) from poller.events e join dispatcher.deliveries d using (delivery_id)
			where e.state = 'leased' and d.outcome <> 'delivered'`).Scan(&open)
		return err == nil && open > 0
	})
	c.follows("backup", backup)
	info, err := os.Stat(filepath.Join(backup, "muxpost.dump"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the dump: %v, %v", info, err)
	}
	c.follows("practice", backup)

	// It goes on: what was on its way arrives, more does, an item is new, and a person sends something.
	for _, n := range numbers {
		c.say(n, "This comes after the dump.")
	}
	late := c.open()
	c.pollNow()
	send := func() {
		c.t.Helper()
		if out, err := c.Run(c.ctx, "send", stack.Item(numbers[0]), "a message by hand", "--key", "by-hand"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	send()
	before := map[int][]*pollerv1.LedgerEntry{late: c.ended(late, 1), numbers[0]: c.ended(numbers[0], 6), numbers[1]: c.ended(numbers[1], 5), numbers[2]: c.ended(numbers[2], 5)}
	conversations[late] = c.session(late).GetConversationId()
	newest, seen := c.token(), c.agentOf(late)

	c.pool.Close() // it is another database from here on
	c.follows("restore", backup)
	c.pool = c.connect()
	c.drawsAbove(newest)
	c.endLeasesUpTo(newest)
	send() // again, as docs/backup.md says
	for n, was := range before {
		rows := c.ended(n, len(was))
		for i, row := range rows {
			if len(rows) != len(was) || row.GetDeliveryId() != was[i].GetDeliveryId() {
				t.Errorf("the events of %s were %v, and are %v", stack.Item(n), was, rows)
				break
			}
		}
		c.judge(n, conversations[n], rows)
	}
	if now := c.agentOf(late); now != seen {
		t.Errorf("the agent that the dump does not know was %d, and is %d", seen, now)
	}
	d, err := c.Dispatcher.GetDelivery(c.ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: before[numbers[1]][4].GetDeliveryId()})
	if err != nil || d.GetDelivery().GetHow() != dispatcherv1.How_HOW_ALREADY {
		t.Errorf("what was delivered after the dump, after the restore: %v %v", d, err)
	}
	// And it goes on: no host refuses the new leases.
	for n, was := range before {
		c.say(n, "This comes after the restore.")
		c.pollNow()
		c.judge(n, conversations[n], c.ended(n, len(was)+1))
	}
}

// Where Postgres is somebody's own, the services are a role that makes no databases, and the superuser restores. Everything is the role's
// afterwards: it migrates, what is in the dump counts, and it goes on.
func TestBackup_ASuperuserRestoresForTheRoleOfTheServices(t *testing.T) {
	t.Parallel()
	c := backupStack(t, 3*time.Minute)
	backup := filepath.Join(c.Dir, "backup")
	number := c.open()
	c.pollNow()
	c.ended(number, 1)
	conversation := c.session(number).GetConversationId()
	c.follows("backup", backup)
	c.say(number, "This comes after the dump.")
	c.pollNow()
	before, newest := c.ended(number, 2), c.token()
	if _, err := c.pool.Exec(c.ctx, "create role muxpost login"); err != nil {
		t.Fatal(err)
	}
	c.pool.Close() // it is another database from here on
	if out, err := c.Run(c.ctx, "down", "--keep-database"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.follows("superuser", backup)

	c.Env = append(slices.Clone(c.env), "MUXPOST_DATABASE_URL=postgres://muxpost@/muxpost?sslmode=disable&host="+url.QueryEscape(filepath.Join(c.Dir, "postgres")))
	c.up() // which migrates
	c.Env = c.env
	c.pool = c.connect()
	var role string
	var makes bool
	var foreign int
	err := c.pool.QueryRow(c.ctx, `select current_user, (select rolcreatedb or rolsuper from pg_roles where rolname = current_user),
		(select count(*) from pg_class join pg_namespace n on n.oid = relnamespace
			where pg_get_userbyid(relowner) <> current_user and nspname !~ '^pg_' and nspname <> 'information_schema')`).Scan(&role, &makes, &foreign)
	if err != nil || role != "muxpost" || makes || foreign > 0 {
		t.Fatalf("the services are %s (makes databases: %v), and %d things are not theirs: %v", role, makes, foreign, err)
	}
	c.drawsAbove(newest)
	c.endLeasesUpTo(newest)
	c.pollNow()
	for i, row := range c.ended(number, 2) {
		if row.GetDeliveryId() != before[i].GetDeliveryId() {
			t.Errorf("event %d was %v, and is %v", i, before[i], row)
		}
	}
	c.say(number, "This comes after the restore.")
	c.pollNow()
	c.judge(number, conversation, c.ended(number, 3))
}

// endLeasesUpTo ends the leases that a restored database remembers, as half a minute would.
func (c *crashing) endLeasesUpTo(token int64) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.ctx, `update dispatcher.leases set until = clock_timestamp() where holder <> '' and token <= $1`, token); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.pool.Exec(c.ctx, `update poller.events set lease_until = clock_timestamp() where state = 'leased'`); err != nil {
		c.t.Fatal(err)
	}
}

// token is the highest fencing token that was given out.
func (c *crashing) token() (token int64) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.ctx, `select last_value from dispatcher.fencing_token`).Scan(&token); err != nil {
		c.t.Fatal(err)
	}
	return token
}

// agentOf is the one agent of an item.
func (c *crashing) agentOf(number int) int {
	c.t.Helper()
	agents, _ := c.agents(c.session(number))
	if len(agents) != 1 {
		c.t.Fatalf("%s has the agents %v", stack.Item(number), agents)
	}
	return agents[0]
}
