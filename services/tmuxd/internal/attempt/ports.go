package attempt

import (
	"context"
	"errors"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/task"
)

// ErrNoAnswer means that nothing proves what a tmux server did: it may have run the act, it may still.
var ErrNoAnswer = errors.New("the tmux server did not answer")

// Tmux drives the private tmux servers of attempts, each named by its target. An error that is ErrNoAnswer proves nothing.
type Tmux interface {
	// Launch makes the tmux server of an attempt, with its one pane.
	Launch(ctx context.Context, l Launch) (Pane, error)
	// Look says what is to be seen of the pane that carries a stamp.
	Look(ctx context.Context, target, stamp string) (Seen, error)
	// Output returns the last lines of what the pane showed, control characters removed; ok is false when it is not there.
	Output(ctx context.Context, target string, p Pane) (out Output, ok bool, err error)
	// Free ends the attempt's tmux server, if everything in it is dead. It returns false when the server refused.
	Free(ctx context.Context, target string, p Pane) (bool, error)
	Servers
}

// Servers is the part of Tmux that reaches around its commands.
type Servers interface {
	// Tidy removes what a server leaves behind that is proven gone.
	Tidy(target string)
	// Nudge has a server that just answered look after its children: it can miss the end of one.
	Nudge(serverPid int)
	// Reopen has a server that is known to live make its socket again.
	Reopen(serverPid int)
}

// Launch is a pane to be made.
type Launch struct {
	Target, Stamp string
	// ID is the attempt's, which the pane says of itself.
	ID string
	// Argv is the program of the pane: run without a shell.
	Argv []string
	// Dir is where a person's further panes start.
	Dir           string
	Width, Height int
	// Generation is what the server will say of itself, and Token the fencing token.
	Generation string
	Token      int64
}

// Pane names the pane of an attempt, for as long as its tmux server lives. The zero value names none.
type Pane struct {
	Stamp, Generation string
	SessionID, ID     string
	// Wrapper is the process of the pane, and Server that of its tmux server.
	Wrapper, Server Process
	ServerStarted   time.Time
}

// Process names a process for good: its pid, its start in clock ticks since boot, and the boot. A zero start is filled in by the disk.
type Process struct {
	Pid   int
	Start uint64
	Boot  string
}

// Seen is what was seen of a pane. The zero value saw nothing.
type Seen struct {
	// Answer is what became of asking.
	Answer session.Answer
	// Pane and End are what the server says of it, with Answered: task.Alive, task.Dead or task.Gone.
	Pane task.Pane
	End  task.End
	// Found names the pane; zero unless it is there.
	Found Pane
	// Respawned is true where a person runs something else in it, or did.
	Respawned bool
}

// Disk keeps what outlives an attempt and tmuxd itself.
type Disk interface {
	Memories
	Outputs
	Runs
	Lives
	Trees
	Fences
}

// Memories are what is remembered of attempts.
type Memories interface {
	// Begin makes the place of an attempt, with its prompt in a file of its own. The error is fs.ErrExist when there is one of this id.
	Begin(id, prompt string) error
	// Remember stores a memory, so that it survives a power cut, and returns it with what names its processes for good.
	Remember(m Memory) (Memory, error)
	// Recall returns the memories of all attempts, and the ids of those that cannot be read. What was begun and never remembered is removed.
	Recall() (all []Memory, unreadable []string, err error)
	// Forget removes everything that is kept of an attempt.
	Forget(id string) error
}

// Output is what a pane showed last. Cut is true when it showed more before, which is not kept.
type Output struct {
	Text string
	Cut  bool
}

// Outputs are what the panes showed last.
type Outputs interface {
	Keep(id string, out Output) error
	// Kept returns what was kept; empty for nothing.
	Kept(id string) (Output, error)
}

// Runs are the wrapper's files.
type Runs interface {
	// PromptFile tells where the prompt of an attempt lies.
	PromptFile(id string) string
	// Prepare writes the spec of a run and returns the wrapper's command.
	Prepare(r Run) (argv []string, err error)
	// Revoke takes the spec back. It returns true when the wrapper had not begun and never will.
	Revoke(id string) bool
	// Marker reads the marker of an attempt.
	Marker(m Memory) Marker
}

// Run is what the wrapper is to run.
type Run struct {
	ID, Stamp string
	Argv, Env []string
	Dir       string
	// Stdin is true when the prompt is the standard input; otherwise there is nothing to read there.
	Stdin        bool
	Limit, Grace time.Duration
	NotAfter     time.Time
}

