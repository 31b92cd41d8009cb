package attempt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/task"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

const (
	// launchTime bounds the start of a tmux server, and is how long after it a wrapper may still begin.
	launchTime = 8 * time.Second
	// beginTime is how long a launch is watched for what it begins with.
	beginTime = 3 * time.Second
	// lookTime bounds one question to a tmux server.
	lookTime = 2 * time.Second

	maxPrompt    = 2 << 20
	defaultGrace = 5 * time.Second
	maxGrace     = time.Minute
	minStall     = 5 * time.Second
)

// LaunchRequest asks for an attempt.
type LaunchRequest struct {
	ID        string
	Harness   string
	Directory string
	Prompt    string
	Token     int64
	// Check asks for an entry that is a check; any other request is for one that is none.
	Check bool
	// Tree has the directory be a worktree; nil for a directory as it is.
	Tree *Tree
	// Limit, StallLimit and Grace are zero for the host's own limit, for none, and for 5 seconds.
	Limit, StallLimit, Grace time.Duration
}

// Tree is a git worktree beside its repository, in the directory REPOSITORY.trees.
type Tree struct {
	Repository, Branch string
	// Needs are commits that it must have.
	Needs []string
}

var idForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Target returns the name of an attempt's tmux session.
func Target(id string) string { return "task-" + strings.ReplaceAll(id, "-", "") }

// launching is one launch under way.
type launching struct {
	harness *harness.Harness
	memory  Memory
	prompt  string
	task    harness.Task
	vars    harness.Vars
	argv    []string
}

// Launch launches a task, once: a repeat answers for the first. It returns when the command runs or is known not to, or after a few seconds.
func (r *Runner) Launch(ctx context.Context, req LaunchRequest) (a Attempt, already bool, err error) {
	if err := r.checkNumbers(&req); err != nil {
		return Attempt{}, false, err
	}
	if err := r.worktree(ctx, req); err != nil {
		return Attempt{}, false, err
	}
	l, err := r.check(req)
	if err != nil {
		return Attempt{}, false, err
	}
	held, already, err := r.claim(l.memory)
	if err != nil {
		return Attempt{}, false, err
	}
	if already {
		if err := r.fence(held, req.Token); err != nil {
			return Attempt{}, false, err
		}
		held.await(ctx, beginTime+launchTime)
		return held.view(), true, nil
	}
	if err := r.begin(held, l); err != nil {
		r.abandon(held)
		held.turn.Unlock()
		return Attempt{}, false, err
	}
	// Once begun, a launch is carried through: a caller that went away must not leave a half-known one.
	r.launch(context.WithoutCancel(ctx), held, l)
	held.turn.Unlock()
	r.mu.Lock()
	r.attend(held)
	r.mu.Unlock()
	held.await(ctx, beginTime)
	return held.view(), false, nil
}

// worktree has the worktree of a launch made, unless the attempt is known: then it may be at work there.
func (r *Runner) worktree(ctx context.Context, req LaunchRequest) error {
	if _, err := r.find(req.ID); req.Tree == nil || !errors.Is(err, fault.NotFound) {
		return nil
	}
	if err := r.beside(req.Tree.Repository, req.Directory); err != nil {
		return err
	}
	// What can never be launched, or is too old, touches no tree.
	if _, err := r.harness(req); err != nil {
		return err
	}
	if err := r.young(req.Token, req.Token); err != nil {
		return err
	}
	return r.Worktrees.PrepareTask(ctx, req.Tree.Repository, req.Directory, req.Tree.Branch, req.Tree.Needs)
}

// beside refuses a worktree that is not beside its repository, below a root.
func (r *Runner) beside(repository, directory string) error {
	if !strings.HasPrefix(directory, repository+".trees/") {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the worktree of an attempt lies in %s.trees, and %.200q does not", repository, directory)
	}
	// What is beside the repository must be below a root too.
	for _, dir := range []string{repository, filepath.Dir(repository)} {
		if _, err := r.directory(dir); err != nil {
			return err
		}
	}
	return nil
}

