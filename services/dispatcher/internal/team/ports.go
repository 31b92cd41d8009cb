package team

import (
	"context"
	"time"

	rules "muxpost.dev/muxpost/core/team"
)

// Run is a run as it is recorded.
type Run struct {
	ID string
	// Spec is what was asked for. Where Unread is set it has the team's name alone.
	Spec rules.Spec
	// Unread says why its record cannot be read; empty where it can. Such a run stands still until a person acts.
	Unread string
	// Total is how many tasks it was created with.
	Total      int
	Phase      rules.Phase
	PhaseSince time.Time
	// Version counts the changes of what belongs to it.
	Version  int64
	FixLoops int
	// Ending is the terminal phase that was ordered, NoPhase for none; Reason and Detail say why it ends or ended, and EndedBy who said so.
	Ending  rules.Phase
	Reason  rules.Reason
	Detail  string
	EndedBy string
	// Waits is what it waits for that is not its own work, for people.
	Waits string
	// Who began it, and for which work item, if for one.
	Who, WorkItem string
	// Order names the order that it is begun by; empty for one without a name. It is not read back.
	Order string
	// Try is which of the item's it is; one that failed is begun again by itself Retries times, Backoff after the first failure, and twice as long after
	// each that follows. RetryAt is when; zero for never.
	Try, Retries int
	Backoff      time.Duration
	RetryAt      time.Time
	// Holder coordinates it under Epoch; Held is false once its lease has ended. Beat is when it last did something.
	Holder               string
	Epoch                int64
	Held                 bool
	Beat                 time.Time
	Traceparent, TraceID string
	CreatedAt, EndedAt   time.Time
}

// Task is a task or a step of a run as it is recorded.
type Task struct {
	rules.Item
	Version   int64
	UpdatedAt time.Time
}

// Problem says that a run's record cannot be read, and what to do; empty where it can.
func (r Run) Problem() string {
	switch {
	case r.Unread == "":
		return ""
	case r.Phase.Terminal():
		return "its record cannot be read: " + r.Unread + "; it is over, so nothing waits for it"
	}
	return "its record cannot be read: " + r.Unread + "; restore the database, or end it with `muxpost team abandon " + r.ID + "`"
}

// The states of an attempt in the records.
const (
	Claimed = "claimed"
	Running = "running"
	Over    = "ended"
)

// Attempt is one launch of a task: the claim, and what became of it.
type Attempt struct {
	ID, RunID, TaskID string
	// Number is which execution of the task it is.
	Number int
	// Epoch is that of the coordinator that has it, Token the fencing token under which its host is asked.
	Epoch, Token       int64
	Host, Worker       string
	Harness, Directory string
	// Check is true when Harness names a check of the host's table.
	Check bool
	// Repository and Branch are of the worktree that Directory is, Needs the commits that it must have before; empty for a directory as it is. Head is
	// the commit that it was left at, and Uncommitted how many files were not committed.
	Repository, Branch string
	Needs              []string
	Head               string
	Uncommitted        int
	Prompt             string
	State              string
	// Fenced is true once it was taken from its worker, and FenceReason says why.
	Fenced      bool
	FenceReason string
	Result      rules.Result
	Reason      string
	Detail      string
	// Code and Signal are how the command ended; nil when it did not end so, or that is not known.
	Code, Signal *int
	SecondHand   bool
	PaneID       string
	Target       string
	SocketPath   string
	// StartedAt and EndedAt are the command's, on its host's clock; the others are on the database's.
	StartedAt, EndedAt   time.Time
	ClaimedAt, SettledAt time.Time
	// SinceClaim is how long ago it was claimed when this was read, by the database's clock.
	SinceClaim time.Duration
	// HostAt, ProcessAt and ProgressAt are when its host last answered for it, its process was last seen alive, and it was last seen to make
	// progress: three facts, each vouched for by another.
	HostAt, ProcessAt, ProgressAt time.Time
	// Lapsed is true when nobody vouched for it within its lease, and Gone once it must have ended by itself, or its host was given up.
	Lapsed, Gone bool
	// Output is what it showed last, and Cut true when it showed more before.
	Output string
	Cut    bool
	// Owed is true while its host still has to be told that it is over.
	Owed bool
}

// Artifact is what a step left for those after it.
type Artifact struct {
	Name, AttemptID, Text string
	// Cut is true when Text is the end of it alone.
	Cut       bool
	CreatedAt time.Time
}

// Entry is one line of a run's history.
type Entry struct {
	At                time.Time
	What              string
	TaskID, AttemptID string
	From, To          string
	Reason, Detail    string
	Who               string
	Epoch             int64
}