// Marker is what the wrapper of an attempt recorded.
type Marker struct {
	Kind  task.Marker
	End   task.End
	Cause task.Cause
	// Detail is one line for a person.
	Detail             string
	StartedAt, EndedAt time.Time
	// Remains are processes that it could not end.
	Remains []int
}

// Lives say which processes of attempts live. The wrapper is found by the marker, or else by the pane.
type Lives interface {
	// Alive says what is known of the wrapper's process, and ServerLives of the tmux server's.
	Alive(m Memory) session.Process
	ServerLives(m Memory) session.Process
	// Age is for how long the wrapper has lived, on a clock that nobody sets; ok is false when it cannot be told.
	Age(m Memory) (age time.Duration, ok bool)
}

// Trees are everything that the wrappers of attempts started.
type Trees interface {
	// Progress reads how far everything below the wrapper has come.
	Progress(m Memory) (Progress, error)
	// End signals everything below the wrapper, TERM or with hard KILL, and returns what of it lives.
	End(m Memory, hard bool) (left []int, err error)
	// EndWrapper kills the wrapper itself.
	EndWrapper(m Memory) error
}

// Progress is how far the processes of an attempt have come. Two that are equal saw no progress between them.
type Progress struct {
	// CPU is in clock ticks, IO in bytes that were read and written, files and terminals alike.
	CPU, IO uint64
	// Processes is a digest of which processes there are.
	Processes uint64
	// Stopped is true when one of them stands stopped.
	Stopped bool
}

// Fences keep which fencing tokens are too old.
type Fences interface {
	// Floor returns the lowest token that may act on this host; RaiseToken remembers a higher one as seen.
	Floor() int64
	RaiseToken(token int64) error
}

// Places are working directories.
type Places interface {
	// Directory checks a working directory, or makes it, and returns it without symbolic links.
	Directory(path string, make bool) (string, error)
	// MakePrivate makes a directory of a harness's own.
	MakePrivate(path string) error
}

// Worktrees make git worktrees for attempts, and remove one only on a person's order.
type Worktrees interface {
	// PrepareTask makes one where it is not there, and merges commits into it that it has not. What takes long is fault.Unavailable, goes on, and is
	// found when it is asked for again.
	PrepareTask(ctx context.Context, repository, directory, branch string, needs []string) error
	// Left says at which commit one was left, and how many files in it are not committed. One that cannot be read any more has no commit.
	Left(ctx context.Context, directory string) (head string, uncommitted int, err error)
	// RemoveTask removes one in which nothing would be lost, or says why it is kept; missing is true when nothing was there.
	RemoveTask(ctx context.Context, repository, directory, branch string, unmerged, dry bool) (kept string, missing bool, err error)
}

// Memory is what is remembered of an attempt.
type Memory struct {
	ID, Target string
	// Stamp is the nonce that its wrapper writes into the marker.
	Stamp     string
	Harness   string
	Directory string
	// Request is a digest of what was asked for, so that a repeat is told from another request.
	Request                  string
	Limit, StallLimit, Grace time.Duration
	// Token is the highest fencing token under which it was acted on.
	Token     int64
	CreatedAt time.Time
	Pane      Pane
	// Order is why it is being ended; nil when it is not.
	Order *Order
	// Outcome is how it ended; nil while it has not. It is written once.
	Outcome *Outcome
	// Freed is true once there is nothing left of it in tmux, or what is left is retained on purpose.
	Freed bool
	// Worktree is true when the directory is a worktree that was made for attempts.
	Worktree bool
}

// Order is why tmuxd ends an attempt. It is remembered before anything is signalled, so that a tmuxd that is started again goes on with it.
type Order struct {
	Kind task.Order
	// Reason is the caller's.
	Reason string
	Grace  time.Duration
	At     time.Time
}

// Outcome is how an attempt ended.
type Outcome struct {
	State      task.State
	Reason     task.Reason
	End        task.End
	SecondHand bool
	Detail     string
	// StartedAt and EndedAt are the command's; zero when they are not known. SettledAt is when it was found out.
	StartedAt, EndedAt, SettledAt time.Time
	// Remains are processes that outlived it.
	Remains []int
	// Retained is true when its pane is kept for a look.
	Retained bool
}