// RemoveWorktree removes the worktree of attempts that are over, if nothing would be lost with it, or says why it is kept. missing is true when nothing
// was there.
func (r *Runner) RemoveWorktree(ctx context.Context, repository, directory, branch string, unmerged, dry bool) (kept string, missing bool, err error) {
	if err := r.beside(repository, directory); err != nil {
		return "", false, err
	}
	if id := r.WorksBelow(directory); id != "" {
		return "the attempt " + id + " works in it", false, nil
	}
	return r.Worktrees.RemoveTask(ctx, repository, directory, branch, unmerged, dry)
}

// await waits until the attempt runs or is over.
func (a *attempt) await(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-a.begun:
	case <-ctx.Done():
	}
}

// harness finds what a request is for, and refuses what cannot do it.
func (r *Runner) harness(req LaunchRequest) (*harness.Harness, error) {
	h, err := r.Table.Find(req.Harness)
	if err != nil {
		return nil, err
	}
	if h.Resolved() == "" {
		return nil, fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the program %q of the harness %q is not installed on this host",
			h.Binary, h.Name).WithRemedy("install it, or correct tmuxd.harnesses." + h.Name + ".binary")
	}
	switch {
	case req.Check && !h.Check:
		return nil, fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the harness %q is no check", h.Name).
			WithRemedy("set tmuxd.harnesses." + h.Name + ".check, if what it exits with is to be a verdict")
	case h.Check && !req.Check:
		return nil, fault.Newf(fault.Invalid, fault.ReasonNoTasks, "the harness %q is a check, and does no tasks", h.Name)
	}
	return h, nil
}

// check refuses what can never work, before anything is written or asked of tmux.
func (r *Runner) check(req LaunchRequest) (*launching, error) {
	h, err := r.harness(req)
	if err != nil {
		return nil, err
	}
	dir, err := r.directory(req.Directory)
	if err != nil {
		return nil, err
	}
	vars := harness.Vars{PromptFile: r.Disk.PromptFile(req.ID), Dir: dir, AttemptID: req.ID}
	t, err := h.Task(vars, req.Prompt)
	if err != nil {
		return nil, err
	}
	m := Memory{ID: req.ID, Target: Target(req.ID), Stamp: random("s"), Harness: h.Name, Directory: dir, Request: digest(req), Limit: req.Limit,
		StallLimit: req.StallLimit, Grace: req.Grace, Token: req.Token, CreatedAt: r.Now(), Worktree: req.Tree != nil}
	return &launching{harness: h, memory: m, prompt: req.Prompt, task: t, vars: vars}, nil
}

// checkNumbers checks the rest of a request, and fills in what it leaves to the host.
func (r *Runner) checkNumbers(req *LaunchRequest) error {
	bad := func(format string, args ...any) error {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, format, args...)
	}
	if req.Limit == 0 {
		req.Limit = r.cfg.Limit
	}
	if req.Grace == 0 {
		req.Grace = defaultGrace
	}
	switch {
	case !idForm.MatchString(req.ID):
		return bad("attempt_id %q is not a UUID in lower case", req.ID)
	case req.Prompt == "":
		return fault.New(fault.Invalid, fault.ReasonTextEmpty, "the prompt is empty")
	case len(req.Prompt) > maxPrompt:
		return fault.Newf(fault.Invalid, fault.ReasonTextTooLarge, "the prompt has %d bytes, and at most %d are taken", len(req.Prompt), maxPrompt)
	case req.Limit < 0 || req.Limit > r.cfg.MaxLimit:
		return bad("limit is %v, and this host takes at most %v (tmuxd.tasks.max_limit)", req.Limit, r.cfg.MaxLimit)
	case req.StallLimit != 0 && req.StallLimit < minStall:
		return bad("stall_limit is %v: it must be %v at least, or 0 for none", req.StallLimit, minStall)
	case req.Grace < 0 || req.Grace > maxGrace:
		return bad("grace is %v: it must be 0s to %v", req.Grace, maxGrace)
	}
	return nil
}

