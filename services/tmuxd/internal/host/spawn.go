package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// SpawnRequest asks for a session.
type SpawnRequest struct {
	Item    workitem.Ref
	Harness string
	// Resume is the conversation to start with; empty for a new one.
	Resume    string
	Directory string
	// DeliveryID and Text are the event that becomes the first prompt; both empty for none.
	DeliveryID string
	Text       string
	Token      int64
}

// SpawnOutcome says what came of a spawn.
type SpawnOutcome uint8

// What can come of a spawn. The zero value may be asked again.
const (
	SpawnFailed SpawnOutcome = iota
	SpawnStarted
	SpawnOccupied
	SpawnNotStarted
)

// String returns the outcome's name, for the log.
func (o SpawnOutcome) String() string {
	return [...]string{SpawnFailed: "failed", SpawnStarted: "started", SpawnOccupied: "occupied", SpawnNotStarted: "not_started"}[o]
}

// Occupant says what holds a name.
type Occupant uint8

// What can hold a name.
const (
	OccupantLive Occupant = iota
	OccupantForeign
	OccupantUnclearable
)

// SpawnResult is what came of a spawn.
type SpawnResult struct {
	Outcome     SpawnOutcome
	Target      string
	Incarnation Incarnation
	// With SpawnStarted: the conversation, whether it is the one that was asked for, the directory, the phase of the first prompt,
	// and whether this answers for an earlier spawn of the same delivery.
	Conversation string
	Resumed      bool
	Directory    string
	PromptPhase  session.Phase
	AlreadyDone  bool
	// With SpawnOccupied.
	Occupant Occupant
	Remedy   string
	// With SpawnNotStarted.
	Exit      Exit
	LastLines []string
	// Failure is why, where the last lines tell.
	Failure harness.Failure
	// Reason and Detail explain SpawnFailed and SpawnOccupied.
	Reason, Detail string
}

// spawning is one spawn under way.
type spawning struct {
	h       *Host
	slot    *slot
	req     SpawnRequest
	target  string
	harness *harness.Harness
	dir     string
	text    string // as it is typed; empty for none
	news    int    // new-sessions tried
	kills   int
	sight   sight
}

// Spawn starts a session. It never touches a live one; a dead one is cleared only after it was seen dead, and that is verified.
func (h *Host) Spawn(ctx context.Context, req SpawnRequest) (SpawnResult, error) {
	sp := &spawning{h: h, req: req, target: req.Item.Target()}
	if err := sp.check(ctx); err != nil {
		return SpawnResult{}, err
	}
	slot, release, err := h.acquire(ctx, sp.target)
	if err != nil {
		return SpawnResult{}, err
	}
	defer release()
	sp.slot = slot
	if sp.sight, err = h.lookOwned(ctx, slot, req.Item); err != nil {
		return SpawnResult{Target: sp.target, Outcome: SpawnFailed, Reason: "tmux_no_answer", Detail: err.Error()}, nil
	}
	if err := h.fence(sp.sight, req.Token); err != nil {
		return SpawnResult{}, err
	}
	if stamp := sp.sight.memory.Stamp; stamp != "" {
		// A start that an earlier life of tmuxd sent, and that tmux has not run yet, must not land beside this one.
		h.Disk.Revoke(stamp)
	}
	if r, done := sp.alreadyDone(); done {
		return r, nil
	}
	if sp.resumeDied() {
		return sp.tellResumeDied(ctx)
	}
	if req.DeliveryID != "" {
		switch phase, err := h.phase(sp.sight, req.DeliveryID); {
		case err != nil:
			return SpawnResult{}, storage(err)
		case phase.MayHaveArrived():
			r := failed("prompt_may_have_arrived", "the delivery may be in the conversation already (phase "+phase.String()+"): start without it, then paste it")
			r.Target = sp.target
			return r, nil
		}
	}
	r, err := sp.run(ctx)
	failpoint.Hit("tmuxd.spawn.answering")
	r.Target = sp.target
	return r, err
}

