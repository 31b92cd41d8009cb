package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/test/previous"
	"muxpost.dev/muxpost/test/stack"
)

// ofNext is what the release after this one may have added to the database when this one is rolled back to: each way of adding, once. It is
// there in any case, so that the test is about a schema that nobody knows also when there is no migration between the two releases.
const ofNext = `
	create table poller.of_next (id bigint generated always as identity primary key, word text not null);
	alter table poller.events add column of_next text not null default 'x', add column of_next_too text;
	alter table poller.items add column of_next jsonb;
	alter table dispatcher.deliveries add column of_next text not null default 'x';
	alter table dispatcher.sessions add column of_next text;
	alter table dispatcher.events add column of_next bigint;
	create index of_next on dispatcher.deliveries (of_next);
	insert into public.goose_db_version (version_id, is_applied) values (9999, true)`

// upgrading is a stack whose programs are replaced while events are on their way.
type upgrading struct {
	*crashing
	releases map[string]string // the directories of the programs of each
	numbers  []int
	said     int
}

// replace ends a service of one release and starts it of another, with events on their way, and waits until one was delivered since.
func (u *upgrading) replace(service, release string) {
	u.t.Helper()
	u.stop(service)
	u.Bin = u.releases[release]
	u.up()
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", u.pid(service))); err != nil || filepath.Dir(exe) != u.Bin {
		u.t.Fatalf("the %s is %s (%v), not of the %s release in %s", service, exe, err, release, u.Bin)
	}
	before := u.delivered()
	u.say()
	u.soon("these programs have delivered something together", func() bool { return u.delivered() > before })
}

// say has every item get an event more, which is on its way when it returns.
func (u *upgrading) say() {
	u.t.Helper()
	u.said++
	for _, n := range u.numbers {
		u.crashing.say(n, "This comes while programs are replaced: "+strconv.Itoa(u.said))
	}
	u.pollNow()
}

// delivered counts what is in its conversation.
func (u *upgrading) delivered() (n int) {
	u.t.Helper()
	if err := u.pool.QueryRow(u.ctx, `select count(*) from poller.events where state = 'delivered'`).Scan(&n); err != nil {
		u.t.Fatal(err)
	}
	return n
}

// beside starts a second dispatcher and a second poller of a release, which share the database and the host with the stack's own.
func (u *upgrading) beside(release string) {
	u.t.Helper()
	data, err := os.ReadFile(u.ConfigFile())
	if err != nil {
		u.t.Fatal(err)
	}
	config := string(data)
	for _, service := range []string{"dispatcher", "poller"} {
		config = strings.ReplaceAll(config, u.Address(service), "unix:"+filepath.Join(u.Dir, "beside-"+service+".sock"))
	}
	file := filepath.Join(u.Dir, "beside.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		u.t.Fatal(err)
	}
	url := u.databaseURL()
	for _, service := range []string{"dispatcher", "poller"} {
		log, err := os.Create(filepath.Join(u.Dir, "log", "beside-"+service+".log"))
		if err != nil {
			u.t.Fatal(err)
		}
		cmd := exec.CommandContext(u.ctx, filepath.Join(u.releases[release], "muxpost-"+service), "-config", file, "-data-dir", u.Dir)
		cmd.Env = append(os.Environ(), "MUXPOST_DATABASE_URL="+url)
		cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := cmd.Start(); err != nil {
			u.t.Fatal(err)
		}
		u.t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				u.t.Errorf("the %s beside, of the %s release, did not live to the end: %v", service, release, err)
			}
			_ = log.Close()
		})
		u.until("the "+service+" beside is there", func() bool {
			_, err := os.Stat(filepath.Join(u.Dir, "beside-"+service+".sock"))
			return err == nil
		})
	}
}

// replacement is one program that is replaced by that of another release.
type replacement struct{ service, release string }

// replaced has everything replaced by this release in one order, and by the one before in another.
func replaced(there, back []string) (out []replacement) {
	for _, service := range there {
		out = append(out, replacement{service, "this"})
	}
	for _, service := range back {
		out = append(out, replacement{service, "before"})
	}
	return out
}

// everyOrder has everything replaced in every order, and back in the same and in the opposite one.
func everyOrder(rounds int) (out []replacement) {
	for range rounds {
		for _, there := range [][]string{
			{"dispatcher", "poller", "tmuxd"}, {"dispatcher", "tmuxd", "poller"}, {"poller", "dispatcher", "tmuxd"},
			{"poller", "tmuxd", "dispatcher"}, {"tmuxd", "dispatcher", "poller"}, {"tmuxd", "poller", "dispatcher"},
		} {
			back := slices.Clone(there)
			slices.Reverse(back)
			out = append(append(out, replaced(there, there)...), replaced(there, back)...)
		}
	}
	return out
}

// It replaces everything by this release and back, with events on their way and a dispatcher and a poller of the release before
// that stay all the time; every agent lives through it, and what it recorded is each event once, in order.
func TestUpgrade_NothingIsLostOrDoubledInEitherOrderAndBack(t *testing.T) {
	t.Parallel()
	this, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	before := &build{dir: t.TempDir()}
	before.once.Do(func() { previous.Programs(t, before.dir, stack.Packages()) })
	// There one after the other, and back in the same order: four of the six mixtures. make upgrade-test has all, in every order.
	replacements, items := replaced([]string{"dispatcher", "poller", "tmuxd"}, []string{"dispatcher", "poller", "tmuxd"}), 3
	if rounds, err := strconv.Atoi(os.Getenv("UPGRADE_ROUNDS")); err == nil {
		replacements, items = everyOrder(rounds), 6
	}
	u := &upgrading{releases: map[string]string{"this": this, "before": before.dir}}
	u.crashing = crashStackOf(t, before, 2*time.Minute+time.Duration(len(replacements))*15*time.Second, func(w *world) {
		w.configure("poller:\n", "poller:\n  loop_posts: 0\n  digest_after: 0\n")
	})
	u.patience, u.tries = time.Minute, 2
	agents := map[int][]int{}
	conversations := map[int]string{}
	for range items {
		u.numbers = append(u.numbers, u.open())
	}
	u.pollNow()
	for _, n := range u.numbers {
		u.ended(n, 1)
		conversations[n] = u.session(n).GetConversationId()
		agents[n], _ = u.agents(u.session(n))
	}
	u.beside("before")

	// The schema first, under the programs of the release before.
	u.say()
	u.Bin = this
	if out, err := u.Run(u.ctx, "migrate"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := u.pool.Exec(u.ctx, ofNext); err != nil {
		t.Fatal(err)
	}
	u.say()
	for _, r := range replacements {
		u.replace(r.service, r.release)
	}
	var v verdict
	for _, n := range u.numbers {
		v.add(u.judge(n, conversations[n], u.ended(n, 1+u.said)))
		if now, _ := u.agents(u.session(n)); !slices.Equal(now, agents[n]) {
			t.Errorf("%s had the agent %v, and has %v", stack.Item(n), agents[n], now)
		}
	}
	t.Logf("upgrade: replaced=%d delivered=%d lost=%d doubled=%d harmed=%d", len(replacements), items*(1+u.said), v.lost, v.doubled, v.misplaced+v.harmed)
}