// digest tells one request from another. Tokens and times to wait are no part of it.
func digest(req LaunchRequest) string {
	h := sha256.New()
	parts := []string{req.Harness, req.Directory, req.Prompt, req.Limit.String(), req.StallLimit.String(), req.Grace.String()}
	if req.Tree != nil {
		parts = append(append(parts, req.Tree.Repository, req.Tree.Branch), req.Tree.Needs...)
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// directory returns the working directory without symbolic links. It must be there, below a root.
func (r *Runner) directory(asked string) (string, error) {
	if !filepath.IsAbs(asked) || asked != filepath.Clean(asked) {
		return "", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the directory %q is not an absolute path in its shortest form", asked)
	}
	real, err := r.Places.Directory(asked, false)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonDirectoryMissing, fmt.Sprintf("the directory %q cannot be used", asked), err).
			WithRemedy("create it on the host before the task is run")
	}
	for _, root := range r.cfg.Roots {
		if r, err := r.Places.Directory(root, false); err == nil && (real == r || strings.HasPrefix(real, strings.TrimSuffix(r, "/")+"/")) {
			return real, nil
		}
	}
	return "", fault.Newf(fault.Invalid, fault.ReasonDirectoryOutside, "the directory %q is not below a configured root", asked).
		WithRemedy("agents of this host may work below: " + strings.Join(r.cfg.Roots, ", ") + " (tmuxd.roots)")
}

// claim gives the id to this launch, with the turn held, or returns the attempt that has it.
func (r *Runner) claim(m Memory) (a *attempt, already bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unreadable[m.ID] {
		return nil, false, fault.Newf(fault.Unavailable, fault.ReasonStorage, "what is remembered of the attempt %s cannot be read", m.ID)
	}
	if a = r.attempts[m.ID]; a != nil {
		if a.recall().Request != m.Request {
			return nil, false, fault.Newf(fault.AlreadyExists, fault.ReasonAttemptMismatch,
				"the attempt %s was asked for with another task or other limits", m.ID).WithRemedy("an id is for one launch: make a new one")
		}
		return a, true, nil
	}
	running := 0
	for _, other := range r.attempts {
		if other.recall().Outcome == nil {
			running++
		}
	}
	if running >= r.cfg.MaxRunning {
		return nil, false, fault.Newf(fault.Throttled, fault.ReasonNoCapacity, "%d attempts run, as many as this host lets run at once", running).
			WithRemedy("wait for one to end, or raise tmuxd.tasks.max_running").WithRetryAfter(10 * time.Second)
	}
	a = newAttempt(m)
	a.turn.Lock()
	r.attempts[m.ID] = a
	return a, false, nil
}

// abandon gives back an id with which nothing was begun.
func (r *Runner) abandon(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attempts, a.recall().ID)
	close(a.begun)
}

// begin writes down everything that the launch needs, the memory last: without one there is no attempt, and with one there is a spec, so that a
// tmuxd that is started again can take that back, and then knows that nothing runs. The turn is held.
func (r *Runner) begin(a *attempt, l *launching) error {
	m := l.memory
	if err := r.mayAct(m.Token, m.Token); err != nil {
		return err
	}
	if err := r.Places.MakePrivate(l.harness.StateDir()); err != nil {
		return storage(err)
	}
	err := r.Disk.Begin(m.ID, l.prompt)
	if errors.Is(err, fs.ErrExist) {
		return fault.Newf(fault.AlreadyExists, fault.ReasonAttemptMismatch, "something is kept of an attempt %s already", m.ID).
			WithRemedy("an id is for one launch: make a new one")
	}
	if err == nil {
		l.argv, err = r.Disk.Prepare(Run{ID: m.ID, Stamp: m.Stamp, Argv: l.task.Argv, Env: l.harness.Environ(r.Getenv, l.vars), Dir: m.Directory,
			Stdin: l.task.Stdin, Limit: m.Limit, Grace: m.Grace, NotAfter: r.Now().Add(launchTime)})
	}
	failpoint.Hit("tmuxd.attempt.prepared")
	if err == nil {
		err = r.change(a, func(*Memory) bool { return true })
	}
	if err != nil {
		return errors.Join(storage(err), r.Disk.Forget(m.ID))
	}
	failpoint.Hit("tmuxd.attempt.begun")
	r.tell(a)
	return nil
}

