package team

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// defaultLimit is how long an attempt may last where the spec says nothing.
	defaultLimit = time.Hour
	// startMargin is how long after its claim a host is asked to begin an attempt, and endMargin how long after its limit something of it may live.
	// A host takes seconds to begin what it was asked for; these are endMargin's too.
	startMargin = 2 * time.Minute
	endMargin   = time.Minute
	// showsOf is how much of what an earlier attempt showed is told to the next one.
	showsOf = 4 << 10
)

// isFenced reports whether another has what was to be changed.
func isFenced(err error) bool { return fault.KindOf(err) == fault.Fenced && err != nil }

// limitOf is how long an attempt of a run may last.
func limitOf(r Run) time.Duration { return cmp.Or(r.Spec.Limit, defaultLimit) }

// job is how an item is to be done.
type job struct {
	prompt, harness, directory string
	check                      bool
	labels                     map[string]string
}

// jobOf finds out of the spec how an item is to be done; false when the spec has no such item.
func jobOf(s rules.Spec, t rules.Item) (job, bool) {
	out := job{harness: s.Harness, directory: s.Directory, labels: s.Labels}
	var step *rules.Step
	switch t.Kind {
	case rules.Task:
		i := slices.IndexFunc(s.Tasks, func(j rules.Job) bool { return j.ID == t.ID })
		if i < 0 {
			return out, false
		}
		j := s.Tasks[i]
		out.prompt, out.harness, out.directory, out.labels = j.Prompt, cmp.Or(j.Harness, out.harness), cmp.Or(j.Directory, out.directory), joined(s.Labels, j.Labels)
		return out, true
	case rules.PlanStep:
		step = s.Plan
	case rules.PRDStep:
		step = s.PRD
	case rules.VerifyStep:
		step = s.Verify
	case rules.FixStep:
		step = cmp.Or(s.Fix, &rules.Step{})
	case rules.NoKind:
	}
	if step == nil {
		return out, false
	}
	out.prompt, out.harness, out.labels = step.Prompt, cmp.Or(step.Harness, out.harness), joined(s.Labels, step.Labels)
	if step.Check != "" {
		out.harness, out.check = step.Check, true
		out.prompt = "The check " + step.Check + " of the team " + s.Team + "."
	}
	return out, true
}