// check refuses what can never work, before anything is asked of tmux.
func (sp *spawning) check(ctx context.Context) error {
	h, req := sp.h, sp.req
	if !workitem.ValidTarget(sp.target) {
		return fault.Newf(fault.Internal, "", "the target %q is not safe to pass to tmux", sp.target)
	}
	var err error
	if sp.harness, err = h.Table.Find(req.Harness); err != nil {
		return err
	}
	if sp.harness.Resolved() == "" {
		return fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the program %q of the harness %q is not installed on this host",
			sp.harness.Binary, sp.harness.Name).WithRemedy("install it, or correct tmuxd.harnesses." + sp.harness.Name + ".binary")
	}
	if !sp.harness.Interactive() {
		return fault.Newf(fault.Invalid, fault.ReasonUnknownHarness, "the harness %q runs tasks alone: its entry does not say how its screen reads", sp.harness.Name).
			WithRemedy("write tmuxd.harnesses." + sp.harness.Name + ".prompt and .fresh")
	}
	if req.Resume != "" && !sp.harness.Resumes() {
		return fault.Newf(fault.Invalid, fault.ReasonCannotResume, "the harness %q cannot resume a conversation", sp.harness.Name)
	}
	if req.Resume != "" && !sp.harness.ValidConversation(req.Resume) {
		return fault.New(fault.Invalid, fault.ReasonCannotResume, "the conversation id is malformed, so it is not passed to the program")
	}
	if req.DeliveryID != "" {
		if !session.ValidDeliveryID(req.DeliveryID) {
			return badDeliveryID(req.DeliveryID)
		}
		clean, _, err := prompt.Clean(req.Text)
		if err != nil {
			return err
		}
		sp.text = prompt.Typed(req.DeliveryID, clean)
	}
	asked := req.Directory
	if m, known, err := h.Disk.Recall(sp.target); asked == "" && req.Resume != "" && err == nil && known && m.Conversation == req.Resume {
		asked = m.Directory // programs look for a conversation where it was
	}
	sp.dir, err = h.directory(ctx, req.Item, asked)
	return err
}

// alreadyDone answers for an earlier spawn of the same delivery: its incarnation lives and has the delivery in its ring.
func (sp *spawning) alreadyDone() (SpawnResult, bool) {
	s := sp.sight
	id := sp.req.DeliveryID
	if id == "" || s.state != session.Live || s.flags != 0 || s.ring().Phase(id) == session.None {
		return SpawnResult{}, false
	}
	return SpawnResult{Outcome: SpawnStarted, Target: sp.target, Incarnation: s.incarnation(), Conversation: s.pane.Conversation,
		Resumed: sp.req.Resume != "" && s.pane.Conversation == sp.req.Resume, Directory: s.status().Directory,
		PromptPhase: s.ring().Phase(id), AlreadyDone: true}, true
}

// lateDeath is how long after its start a resumed program may give up its conversation. Some take half a minute to say that they do not know
// it, which is longer than a start can be watched.
const lateDeath = time.Minute

// resumeDied reports whether the last incarnation was started with the same conversation and gave it up by itself soon after. To start it
// once more would go on for ever.
func (sp *spawning) resumeDied() bool {
	s, m := sp.sight, sp.sight.memory
	if !m.Resumed || sp.req.Resume == "" || m.Conversation != sp.req.Resume || s.state != session.Dead && s.state != session.Absent {
		return false
	}
	exit := s.exit()
	return exit.Known && exit.Signal == 0 && exit.Code != 0 && !exit.At.IsZero() && exit.At.Sub(m.CreatedAt) < lateDeath
}

// tellResumeDied answers for the resume that was tried before. The next one is tried again.
func (sp *spawning) tellResumeDied(ctx context.Context) (SpawnResult, error) {
	m := sp.sight.memory
	r := sp.notStarted(ctx, m, sp.sight.ran)
	r.Target = sp.target
	m.Resumed = false
	if err := sp.h.Disk.Remember(m); err != nil {
		return SpawnResult{}, storage(err)
	}
	return r, nil
}

// run is table C: pre-flight, one new-session, and after a duplicate one more look and one more try.
func (sp *spawning) run(ctx context.Context) (SpawnResult, error) {
	// What is not to be started does not cost the remains of what was there before either.
	if step := session.Preflight(sp.sight.state, sp.sight.flags, false); step == session.Proceed || step == session.Clear {
		taken, err := sp.h.reserve(sp.req.Item)
		if err != nil {
			return SpawnResult{}, err
		}
		defer taken()
	}
	for present := false; ; present = true {
		r, proceed, err := sp.preflight(ctx, present)
		if err != nil || !proceed {
			return r, err
		}
		r, err = sp.create(ctx)
		if !errors.Is(err, ErrDuplicate) {
			return r, err
		}
		if sp.news == 2 {
			return failed("duplicate", "tmux said twice that the session exists, and a look said that it does not"), nil
		}
		// Whoever made it gave its server a generation of its own.
		if sp.sight, err = sp.h.lookOwned(ctx, sp.slot, sp.req.Item); err != nil {
			return failed("tmux_no_answer", err.Error()), nil
		}
	}
}

func failed(reason, detail string) SpawnResult {
	return SpawnResult{Outcome: SpawnFailed, Reason: reason, Detail: detail}
}

