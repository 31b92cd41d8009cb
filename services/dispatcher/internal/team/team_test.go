package team_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace/noop"

	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// hosts are two hosts in memory. What they say of an attempt is by its state there, until a test says otherwise.
type hosts struct {
	mu sync.Mutex
	// says is what is answered by each host in the place of what it knows; nil for what it knows.
	says map[string]func(call string) *team.Answer
	// runs are the attempts, floor the lowest token that is taken.
	runs     map[string]*held
	floor    int64
	launches []team.Launch
	stops    []string
	// first is where tasks are placed first.
	first string
	// ahead is how far their clock is ahead of the database's, and asked how often they were asked for an attempt.
	ahead time.Duration
	asked int
}

type held struct {
	host   string
	answer team.Answer
	never  bool
}

func (h *hosts) PlaceTask(p team.Place) (string, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range []string{h.first, "h1", "h2"} {
		if name != "" && !slices.Contains(p.Avoid, name) {
			return name, ""
		}
	}
	return "h1", ""
}

func (h *hosts) said(host, call string) *team.Answer {
	if says := h.says[host]; says != nil {
		return says(call)
	}
	return nil
}

func (h *hosts) RunTask(_ context.Context, host string, l team.Launch) team.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.said(host, "run"); a != nil {
		return *a
	}
	if l.Token < h.floor {
		return team.Answer{Kind: team.Fenced}
	}
	if known := h.runs[l.ID]; known != nil {
		if known.never {
			return team.Answer{Kind: team.Refused, Reason: "attempt_mismatch"}
		}
		return known.answer
	}
	h.launches = append(h.launches, l)
	h.runs[l.ID] = &held{host: host, answer: team.Answer{Kind: team.Going, Sight: team.Sight{Alive: true, PaneID: "%1",
		StartedAt: time.Now().Add(h.ahead), ProgressAt: time.Now().Add(h.ahead)}}}
	return h.runs[l.ID].answer
}

func (h *hosts) Attempt(_ context.Context, host, id string, _ bool) team.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if a := h.said(host, "get"); a != nil {
		return *a
	}
	if known := h.runs[id]; known != nil {
		return known.answer
	}
	return team.Answer{Kind: team.Unknown}
}

func (h *hosts) StopAttempt(_ context.Context, host, id string, token int64, reason string) team.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.said(host, "stop"); a != nil {
		return *a
	}
	if token < h.floor {
		return team.Answer{Kind: team.Fenced}
	}
	known := h.runs[id]
	if known == nil {
		known = &held{host: host, never: true}
		h.runs[id] = known
	}
	if known.answer.Kind != team.Done {
		known.answer = team.Answer{Kind: team.Done, Result: rules.WasStopped, Reason: "stopped", Detail: "it was stopped"}
		h.stops = append(h.stops, reason)
	}
	return known.answer
}

func (h *hosts) RemoveTaskTree(context.Context, string, team.TreeRemoval) (string, bool, error) {
	return "", true, nil
}

// ends has every attempt that is under way end so.
func (h *hosts) ends(result rules.Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if r.answer.Kind == team.Going {
			r.answer = team.Answer{Kind: team.Done, Result: result, Detail: "it ended: " + string(result), EndedAt: time.Now().Add(h.ahead)}
		}
	}
}

func (h *hosts) say(host string, says func(call string) *team.Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.says[host] = says
}

func (h *hosts) launched() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.launches)
}

// bench is a coordinator with real records and these hosts.
type bench struct {
	*hosts
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool
	c    *team.Coordinator
	run  team.Run
}

func newBench(t *testing.T, spec rules.Spec, change ...func(*hosts)) *bench {
	t.Helper()
	pool := dbtest.New(t)
	b := &bench{hosts: &hosts{says: map[string]func(string) *team.Answer{}, runs: map[string]*held{}}, Store: store.New(pool), t: t, pool: pool}
	for _, c := range change {
		c(b.hosts)
	}
	b.c = team.New(team.Config{Store: b.Store, Hosts: b.hosts, Hints: hints.New(), Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""),
		Process: "d1", LookEvery: 20 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	var err error
	if b.run, _, err = b.c.Start(t.Context(), spec, "ann", false); err != nil {
		t.Fatal(err)
	}
	return b
}

func one(loops int) rules.Spec {
	return rules.Spec{Team: "crew", Harness: "sh", Directory: "/w", MaxFixLoops: loops, Verify: &rules.Step{Check: "good"}, Tasks: []rules.Job{{ID: "a", Prompt: "do a"}}}
}

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			known, _ := b.KnownRun(context.Background(), b.run.ID)
			b.t.Fatalf("waited in vain until %s: %+v", what, known)
		}
	}
}