// Known is a run with everything that a decision needs.
type Known struct {
	Run   Run
	Tasks []Task
	// Open are the attempts that are not over.
	Open []Attempt
	// Pauses hold back what would be handed out.
	Pauses []Pause
}

// Pause is an operator's word that nothing is begun: for one work item, or for all.
type Pause struct {
	WorkItem, Who, Reason string
	Since                 time.Time
}

// Before is what was left by earlier attempts: artifacts of the run, and the attempts of one task that are over, oldest first.
type Before struct {
	Artifacts []Artifact
	Attempts  []Attempt
}

// Claim hands a task out.
type Claim struct {
	RunID string
	Epoch int64
	// TaskID at Version, and in Phase.
	TaskID  string
	Version int64
	Phase   rules.Phase
	// Attempt is what it is handed out as: ID, Host, Worker, Harness, Directory, Check and Prompt.
	Attempt Attempt
	// Lease is how long it counts as vouched for, and GoneAfter after which time it has ended by itself if it ever begins.
	Lease, GoneAfter time.Duration
}

// Sight is what a host said of an attempt that is not over.
type Sight struct {
	PaneID, Target, SocketPath string
	StartedAt, ProgressAt      time.Time
	// Alive is true when its process was seen alive.
	Alive bool
	// GoneAfter is after which time it has ended by itself; zero leaves that as it is.
	GoneAfter time.Duration
}

// End is how an attempt ended, and what that makes of its task.
type End struct {
	RunID, AttemptID string
	Epoch            int64
	Result           rules.Result
	Reason, Detail   string
	Code, Signal     *int
	SecondHand       bool
	Sight            Sight
	EndedAt          time.Time
	Output           string
	Cut              bool
	Head             string
	Uncommitted      int
	// Why is one line for the task.
	Why  string
	Task rules.Change
	// Artifact is kept under the name, if there is one.
	Artifact, ArtifactText string
	// Owed has its host told, as soon as it answers, that it is over.
	Owed bool
}

// Step takes a run to another phase.
type Step struct {
	RunID          string
	Epoch, Version int64
	From           rules.Phase
	Decision       rules.Decision
}

// RunQuery selects runs, newest first.
type RunQuery struct {
	Team     string
	WorkItem string
	// Open leaves out those that are over.
	Open       bool
	BeforeTime time.Time
	BeforeID   string
	Limit      int
}

// Store keeps runs. Every change is one statement; those of a coordinator name its epoch and are fault.Fenced once another has the run. They
// return false when what they are about has changed meanwhile.
type Store interface {
	// OrderedRun returns the run that a named order began; false when it began none.
	OrderedRun(ctx context.Context, order string) (Run, bool, error)
	// CreateRun records a run with its tasks and its event, or returns the one that its order began before. Where the team has one that is not over
	// it is fault.AlreadyExists, and live is that.
	CreateRun(ctx context.Context, r Run) (made Run, live *Run, err error)
	// RetryRun begins a run again that failed and whose time has come, with the same spec; false when there is none. A run whose team has another since
	// is not begun again.
	RetryRun(ctx context.Context) (made Run, ok bool, err error)
	// TakeRuns takes the runs, at most so many, that are not over and that nobody holds, each with a new epoch. It tells the id, the epoch and the trace.
	TakeRuns(ctx context.Context, holder string, most int) ([]Run, error)
	// RenewRun keeps a run for the length of a lease more.
	RenewRun(ctx context.Context, id string, epoch int64) error
	// ReleaseRun lets a run go, so that another may take it at once.
	ReleaseRun(ctx context.Context, id string, epoch int64) error
	// ReleaseRuns lets all runs of a holder go, and ReleaseFormer those of every other holder of an instance. A holder's name has its instance behind
	// the last dot.
	ReleaseRuns(ctx context.Context, holder string) error
	ReleaseFormer(ctx context.Context, instance, holder string) (n int64, err error)
	KnownRun(ctx context.Context, id string) (Known, error)
	// Run returns a run alone.
	Run(ctx context.Context, id string) (Run, error)
	// Attempts returns the attempts of a run, or of one of its tasks, oldest first, without what they were told and what they showed.
	Attempts(ctx context.Context, runID, taskID string) ([]Attempt, error)
	// BeforeAttempt returns what is told to the next attempt of a task.
	BeforeAttempt(ctx context.Context, runID, taskID string) (Before, error)
	ClaimTask(ctx context.Context, c Claim) (Attempt, bool, error)
	// SawAttempt records what a host said of an attempt that is not over, and vouches for it for the length of a lease.
	SawAttempt(ctx context.Context, a Attempt, epoch int64, s Sight, lease time.Duration) (bool, error)
	// RenewToken draws a new fencing token for an attempt, and FenceAttempt does so and takes it from its worker.
	RenewToken(ctx context.Context, a Attempt, epoch int64) (token int64, err error)
	FenceAttempt(ctx context.Context, a Attempt, epoch int64, reason string) (token int64, err error)
	EndAttempt(ctx context.Context, e End) (bool, error)
	MoveRun(ctx context.Context, s Step) (bool, error)
	// NoteWait records what a run waits for, for people.
	NoteWait(ctx context.Context, id string, epoch int64, waits string) error
	// OrderEnd orders the end of a run that is not over; false when it is, or was ordered to end already. It returns the run as it stands.
	OrderEnd(ctx context.Context, id, who, detail string) (Run, bool, error)
	// AbandonRun ends a run at once under a new epoch, whoever holds it; what is under way of it is owed a stop. False when it is over.
	AbandonRun(ctx context.Context, id, who, detail string) (Run, bool, error)
	// NoteTree records that a working tree of a run was removed.
	NoteTree(ctx context.Context, runID, taskID, detail, who string) error
	// TakeOwed takes attempts whose hosts still have to be told that they are over, for as long as a lease lasts; PaidAttempt says that one was.
	TakeOwed(ctx context.Context, most int) ([]Attempt, error)
	PaidAttempt(ctx context.Context, id string) error
}