// preflight says whether the name may be used, and clears a dead incarnation.
func (sp *spawning) preflight(ctx context.Context, present bool) (SpawnResult, bool, error) {
	step := session.Preflight(sp.sight.state, sp.sight.flags, present)
	if step == session.Clear {
		stamp := sp.sight.incarnation().Stamp
		answered := sp.kills == 0 && sp.clear(ctx)
		step = session.AfterClear(sp.sight.state, sp.sight.flags)
		if step == session.RefuseUnclearable && !sp.sight.flags.Has(session.Guests) && (!answered || sp.sight.incarnation().Stamp != stamp) {
			// Only what stands there after an answered kill cannot be cleared. Its own remains must not cost an event.
			return failed("not_cleared", "the remains of the session could not be cleared this time"), false, nil
		}
	}
	switch step {
	case session.Proceed:
		return sp.awaitServerGone(ctx)
	case session.RefuseLive:
		if sp.sight.flags.Has(session.Foreign) {
			return sp.occupied(OccupantForeign), false, nil
		}
		return sp.occupied(OccupantLive), false, nil
	case session.RefuseUnclearable:
		return sp.occupied(OccupantUnclearable), false, nil
	case session.Wait, session.Clear:
	}
	return failed("tmux_no_answer", sp.sight.why), false, nil
}

// clear ends the incarnation that was seen dead, and looks again. What the kill itself says does not matter, only whether it was answered.
func (sp *spawning) clear(ctx context.Context) (answered bool) {
	h := sp.h
	sp.kills++
	actCtx, cancel := context.WithTimeout(ctx, actTime)
	_, err := h.Tmux.Remove(actCtx, sp.target, Removal{Stamp: sp.sight.incarnation().Stamp, Generation: sp.slot.generation, Dead: true})
	cancel()
	failpoint.Hit("tmuxd.spawn.cleared")
	answered = !noAnswer(err)
	if !answered {
		// It may still run: with the generation moved on it cannot. Where that gets no answer either, the server may be ending just now. What
		// runs late can only clear the incarnation that was seen dead.
		if err := h.advance(ctx, sp.slot, sp.target); err != nil {
			h.Logger.InfoContext(ctx, "a kill got no answer", obs.KeyTarget, sp.target, obs.KeyError, err)
		}
	}
	for range 40 {
		sp.sight = h.look(ctx, sp.req.Item)
		// The server ends a moment after its last session: until its process is gone, nothing is proven.
		if sp.sight.state != session.Unknown || !pause(ctx, 25*time.Millisecond) {
			break
		}
	}
	return answered
}

// awaitServerGone waits for the end of an old server: a new-session sent into its last moments would be lost with it. A server that
// stays, because somebody else has a session on it, is used.
func (sp *spawning) awaitServerGone(ctx context.Context) (SpawnResult, bool, error) {
	m := sp.sight.memory
	for range 80 {
		lives := sp.h.Disk.ServerLives(m)
		if lives != session.ProcessAlive || len(sp.sight.view.Sessions) > 0 {
			return SpawnResult{}, true, nil
		}
		if !pause(ctx, 25*time.Millisecond) {
			break
		}
	}
	return failed("server_remains", "the old tmux server has no session left and does not end"), false, nil
}

func (sp *spawning) occupied(o Occupant) SpawnResult {
	r := SpawnResult{Outcome: SpawnOccupied, Occupant: o, Incarnation: sp.sight.incarnation(), Detail: sp.sight.why}
	if o != OccupantLive {
		r.Remedy = fmt.Sprintf("look at it with `muxpost attach %s`; if nobody needs it, free the name with `tmux -N -S <socket> kill-session -t '=%s:'`",
			sp.req.Item, sp.target)
	}
	return r
}