func (b *bench) sql(statement string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), statement); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) becomes(phase rules.Phase) team.Run {
	b.t.Helper()
	var r team.Run
	b.until("the run is "+phase.String(), func() bool {
		var err error
		r, err = b.Run(context.Background(), b.run.ID)
		return err == nil && r.Phase == phase
	})
	return r
}

func (b *bench) attempts(task string) []team.Attempt {
	b.t.Helper()
	all, err := b.Attempts(context.Background(), b.run.ID, task)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// running waits until the attempt number n at a task is recorded to run.
func (b *bench) running(task string, n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("the attempt %d at %s runs", n, task), func() bool {
		all := b.attempts(task)
		return len(all) == n && all[n-1].State == team.Running
	})
}

func unclear(call string) *team.Answer {
	if call == "stop" {
		return nil
	}
	return &team.Answer{Kind: team.Unclear}
}

func silent(string) *team.Answer { return &team.Answer{Kind: team.Silent} }

func TestT123_WhatNobodyCanVouchForIsFencedStoppedAndHandedOutAgainOnce(t *testing.T) {
	b := newBench(t, one(0))
	for n := 1; n <= 2; n++ {
		b.running("a", n)
		b.say("h1", unclear)
		b.until("it is not stale within its lease", func() bool { return b.attempts("a")[n-1].State == team.Running })
		b.sql("update dispatcher.team_attempts set lease_until = now() where state <> 'ended'")
		b.until("it is over", func() bool { a := b.attempts("a")[n-1]; return a.State == team.Over })
		if a := b.attempts("a")[n-1]; !a.Fenced || a.FenceReason != "stale" || a.Result != rules.WasStopped {
			t.Errorf("%+v", a)
		}
		b.say("h1", nil)
	}
	r := b.becomes(rules.Failed)
	if r.Reason != rules.ReasonFixBound || b.launched() != 2 || len(b.attempts("a")) != 2 {
		t.Errorf("%+v after %d launches", r, b.launched())
	}
	if first, second := b.attempts("a")[0], b.attempts("a")[1]; second.Number != first.Number+1 || second.Token <= first.Token {
		t.Errorf("%+v, %+v", first, second)
	}
	if !strings.Contains(b.stops[0], "taken from its worker: stale") {
		t.Errorf("%v", b.stops)
	}
}

func TestT124_AHostsClockMakesNothingStaleAndHidesNothing(t *testing.T) {
	for name, jump := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, one(0), func(h *hosts) { h.ahead = jump })
			b.running("a", 1)
			asked := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.asked
			}
			b.until("it was looked at for a while", func() bool { b.c.Poke(); return asked() > 20 })
			first := b.attempts("a")
			if a := first[0]; len(first) != 1 || a.State != team.Running || a.Lapsed || a.Gone || a.Fenced {
				t.Errorf("it is taken for stale: %+v", a)
			}
			if off := time.Until(first[0].StartedAt) - jump; off.Abs() > 10*time.Minute {
				t.Errorf("the host's time of the start is off by %v", off)
			}
			// By the database's clock nobody vouched for it in time: that is seen, whatever the host's clock says.
			b.say("h1", unclear)
			b.sql("update dispatcher.team_attempts set lease_until = now() where state <> 'ended'")
			b.until("it is stale", func() bool { a := b.attempts("a")[0]; return a.State == team.Over && a.FenceReason == "stale" })
			b.say("h1", nil)
			b.running("a", 2)
			// And so is that it has certainly ended by itself.
			b.say("h1", silent)
			b.mu.Lock()
			b.first = "h2"
			b.mu.Unlock()
			b.sql("update dispatcher.team_attempts set gone_at = now() where state <> 'ended'")
			b.until("it is lost", func() bool { return b.attempts("a")[1].Result == rules.Lost })
			var wrong int
			if err := b.pool.QueryRow(t.Context(), "select count(*) from dispatcher.team_attempts where abs(extract(epoch from now() - coalesce(settled_at, now()))) > 600 "+
				"or abs(extract(epoch from now() - coalesce(host_at, now()))) > 600 or abs(extract(epoch from now() - coalesce(process_at, now()))) > 600").Scan(&wrong); err != nil || wrong > 0 {
				t.Errorf("%d have a time of their host's where the database's should be, %v", wrong, err)
			}
		})
	}
}