// launch starts the wrapper in its pane. What becomes of it is the keeper's to find out. The turn is held.
func (r *Runner) launch(ctx context.Context, a *attempt, l *launching) {
	m := l.memory
	launchCtx, cancel := context.WithTimeout(ctx, launchTime)
	pane, err := r.Tmux.Launch(launchCtx, Launch{Target: m.Target, Stamp: m.Stamp, ID: m.ID, Argv: l.argv, Dir: m.Directory, Width: r.cfg.Width,
		Height: r.cfg.Height, Generation: random("g"), Token: m.Token})
	cancel()
	failpoint.Hit("tmuxd.attempt.launched")
	if err != nil {
		r.takeBack(ctx, a, "tmux did not start it: "+err.Error())
		return
	}
	if err := r.change(a, func(m *Memory) bool { m.Pane = pane; return true }); err != nil {
		// The pane says whose it is; what is missing here is read from it again.
		r.Logger.WarnContext(ctx, "the pane of an attempt could not be remembered", obs.KeyAttemptID, m.ID, obs.KeyError, err)
	}
}

// takeBack takes a launch back of which it is not known whether it began. Whoever unlinks the spec, the wrapper or we, was first: if it was the
// wrapper, something may run, and it is looked for. The turn is held.
func (r *Runner) takeBack(ctx context.Context, a *attempt, detail string) {
	if r.Disk.Revoke(a.recall().ID) {
		r.notLaunched(ctx, a, detail)
	}
}

// notLaunched settles an attempt of which it is certain that nothing runs. The turn is held.
func (r *Runner) notLaunched(ctx context.Context, a *attempt, detail string) {
	j := task.Judgement{Action: task.Settle, State: task.LaunchFailed, Reason: task.ReasonNotLaunched}
	if m := a.recall(); m.Order != nil {
		// It ended before it began, and that is what was ordered.
		j = task.Judge(task.Facts{Marker: task.NotLaunched, Order: m.Order.Kind})
	}
	r.settle(ctx, a, j, Marker{Detail: detail})
}

// young refuses a token below the host's floor, or older than one that was seen.
func (r *Runner) young(token, seen int64) error {
	switch floor := r.Disk.Floor(); {
	case token <= 0:
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "a fencing token above zero is required").
			WithRemedy("take the one of the lease under which this is done; by hand, any number above those used before")
	case token > lease.MaxToken:
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the fencing token %d is higher than any lease has", token).
			WithRemedy("take the one of the lease under which this is done; by hand, one of microseconds since 1970")
	case token < floor:
		return fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, the floor of this host", token, floor).
			WithRemedy("ask again under a new lease; by hand, take a number that is not below the floor")
	case token < seen:
		return fault.Newf(fault.Fenced, fault.ReasonOlderToken, "the fencing token %d is older than %d, which this attempt has seen", token, seen)
	}
	return nil
}

// mayAct is young, and remembers a newer token.
func (r *Runner) mayAct(token, seen int64) error {
	if err := r.young(token, seen); err != nil {
		return err
	}
	if err := r.Disk.RaiseToken(token); err != nil {
		return storage(err)
	}
	return nil
}

// fence is mayAct for an attempt, which remembers the token.
func (r *Runner) fence(a *attempt, token int64) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	if err := r.mayAct(token, a.recall().Token); err != nil {
		return err
	}
	return r.change(a, func(m *Memory) bool {
		newer := token > m.Token
		m.Token = max(m.Token, token)
		return newer
	})
}