// create starts the session. Its own end is watched for the survival window.
func (sp *spawning) create(ctx context.Context) (SpawnResult, error) {
	h, hn, req := sp.h, sp.harness, sp.req
	if err := h.Disk.MakePrivate(hn.StateDir()); err != nil {
		return SpawnResult{}, storage(err)
	}
	for path, text := range hn.Files() {
		if err := h.Disk.Provide(path, text); err != nil {
			return SpawnResult{}, storage(err)
		}
	}
	stamp, conversation := random("s"), req.Resume
	if conversation == "" && hn.Assigns() {
		conversation = uuid.NewString()
	}
	note := h.Disk.NotePath(sp.target, stamp)
	vars := harness.Vars{ConversationID: conversation, Dir: sp.dir, Note: note}
	if hn.HandsOver() {
		vars.Socket = h.Channels.Socket(stamp)
		h.Channels.Clear(sp.sight.memory.Stamp)
	}
	boots := sp.text != "" && hn.TakesPrompt()
	run := Run{Target: sp.target, Stamp: stamp, Dir: sp.dir, NotAfter: h.Now().Add(createTime)}
	ring := session.Ring{}
	if boots {
		vars.PromptFile = h.Disk.PromptFile(stamp)
		run.Prompt, run.PromptFile = sp.text, vars.PromptFile
		ring = ring.With(req.DeliveryID, session.Boot)
		// A conversation outlives a reboot by resume, so the intent has to as well.
		if err := h.Disk.Append(sp.target, sp.entry(session.Boot, stamp, conversation), true); err != nil {
			return SpawnResult{}, storage(err)
		}
		failpoint.Hit("tmuxd.spawn.journalled")
	}
	if run.Companion = hn.CompanionArgv(vars); len(run.Companion) > 0 {
		run.CompanionSocket = vars.Socket
	}
	run.Argv, run.Env = hn.Argv(req.Resume != "", vars), hn.Environ(h.Getenv, vars)
	argv, err := h.Disk.Prepare(run)
	if err != nil {
		return SpawnResult{}, storage(err)
	}
	failpoint.Hit("tmuxd.spawn.prepared")
	m := Memory{Target: sp.target, WorkItem: req.Item.String(), Stamp: stamp, Harness: hn.Name, Conversation: conversation,
		Directory: sp.dir, CreatedAt: h.Now(), Resumed: req.Resume != "", Tells: hn.Tells(), Token: req.Token}
	// The stamp is remembered first: a crash from here on finds the wrapper's record by it.
	if err := h.Disk.Remember(m); err != nil {
		return SpawnResult{}, storage(err)
	}
	failpoint.Hit("tmuxd.spawn.remembered")
	generation := random("g")
	sp.news++
	createCtx, cancel := context.WithTimeout(ctx, createTime)
	made, err := h.Tmux.Create(createCtx, NewSession{Target: sp.target, Argv: argv, Dir: sp.dir, Width: h.cfg.Width, Height: h.cfg.Height,
		Stamp: stamp, Item: req.Item.String(), Harness: hn.Name, Conversation: conversation, Generation: generation, Title: title(hn, note),
		Ring: ring, Token: req.Token})
	cancel()
	failpoint.Hit("tmuxd.spawn.created")
	switch {
	case noAnswer(err):
		return sp.resolve(ctx, m)
	case err != nil:
		h.Disk.Revoke(stamp)
		if errors.Is(err, ErrDuplicate) {
			return SpawnResult{}, ErrDuplicate
		}
		return failed("tmux_error", err.Error()), nil
	}
	sp.slot.generation = generation
	m.SessionID, m.PaneID, m.PanePid, m.Server = made.SessionID, made.Pane, made.Pid, made.Server
	if err := h.Disk.Remember(m); err != nil {
		// The session describes itself; what is missing here is read from it again.
		h.Logger.WarnContext(ctx, "the memory of a session could not be written", obs.KeyTarget, sp.target, obs.KeyError, err)
	}
	return sp.watch(ctx, m, boots)
}

// title is how the title of its pane tells what a program does; nil where it tells nothing.
func title(hn *harness.Harness, note string) *Title {
	if !hn.TellsByTitle() {
		return nil
	}
	return &Title{Note: note, Busy: hn.BusyTitle, Dialogs: hn.DialogTitles}
}

func (sp *spawning) entry(phase session.Phase, stamp, conversation string) Entry {
	return Entry{Time: sp.h.Now(), ID: sp.req.DeliveryID, Phase: phase, Stamp: stamp, Harness: sp.harness.Name, Conversation: conversation,
		Directory: sp.dir}
}

// resolve settles a start that got no answer: with its spec taken back it cannot take effect later; if the wrapper was quicker, the
// session is looked for by its stamp.
func (sp *spawning) resolve(ctx context.Context, m Memory) (SpawnResult, error) {
	if sp.h.Disk.Revoke(m.Stamp) {
		return failed("tmux_no_answer", "tmux did not answer the start in time, and the start was taken back"), nil
	}
	sp.slot.generation = ""
	s := sp.h.look(ctx, sp.req.Item)
	if s.state == session.Live && s.pane != nil && s.pane.Stamp == m.Stamp {
		m.SessionID, m.PaneID, m.PanePid, m.Server = s.pane.SessionID, s.pane.ID, s.pane.Pid, s.view.Server
		if err := sp.h.Disk.Remember(m); err != nil {
			return SpawnResult{}, storage(err)
		}
		return sp.watch(ctx, m, sp.text != "" && sp.harness.TakesPrompt())
	}
	return failed("tmux_no_answer", "tmux did not answer the start in time; the next look tells what came of it"), nil
}