func TestTeam_ASilentHostIsWaitedForUntilItsAttemptHasEndedItself(t *testing.T) {
	b := newBench(t, one(0))
	b.running("a", 1)
	first := b.attempts("a")[0]
	b.mu.Lock()
	b.first = "h2" // a host that is away is no place for what comes after
	b.mu.Unlock()
	b.say(first.Host, silent)
	// A lease that nobody renews is no reason: the host does not answer.
	b.sql("update dispatcher.team_attempts set lease_until = now() where state <> 'ended'")
	for range 20 {
		b.c.Poke()
		time.Sleep(5 * time.Millisecond)
	}
	if n := len(b.attempts("a")); n != 1 {
		t.Fatalf("it was handed out %d times while it may run", n)
	}
	b.sql("update dispatcher.team_attempts set gone_at = now() where state <> 'ended'")
	b.running("a", 2)
	if a := b.attempts("a"); a[0].Result != rules.Lost || !a[0].Owed || a[1].Host == first.Host {
		t.Errorf("%+v", a)
	}
	b.ends(rules.Succeeded)
	b.until("it is verified", func() bool {
		b.ends(rules.Succeeded)
		return len(b.attempts("@verify")) == 1 && b.attempts("@verify")[0].State == team.Over
	})
	b.becomes(rules.Complete)
	b.say(first.Host, nil)
	b.sql("update dispatcher.team_attempts set owed_look = now()")
	b.until("what was left there is stopped", func() bool { return !b.attempts("a")[0].Owed })
}

func TestTeam_ALaunchThatIsRefusedNeverBeginsLater(t *testing.T) {
	b := newBench(t, one(0))
	refuse := func(call string) *team.Answer {
		if call == "run" {
			return &team.Answer{Kind: team.Refused, Reason: "directory_missing", Detail: "the directory is not there"}
		}
		return nil
	}
	b.say("h1", refuse)
	b.say("h2", refuse)
	r := b.becomes(rules.Failed)
	if r.Reason != rules.ReasonLaunch || r.FixLoops != 0 || !strings.Contains(r.Detail, "the directory is not there") {
		t.Errorf("%+v", r)
	}
	all := b.attempts("a")
	if len(all) != 3 || b.launched() != 0 {
		t.Errorf("%d tries, %d launches", len(all), b.launched())
	}
	b.say("h1", nil)
	for _, a := range all {
		if got := b.RunTask(t.Context(), "h1", team.Launch{ID: a.ID, Token: a.Token}); got.Kind != team.Refused {
			t.Errorf("a launch that was under way begins: %+v", got)
		}
		if a.Number != 1 {
			t.Errorf("a try to start is no execution: %+v", a)
		}
	}
}

func TestTeam_ALaunchThatWasAnsweredTooLateIsAdopted(t *testing.T) {
	b := newBench(t, one(0))
	b.until("it is claimed", func() bool { return len(b.attempts("a")) == 1 })
	b.running("a", 1)
	// The host began it, and refuses to repeat it.
	b.sql("update dispatcher.team_attempts set state = 'claimed'")
	b.say("h1", func(call string) *team.Answer {
		if call == "run" {
			return &team.Answer{Kind: team.Refused}
		}
		return nil
	})
	b.running("a", 1)
	b.say("h1", nil)
	b.until("it completes", func() bool {
		b.ends(rules.Succeeded)
		r, err := b.Run(context.Background(), b.run.ID)
		return err == nil && r.Phase == rules.Complete
	})
	if b.launched() != 2 || len(b.stops) != 0 {
		t.Errorf("%d launches, stops %v", b.launched(), b.stops)
	}
}