// Place says where a task is to run.
type Place struct {
	Harness string
	Labels  map[string]string
	// Only is the one host that will do; empty for any. Busy are how many attempts of the run are under way by host, and Avoid hosts to leave out
	// where there is another.
	Only  string
	Busy  map[string]int
	Avoid []string
}

// Launch asks a host for an attempt.
type Launch struct {
	ID, Harness, Directory, Prompt string
	Check                          bool
	Repository, Branch             string
	Needs                          []string
	Token                          int64
	Limit, Stall                   time.Duration
}

// Answer is what a host said of an attempt, or that it said nothing.
type Answer struct {
	Kind AnswerKind
	// Result, Reason, Detail, Code, Signal, SecondHand and EndedAt are of one that is over.
	Result       rules.Result
	Reason       string
	Detail       string
	Code, Signal *int
	SecondHand   bool
	EndedAt      time.Time
	Sight        Sight
	// Limit is how long it may last.
	Limit  time.Duration
	Output string
	// Cut is true when it showed more than Output, which is the end.
	Cut bool
	// Head and Uncommitted are of the worktree of one that is over.
	Head        string
	Uncommitted int
}

// AnswerKind says what an answer is.
type AnswerKind uint8

// The kinds of answers.
const (
	// Silent: the host did not answer; whether it did what was asked is not known.
	Silent AnswerKind = iota
	// Going: it is not over.
	Going
	// Unclear: the host answers, and does not know what became of it.
	Unclear
	// Done: it is over.
	Done
	// Unknown: the host has no such attempt.
	Unknown
	// Refused: the host will not run this, and nothing of it ran.
	Refused
	// Full: the host takes nothing on now, and nothing of it ran.
	Full
	// Fenced: the token is older than the host accepts.
	Fenced
)

// Hosts run attempts.
type Hosts interface {
	// PlaceTask chooses a host; empty with the reason when there is none now.
	PlaceTask(p Place) (host, why string)
	RunTask(ctx context.Context, host string, l Launch) Answer
	// Attempt asks for an attempt, with output for what it showed last.
	Attempt(ctx context.Context, host, id string, output bool) Answer
	// StopAttempt ends an attempt, or sees to it that it never begins.
	StopAttempt(ctx context.Context, host, id string, token int64, reason string) Answer
	// RemoveTaskTree removes a working tree in which nothing would be lost, or says why it is kept; missing is true when nothing was there.
	RemoveTaskTree(ctx context.Context, host string, r TreeRemoval) (kept string, missing bool, err error)
}

// TreeRemoval names a working tree that is to be removed. Unmerged has it removed too where its commits are on its branch alone; Dry does nothing.
type TreeRemoval struct {
	Repository, Directory, Branch string
	Unmerged, Dry                 bool
	Reason                        string
}

// Tree is a working tree of a run that was there, and why it is kept; empty when it is gone, or would be.
type Tree struct {
	Host, Directory, Branch, Kept string
}