func joined(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// claimAll hands tasks out as far as hosts take them.
func (d *driver) claimAll(ctx context.Context, k Known, ids []string) (again, over bool, err error) {
	taken := map[string]bool{}
	busy := map[string]int{}
	for _, a := range k.Open {
		taken[a.Worker] = true
		busy[a.Host]++
	}
	waits := ""
	only, heads, err := d.trees(ctx, k)
	if err != nil {
		return false, false, err
	}
	for _, id := range ids {
		t := k.Tasks[slices.IndexFunc(k.Tasks, func(t Task) bool { return t.ID == id })]
		job, ok := jobOf(k.Run.Spec, t.Item)
		if !ok {
			return false, false, fault.Newf(fault.Internal, "", "the spec of the run %s has no task %s", k.Run.ID, id)
		}
		before, err := d.Store.BeforeAttempt(ctx, k.Run.ID, id)
		if err != nil {
			return false, false, err
		}
		host, why := d.Hosts.PlaceTask(Place{Harness: job.harness, Labels: job.labels, Only: only, Busy: busy, Avoid: shunned(t.Item, before)})
		if host == "" {
			waits = cmp.Or(waits, fmt.Sprintf("no host takes the task %s now: %s", id, why))
			continue
		}
		worker := freeWorker(host, taken)
		a := Attempt{ID: uuid.NewString(), Host: host, Worker: worker, Harness: job.harness, Directory: job.directory, Check: job.check}
		if k.Run.Spec.Trees != rules.NoTrees {
			a.inTree(k.Run, t.Item, heads)
			only = host
		}
		a.Prompt = compose(k.Run, t.Item, job, before, a)
		limit := limitOf(k.Run)
		got, ok, err := d.Store.ClaimTask(ctx, Claim{RunID: k.Run.ID, Epoch: d.run.Epoch, TaskID: id, Version: t.Version, Phase: k.Run.Phase, Attempt: a,
			Lease: claimLease, GoneAfter: startMargin + limit + endMargin})
		if err != nil {
			return false, false, err
		}
		if !ok {
			return true, false, nil // it is not as it was read
		}
		failpoint.Hit("dispatcher.team.claimed")
		d.Logger.InfoContext(ctx, "a task was handed out", obs.KeyRunID, k.Run.ID, obs.KeyTaskID, id, obs.KeyAttemptID, got.ID, obs.KeyHost, host,
			obs.KeyHarness, got.Harness, obs.KeyTry, got.Number, obs.KeyToken, got.Token)
		taken[worker], again = true, true
		busy[host]++
	}
	return again, false, d.note(ctx, waits)
}

// trees finds where the working trees of a run are, and which commits were left there. What is committed is known to one repository alone, so all of
// such a run is done where its first attempt is.
func (d *driver) trees(ctx context.Context, k Known) (only string, heads rules.Heads, err error) {
	if k.Run.Spec.Trees == rules.NoTrees {
		return "", nil, nil
	}
	all, err := d.Store.Attempts(ctx, k.Run.ID, "")
	if err != nil {
		return "", nil, err
	}
	heads = rules.Heads{}
	for _, a := range all {
		if only == "" && a.Result != rules.LaunchFailed && a.Result != rules.NotBegun {
			only = a.Host
		}
		if a.Result == rules.Succeeded && a.Head != "" {
			heads[a.TaskID] = a.Head
		}
	}
	return only, heads, nil
}

// inTree gives an attempt a working tree: a worktree beside the repository, on a branch of its own.
func (a *Attempt) inTree(r Run, t rules.Item, heads rules.Heads) {
	_, worker, _ := strings.Cut(a.Worker, "/tmux-")
	of := r.Spec.Team + "-" + r.ID[:8]
	name := r.Spec.TreeOf(t, worker)
	a.Repository, a.Needs = a.Directory, r.Spec.NeedsOf(t, heads)
	a.Directory, a.Branch = path.Join(a.Repository+".trees", of, name), path.Join("muxpost", of, name)
}

// freeWorker names a worker of a host that has nothing to do. The names are of their own: a coordinator never has one.
func freeWorker(host string, taken map[string]bool) string {
	for n := 1; ; n++ {
		if name := fmt.Sprintf("%s/tmux-worker-%d", host, n); !taken[name] {
			return name
		}
	}
}

// shunned are the hosts on which the present execution could not be started, or was lost: another one is tried first.
func shunned(t rules.Item, before Before) (hosts []string) {
	for _, a := range before.Attempts {
		if a.Number == t.Number && a.Result == rules.LaunchFailed || a.Number == t.Number-1 && a.Result == rules.Lost {
			hosts = append(hosts, a.Host)
		}
	}
	return hosts
}

// nonceOf is what an attempt's fences and its verdict are known by.
func nonceOf(attemptID string) string { return strings.ReplaceAll(attemptID, "-", "")[:12] }

// compose writes what an attempt is told.
func compose(r Run, t rules.Item, j job, before Before, attempt Attempt) string {
	if j.check {
		return j.prompt
	}
	told := rules.Told{Team: r.Spec.Team, TaskID: t.ID, Kind: t.Kind, Prompt: j.prompt, Number: t.Number, Nonce: nonceOf(attempt.ID), Branch: attempt.Branch}
	for _, a := range before.Artifacts {
		if t.Kind != rules.PlanStep || a.Name != rules.PlanStep.String() {
			told.Before = append(told.Before, rules.Carried{Title: "What the step " + a.Name + " came to", Text: a.Text, Cut: a.Cut})
		}
	}
	for _, a := range before.Attempts {
		if a.Number >= t.Number || a.Result == rules.NotBegun {
			continue
		}
		told.Before = append(told.Before, rules.Carried{
			Title: fmt.Sprintf("The try %d ended so: %s. It showed last", a.Number, cmp.Or(a.Detail, string(a.Result))),
			Text:  a.Output,
			Cut:   a.Cut,
			Most:  showsOf,
		})
	}
	return rules.Compose(told)
}