// A command that began later than its claim reckons with would run on while its host's silence gives its task to another.
func TestT135_NothingIsBegunLaterThanItsClaimReckonsWith(t *testing.T) {
	asked := 0 // for the attempt, and not for its launch; under the hosts' lock
	b := newBench(t, one(0), func(h *hosts) {
		h.says["h1"] = func(call string) *team.Answer {
			if call == "get" {
				asked++
			}
			return &team.Answer{Kind: team.Silent}
		}
	})
	b.until("it is claimed", func() bool { return len(b.attempts("a")) == 1 })
	first := b.attempts("a")[0]
	b.sql("update dispatcher.team_attempts set claimed_at = claimed_at - interval '2 minutes', gone_at = gone_at - interval '2 minutes'")
	b.until("its host is not asked to begin it any more", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return asked > 0
	})
	if a := b.attempts("a")[0]; a.State != team.Claimed || a.Fenced {
		t.Errorf("its host has said nothing: %+v", a)
	}
	b.say("h1", nil)
	b.running("a", 2)
	all := b.attempts("a")
	if a := all[0]; a.Result != rules.LaunchFailed || a.Reason != "late" || a.FenceReason != "late" || all[1].Number != a.Number {
		t.Errorf("%+v, then %+v", a, all[1])
	}
	if got := b.RunTask(t.Context(), "h1", team.Launch{ID: first.ID, Token: first.Token}); got.Kind != team.Refused || b.launched() != 1 {
		t.Errorf("a launch that was under way begins: %+v, %d launches", got, b.launched())
	}
}

func TestTeam_AHostThatWasGivenUpIsNotAskedToBeginAnything(t *testing.T) {
	asked, late := 0, 0 // for the attempt, and after that for its launch; under the hosts' lock
	b := newBench(t, one(0), func(h *hosts) {
		h.says["h1"] = func(call string) *team.Answer {
			switch {
			case call == "get":
				asked++
			case call == "run" && asked > 0:
				late++
			}
			return &team.Answer{Kind: team.Silent}
		}
	})
	b.until("it is claimed", func() bool { return len(b.attempts("a")) == 1 })
	b.mu.Lock()
	b.first = "h2"
	b.mu.Unlock()
	if err := b.GiveUpAttempts(t.Context(), "h1"); err != nil {
		t.Fatal(err)
	}
	b.running("a", 2)
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked == 0 || late != 0 {
		t.Errorf("it was asked %d times whether it knows it, and then %d times to begin it", asked, late)
	}
}

