package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/needs"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// pairs are tasks of which each second one needs the one before it, and that say when they begin and when they end.
func pairs(n int) (tasks, ids []string) {
	for i := range n {
		id := fmt.Sprintf("t%02d", i)
		ids = append(ids, id)
		name := id
		if i%2 == 1 {
			name = fmt.Sprintf("%s<t%02d", id, i-1)
		}
		tasks = append(tasks, name, "echo "+id+" >> order; sleep 0.5; echo "+id+" >> ended")
	}
	return tasks, ids
}

// through has a run go through a fault of its database, which begin begins and end ends: once some of it is done, and once all that was under way then
// has ended meanwhile. felt says that the run itself felt it, where what is asked meanwhile does not show that.
func (c *crews) through(begin, end func(), felt func() bool) {
	c.t.Helper()
	c.dispatcher()
	c.answers()
	tasks, ids := pairs(24)
	// What is written takes room: so much that it does not fit into what a page has left, and cannot be made smaller.
	large := func(s *teamv1.Spec) *teamv1.Spec {
		for _, t := range s.GetTasks() {
			noise := make([]byte, 24<<10)
			_, _ = rand.Read(noise)
			t.Prompt += "\n" + base64.StdEncoding.EncodeToString(noise)
		}
		return s
	}
	run := c.run(large(c.spec("crew", tasks...)))
	c.until("some have ended", func() bool { return len(c.lines("ended")) > 1 })
	begin()
	c.until("nobody is told what is not known", func() bool {
		_, err := c.team.StartRun(c.t.Context(), &teamv1.StartRunRequest{Spec: large(c.spec("other", "a", "true")), Who: "ann"})
		if err == nil {
			c.t.Fatal("a run was begun")
		}
		return errors.Is(err, fault.Unavailable)
	})
	if felt != nil {
		c.until("the run feels it", felt)
	}
	c.until("what was under way has ended", func() bool { return len(c.lines("ended")) == len(c.lines("order")) })
	if n := len(c.lines("order")); n == len(ids) {
		c.t.Error("the fault came too late: all tasks had begun")
	}
	end()
	got := c.over(run.GetRunId())
	if got.GetRun().GetPhase() != teamv1.Phase_PHASE_COMPLETE {
		c.logs()
		c.t.Errorf("%v", got)
	}
	c.once(got, ids...)
	if all, err := c.team.ListRuns(c.t.Context(), &teamv1.ListRunsRequest{}); err != nil || len(all.GetRuns()) != 1 {
		c.t.Errorf("the runs are %v, %v", all.GetRuns(), err)
	}
}

