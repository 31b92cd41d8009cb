package host

import (
	"context"
	"errors"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// ErrNoAnswer means that nothing proves what a tmux server did: it may have run the act, it may still.
var ErrNoAnswer = errors.New("the tmux server did not answer")

// ErrDuplicate means that tmux said that a session of this name exists. It is text, and decides only whether to look again.
var ErrDuplicate = errors.New("tmux says that a session of this name exists")

// Tmux drives the private tmux servers, each named by its session's target. An error that is ErrNoAnswer proves nothing; a false
// without an error means that the guard refused, inside the server.
type Tmux interface {
	// Dial says whether somebody listens on the server's socket.
	Dial(target string) session.Answer
	// Observe reads everything on the server in one look.
	Observe(ctx context.Context, target string) (View, error)
	// Capture reads the screen of the incarnation's pane.
	Capture(ctx context.Context, target string, g Guard) (Screen, bool, error)
	// Create makes the session, and the server for it where there is none.
	Create(ctx context.Context, s NewSession) (Created, error)
	// Advance gives the server a new generation: after it answered, no act of an earlier one can run.
	Advance(ctx context.Context, target, generation string) error
	Typist
	Terminals
	Lister
	Visits
	Reader
	Ender
}

// Terminals is the part of Tmux that reaches around its commands.
type Terminals interface {
	// Nudge makes the server collect a child whose end it missed. It is harmless at any time.
	Nudge(server Server)
	// Reopen makes the server make its socket again.
	Reopen(server Server)
	// Unread returns how much of what was typed the program of a pane has not read yet; ok is false when it cannot be told.
	Unread(tty string) (n int, ok bool)
	// Stopped says whether a program of a pane is stopped, as by SIGSTOP.
	Stopped(tty string) bool
}

// Typist is the part of Tmux that types and keeps the record of it, each call one guarded list.
type Typist interface {
	// Paste puts text into the pane and writes the ring: only if the delivery has no phase, or with again, if it is pasted.
	Paste(ctx context.Context, target string, g Guard, p Text) (Ruling, error)
	// Submit sends a lone CR and writes the ring, only from the phase from and with no dialog in sight.
	Submit(ctx context.Context, target string, g Guard, id string, from session.Phase, l Look, ring session.Ring) (Ruling, error)
	// Intend writes the ring under the whole guard of a mutation, only from the phase from; None means that the ring has the delivery in none.
	Intend(ctx context.Context, target string, g Guard, id string, from session.Phase, ring session.Ring) (Ruling, error)
	// Record writes the ring, only from the phase from.
	Record(ctx context.Context, target string, g Guard, id string, from session.Phase, ring session.Ring) (Ruling, error)
}

// ErrNobodyListens means that a channel was not reached, or refused to speak: nothing was handed over by that call.
var ErrNobodyListens = errors.New("nobody listens at the agent's channel")

// Channels speak with agents that take deliveries by themselves, each over a socket of its session's. An error other than ErrNobodyListens
// proves nothing: what was handed over may have arrived, or may still.
type Channels interface {
	// Socket is where the agent of an incarnation listens. Clear removes what it left there.
	Socket(stamp string) string
	Clear(stamp string)
	// Ask asks how things stand with one delivery. It changes nothing.
	Ask(ctx context.Context, l Line, id string) (Standing, error)
	// Hand hands one over, unless the agent has it, or cannot take it now, and says how things stand then. It is safe to repeat: the agent takes
	// a delivery once in its life.
	Hand(ctx context.Context, l Line, o Offer) (Standing, error)
}

// Line is a channel to an agent.
type Line struct {
	// Kind is the harness's Channel.
	Kind string
	// Stamp is the incarnation.
	Stamp string
	// Conversation is the one that it goes on with if nobody began another; empty when not known.
	Conversation string
}

// Offer is one delivery for an agent.
type Offer struct {
	ID, Text string
	// Busy allows it while a turn runs.
	Busy bool
	// Again is true when an earlier call may have handed it over.
	Again bool
}

// Standing says how things stand with a delivery at an agent.
type Standing struct {
	// Taken is true when it is in the conversation, and Queued when the agent has it and will take it.
	Taken, Queued bool
	// Conversation is the one that the agent would take it into, or took it into; empty when there is none yet.
	Conversation string
	// Busy is true while a turn runs, and Dialog while a question waits for a person.
	Busy, Dialog bool
}

// Ruling is what a guard inside the server said to an act: done, or the first part of it that did not hold.
type Ruling uint8

// The rulings. The zero value says that nothing is known.
const (
	Unruled Ruling = iota
	Done
	// NotIncarnation: the pane is not that of the incarnation, or is not there.
	NotIncarnation
	NotGeneration
	PaneDead
	InputOff
	OlderToken
	// TooLate: the deadline was over when the server came to it.
	TooLate
	// CursorMoved: the cursor stands elsewhere than where the screen was looked at, or hides or shows now.
	CursorMoved
	// DialogOrPhase: everything else held, so a dialog opened, or the delivery is in another phase.
	DialogOrPhase
)

// Text is what a paste puts into the pane.
type Text struct {
	ID    string
	Typed string
	// Again allows the paste of a delivery that is pasted already.
	Again bool
	// Look is the screen that it is meant for.
	Look Look
	// Ring is what the session remembers afterwards.
	Ring session.Ring
}

// Server is what a tmux server says of itself.
type Server struct {
	Pid     int
	Started time.Time
	Version string
}

// Pane is one pane of a server.
type Pane struct {
	Session   string
	SessionID string
	ID        string
	Pid       int
	Dead      bool
	// Status and Signal say how a dead pane's process ended; both are empty when tmux missed it.
	Status, Signal string
	InputOff       bool
	// TTY is the pane's terminal.
	TTY string
	// What the pane's session says of itself; empty when it says nothing.
	Stamp, Item, AgentPane, AgentPid, Ring, Harness, Conversation string
	// Fence is the highest fencing token under which it was acted on; -1 when somebody wrote something else there.
	Fence int64
}

// View is one look at everything on a server.
type View struct {
	Server   Server
	Sessions []string
	Panes    []Pane
	// PanesRead is false when the server answered and did not list its panes.
	PanesRead  bool
	Generation string
}

// Screen is what a pane shows, with what else was read in the same look.
type Screen struct {
	harness.Screen
	Dead, InputOff bool
	Ring           string
	// LastKey is when somebody last pressed a key in a terminal that is attached and may type.
	LastKey Keypress
	// Attended is true when somebody looks at the session in a terminal.
	Attended bool
}

// Keypress is when a key was pressed, to the second.
type Keypress struct {
	// Known is false when no terminal is attached that may type.
	Known bool
	Ago   time.Duration
}

// Guard is what must hold inside the server, at the moment of an act, for the act to be done.
type Guard struct {
	// Stamp, Pane and Pid name the incarnation: a person's respawn-pane keeps the first two.
	Stamp string
	Pane  string
	Pid   int
	// Session is the id of the session that the pane was seen in.
	Session string
	// Generation is the server's generation; an act of an earlier one never runs.
	Generation string
	// Token is the fencing token; an act under an older token than the session has seen never runs.
	Token int64
	// NotAfter is the deadline on the wall clock, a second line of defence with a resolution of one second.
	NotAfter time.Time
}

// Cursor is where a cursor stands, from 0.
type Cursor struct{ X, Y int }

// Look is how the screen must still be for a text or a submit to go into it.
type Look struct {
	// Cursor is where the cursor must stand; it must show or, with CursorHidden, hide there.
	Cursor       Cursor
	CursorHidden bool
	// Dialogs are patterns (POSIX extended) of which no row may match one.
	Dialogs []string
	// DialogTitles are beginnings that the pane's title may not have.
	DialogTitles []string
}

// NewSession is a session to be made.
type NewSession struct {
	Target string
	// Argv is the program of its pane: run without a shell.
	Argv []string
	// Dir is where a person's further panes start.
	Dir           string
	Width, Height int
	// What the session will say of itself.
	Stamp, Item, Harness, Conversation, Generation string
	// Title is how the title of its pane tells what its program does; nil where that tells nothing.
	Title *Title
	Ring  session.Ring
	Token int64
}

// Title is how the title of a pane tells what its program does, and where tmux is to note that.
type Title struct {
	// Note is a file: tmux writes a word into it whenever it is another one.
	Note string
	// Busy matches the title during a turn (POSIX extended). Dialogs are its beginnings while a dialog waits, which count first.
	Busy    string
	Dialogs []string
}

// Created is a session that was made.
type Created struct {
	Server    Server
	SessionID string
	Pane      string
	Pid       int
}

// Disk keeps what outlives a session and tmuxd itself.
type Disk interface {
	Memories
	Roster
	Floors
	Journal
	Runs
	Ends
	Notes
	// Transcripts calls match with the lines of the files that a pattern (as in path/filepath) names and that changed after since,
	// until it returns false. read holds how far each file was read by its path: what is before that is left out, and it is brought up to
	// date; nil reads everything.
	Transcripts(pattern string, since time.Time, read map[string]int64, match func(path string, line []byte) bool) error
	// LastLine returns the last line that match takes, near the end of the newest file that a pattern names and that changed after since; empty for
	// none.
	LastLine(pattern string, since time.Time, match func(line []byte) bool) string
	// Directory checks or makes a working directory, and returns it without symbolic links.
	Directory(path string, make bool) (string, error)
	// MakePrivate makes a directory of a harness's own.
	MakePrivate(path string) error
	// Provide puts a text into a private file, with the directories that it lacks, unless it is there.
	Provide(path, text string) error
}

// Trees makes the directories that agents work in.
type Trees interface {
	// Place says where the agent of a work item works, whether that is there or not.
	Place(item workitem.Ref) string
	// Prepare makes it where it is not there. What takes long goes on: the error is fault.Unavailable then, and asking again finds it.
	Prepare(ctx context.Context, item workitem.Ref) error
	// Unsaved says in a line what the tree that a work item's agent works in has that is not committed or not pushed, or that it cannot be told; empty
	// for nothing, and for a plain directory, of which nobody can tell.
	Unsaved(ctx context.Context, item workitem.Ref, directory string) string
}

// Notes are what programs tell of what they do: a small file for each incarnation, written by the program or by tmux.
type Notes interface {
	// NotePath is where an incarnation tells what it does.
	NotePath(target, stamp string) string
	// Note reads it; ok is false when nothing was told.
	Note(target, stamp string) (n Note, ok bool)
}

// Note is what a program told last. It is anybody's text: nothing that is typed or ended may follow from it.
type Note struct {
	// Word is one of the words of notedWords; others say nothing.
	Word string
	// Conversation is the one that is open, where the program says so.
	Conversation string
	// Detail is a line for a person.
	Detail string
	// At is when it was told.
	At time.Time
}

// Memories remember the last incarnation of each target, and the highest fencing token of each target and of all.
type Memories interface {
	// Recall returns the memory of a target; known is false when there is none. An error means that it cannot be told.
	Recall(target string) (m Memory, known bool, err error)
	Remember(m Memory) error
	// ServerLives says whether the remembered tmux server's process lives.
	ServerLives(m Memory) session.Process
	// Token returns the highest fencing token seen on this host; RaiseToken raises it.
	Token() int64
	RaiseToken(token int64) error
}

// Memory is what is remembered of a target's last incarnation.
type Memory struct {
	Target       string
	WorkItem     string
	Stamp        string
	Harness      string
	Conversation string
	Directory    string
	SessionID    string
	PaneID       string
	PanePid      int
	Server       Server
	// ServerStart names the server's process for good: its start in clock ticks, and the boot.
	ServerStart uint64
	Boot        string
	CreatedAt   time.Time
	// Resumed is true of an incarnation that was started with an earlier conversation, until its end was told as that of a failed resume.
	Resumed bool
	// Tells is true of an incarnation that was started so that it tells what it does.
	Tells bool
	// Token is the highest fencing token under which the target was acted on.
	Token int64
}

// Journal is the append-only memory of deliveries, which outlives sessions.
type Journal interface {
	// Append writes an entry; synced means that it must survive a power cut before the call returns.
	Append(target string, e Entry, synced bool) error
	// Entries returns the entries of one delivery, oldest first.
	Entries(target, id string) ([]Entry, error)
}

// Entry is one line of the journal.
type Entry struct {
	Time  time.Time
	ID    string
	Phase session.Phase
	// The incarnation, and the conversation it ran.
	Stamp, Harness, Conversation, Directory string
}

// Runs are the wrapper's files.
type Runs interface {
	// Prepare writes the spec of a run and returns the wrapper's command.
	Prepare(r Run) (argv []string, err error)
	// Revoke takes the spec back. It returns true when the wrapper had not begun and never will.
	Revoke(stamp string) bool
	// Ran returns what the wrapper recorded of an incarnation.
	Ran(target, stamp string) (Ran, error)
	// PromptFile tells where the prompt of an incarnation lies, and Discard removes it.
	PromptFile(stamp string) string
	Discard(stamp string)
}

// Run is what the wrapper is to run.
type Run struct {
	Target, Stamp string
	Argv, Env     []string
	Dir           string
	// Companion serves the program, and listens at CompanionSocket; both empty for none.
	Companion       []string
	CompanionSocket string
	Prompt          string
	// PromptFile is where Prompt is put; empty for none.
	PromptFile string
	NotAfter   time.Time
}

// Ran is what the wrapper recorded.
type Ran struct {
	// Known is false when there is no record.
	Known bool
	// Process says whether anything of it lives: the wrapper, the harness, or what that started.
	Process session.Process
	// Reached is true when the harness was started, so that it may have read its prompt.
	Reached bool
	// Ended is true when the harness ended; Exit says how.
	Ended bool
	Exit  Exit
	// Detail is one line for a person.
	Detail string
}

// Exit says how a process ended. The zero value means that nobody knows.
type Exit struct {
	Known bool
	// Signal is the signal's number, zero when it exited by itself with Code.
	Signal int
	Code   int
	At     time.Time
}