func TestTeam_WhatBeganInTimeAndIsHeardOfLateGoesOn(t *testing.T) {
	b := newBench(t, one(0))
	b.running("a", 1)
	launches := 0
	b.say("h1", func(call string) *team.Answer {
		if call == "run" {
			launches++
		}
		return nil
	})
	b.sql("update dispatcher.team_attempts set state = 'claimed', claimed_at = claimed_at - interval '2 minutes'")
	b.running("a", 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if launches != 0 || len(b.launches) != 1 || len(b.stops) != 0 {
		t.Errorf("%d launches, asked for %d more, stops %v", len(b.launches), launches, b.stops)
	}
}

func TestTeam_AFloorIsMetByANewToken(t *testing.T) {
	b := newBench(t, one(0))
	b.running("a", 1)
	before := b.attempts("a")[0].Token
	b.mu.Lock()
	b.floor = before + 1
	b.mu.Unlock()
	if _, ok, err := b.c.Cancel(t.Context(), team.Order{RunID: b.run.ID, Who: "bob", Reason: "enough"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b.becomes(rules.Cancelled)
	if a := b.attempts("a")[0]; a.Token <= before || a.Result != rules.WasStopped || !strings.Contains(b.stops[0], "ended by bob: enough") {
		t.Errorf("%+v, %v", a, b.stops)
	}
}

func TestTeam_WhatItsHostForgotIsNoSuccess(t *testing.T) {
	b := newBench(t, one(1))
	b.running("a", 1)
	b.mu.Lock()
	clear(b.runs)
	b.mu.Unlock()
	b.running("a", 2)
	if a := b.attempts("a")[0]; a.Result != rules.Crashed || a.Reason != "attempt_not_found" {
		t.Errorf("%+v", a)
	}
}

func TestT111_ACorruptTaskStopsTheRunVisibly(t *testing.T) {
	b := newBench(t, one(0))
	b.running("a", 1)
	b.sql("update dispatcher.team_tasks set state = 'of a later release' where task_id = 'a'")
	b.until("it says so", func() bool {
		b.c.Poke()
		r, err := b.Run(context.Background(), b.run.ID)
		return err == nil && strings.Contains(r.Waits, "task a cannot be read")
	})
	if r, err := b.Run(t.Context(), b.run.ID); err != nil || r.Phase != rules.Exec {
		t.Errorf("%+v, %v", r, err)
	}
	if _, ok, err := b.c.Cancel(t.Context(), team.Order{RunID: b.run.ID}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b.becomes(rules.Cancelled)
}

func TestTeam_ARunWhoseRecordCannotBeReadStandsStillVisiblyAndCanBeCancelled(t *testing.T) {
	b := newBench(t, one(0))
	b.running("a", 1)
	var spec string
	if err := b.pool.QueryRow(t.Context(), "select spec from dispatcher.team_runs").Scan(&spec); err != nil {
		t.Fatal(err)
	}
	b.sql("update dispatcher.team_runs set spec = '{'")
	waits := func(text string) {
		t.Helper()
		b.until("it says "+text, func() bool {
			b.c.Poke()
			r, err := b.Run(context.Background(), b.run.ID)
			return err == nil && (r.Waits == "" && text == "" || text != "" && strings.Contains(r.Waits, text))
		})
	}
	waits("muxpost team abandon " + b.run.ID)
	// What is under way goes on to its end, and nothing follows.
	b.ends(rules.Succeeded)
	b.until("a is over", func() bool { return b.attempts("a")[0].State == team.Over })
	if r, err := b.Run(t.Context(), b.run.ID); err != nil || r.Phase != rules.Exec {
		t.Errorf("%+v, %v", r, err)
	}
	// Where it can be read again, it goes on with all that was asked for.
	if _, err := b.pool.Exec(t.Context(), "update dispatcher.team_runs set spec = $1", spec); err != nil {
		t.Fatal(err)
	}
	b.running("@verify", 1)
	b.sql("update dispatcher.team_runs set spec = '{'")
	waits("muxpost team abandon")
	if _, ok, err := b.c.Cancel(t.Context(), team.Order{RunID: b.run.ID}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b.becomes(rules.Cancelled)
}

func TestTeam_WhileAPauseStandsWhatRunsGoesOnAndNothingIsHandedOut(t *testing.T) {
	spec := one(0)
	spec.Tasks = append(spec.Tasks, rules.Job{ID: "b", Prompt: "do b", Needs: []string{"a"}})
	b := newBench(t, spec)
	b.running("a", 1)
	b.sql("insert into dispatcher.pauses (work_item, who, reason) values ('', 'ann', 'lunch')")
	b.ends(rules.Succeeded)
	b.until("it says who holds it back", func() bool {
		b.c.Poke()
		r, err := b.Run(context.Background(), b.run.ID)
		return err == nil && strings.Contains(r.Waits, "by ann (lunch)") && strings.Contains(r.Waits, "`muxpost unpause --all`")
	})
	if all := b.attempts(""); len(all) != 1 || all[0].Result != rules.Succeeded {
		t.Errorf("%+v", all)
	}
	b.sql("delete from dispatcher.pauses")
	b.running("b", 1)
	if r, err := b.Run(t.Context(), b.run.ID); err != nil || r.Waits != "" {
		t.Errorf("it still says that it waits: %q, %v", r.Waits, err)
	}
}

func TestStart_RefusesWordsThatAreNoLine(t *testing.T) {
	b := newBench(t, one(0))
	for _, who := range []string{"a\nb", strings.Repeat("a", 101), "\xff"} {
		if _, _, err := b.c.Start(t.Context(), one(0), who, false); err == nil {
			t.Errorf("%q is taken", who)
		}
	}
}

func TestStart_NothingIsBegunInShadowMode(t *testing.T) {
	c := team.New(team.Config{Store: store.New(dbtest.New(t)), Hints: hints.New(), Logger: slog.New(slog.DiscardHandler), Shadow: true})
	if _, _, err := c.Start(t.Context(), one(0), "ann", false); !strings.Contains(fmt.Sprint(err), "shadow mode") {
		t.Errorf("%v", err)
	}
}