// exec runs a statement in the database, on a connection of its own.
func (c *crews) exec(url, sql string) {
	c.t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

const endDispatchers = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'muxpost-dispatcher' and datname = current_database()"

// The server itself refuses: the dispatcher's user may have no connection more.
func TestT115_ARunGoesOnThroughTooManyConnections(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	admin := c.url
	user := fmt.Sprintf("limited_%d", os.Getpid())
	c.exec(admin, "create role "+user+" login in role postgres")
	t.Cleanup(func() { c.exec(admin, endDispatchers); c.exec(admin, "drop role "+user) })
	as, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	as.User = url.User(user)
	c.url = as.String()
	c.through(func() {
		c.exec(admin, "alter role "+user+" connection limit 0")
		c.exec(admin, endDispatchers)
		if _, err := pgx.Connect(t.Context(), c.url); db.SQLState(err) != "53300" {
			t.Fatalf("the server answers %v", err)
		}
	}, func() { c.exec(admin, "alter role "+user+" connection limit -1") }, nil)
}

// A trigger says what the server would: every write of the run is refused as for a full disk, and every read is answered.
func TestT115_ARunGoesOnThroughADiskThatIsSaidToBeFull(t *testing.T) {
	t.Parallel()
	c := newCrews(t, 1)
	tables := []string{"team_runs", "team_tasks", "team_attempts", "team_history"}
	var begin, end strings.Builder
	begin.WriteString("create sequence dispatcher.refused; create function dispatcher.full() returns trigger language plpgsql as $$ begin perform nextval('dispatcher.refused'); " +
		"raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$; ")
	for _, table := range tables {
		fmt.Fprintf(&begin, "create trigger full_disk before insert or update on dispatcher.%s execute function dispatcher.full(); ", table)
		fmt.Fprintf(&end, "drop trigger full_disk on dispatcher.%s; ", table)
	}
	c.through(func() { c.exec(c.url, begin.String()) }, func() { c.exec(c.url, end.String()) }, func() bool {
		var n int
		err := c.pool.QueryRow(t.Context(), "select last_value from dispatcher.refused").Scan(&n)
		return err == nil && n > 5
	})
}

// A cluster of its own, which a test may stop.
func ownCluster(t *testing.T) (*local.Cluster, local.Options) {
	t.Helper()
	if _, err := local.Find(); errors.Is(err, fault.NotFound) {
		needs.Unmet(t, err)
	}
	dir, err := os.MkdirTemp("/tmp", "muxpg")
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // The database's user must get through.
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	options := local.Options{Dir: filepath.Join(dir, "pg")}
	cluster, err := local.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.Open(t.Context(), db.Config{URL: cluster.URL("postgres"), AppName: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := migrations.Up(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	return cluster, options
}

func TestT115_ARunGoesOnThroughARestartOfItsDatabase(t *testing.T) {
	for name, stop := range map[string]func(t *testing.T, c *local.Cluster){
		"in good order": func(t *testing.T, c *local.Cluster) {
			if err := c.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
		},
		"killed": func(t *testing.T, c *local.Cluster) {
			if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-c.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, options := ownCluster(t)
			t.Cleanup(func() { _ = cluster.Stop(context.Background()) })
			c := newCrewsOn(t, cluster.URL("postgres"), 1)
			c.through(func() { stop(t, cluster) }, func() {
				again, err := local.Start(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = again.Stop(context.Background()) })
				if again.URL("postgres") != c.url {
					t.Fatalf("it is elsewhere: %s", again.URL("postgres"))
				}
			}, nil)
		})
	}
}

// The disk is one: the tables of teams lie on a small file system, which is filled.
func TestT115_ARunGoesOnThroughAFullDisk(t *testing.T) {
	t.Parallel()
	disk, err := os.MkdirTemp("/tmp", "muxdisk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(disk) })
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("not tried: a small file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	cluster, _ := ownCluster(t)
	t.Cleanup(func() { _ = cluster.Stop(context.Background()) })
	c := newCrewsOn(t, cluster.URL("postgres"), 1)
	owner, err := os.Stat(cluster.Dir())
	if err != nil {
		t.Fatal(err)
	}
	where := filepath.Join(disk, "space")
	if err := os.Mkdir(where, 0o700); err != nil {
		t.Fatal(err)
	}
	who := owner.Sys().(*syscall.Stat_t)
	if err := errors.Join(os.Chown(where, int(who.Uid), int(who.Gid)), os.Chmod(disk, 0o711)); err != nil { //nolint:gosec // The database's user must get through.
		t.Fatal(err)
	}
	c.exec(c.url, "create tablespace small location '"+where+"'")
	for _, table := range []string{"team_runs", "team_tasks", "team_attempts", "team_history"} {
		c.exec(c.url, "alter table dispatcher."+table+" set tablespace small")
	}
	filler := filepath.Join(disk, "filler")
	c.through(func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 20; size > 0; size /= 2 {
			for err = nil; err == nil; {
				_, err = f.Write(make([]byte, size))
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}, func() bool {
		_, claim, found := strings.Cut(cluster.LogTail(1000), "No space left on device")
		return found && strings.Contains(claim, "insert into dispatcher.team_attempts")
	})
}
