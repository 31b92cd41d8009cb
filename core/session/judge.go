package session

// Answer says what became of asking the tmux server.
type Answer uint8

// What can become of asking.
const (
	// NoAnswer is every failure that proves nothing: a timeout, a lost server, a missing binary, a refused permission.
	NoAnswer Answer = iota
	// NoServer is a connect(2) that was refused or found no socket: nobody listens there.
	NoServer
	// Answered is a reply of the server itself, known by its echoed nonce.
	Answered
)

// Process says what is known of a process that was remembered on disk.
type Process uint8

// What can be known of a remembered process.
const (
	// ProcessUnclear means that its record could not be read, so that nothing is proven.
	ProcessUnclear Process = iota
	// ProcessNone means that none was ever recorded.
	ProcessNone
	// ProcessGone means that its pid is free, or belongs to a process that started at another time.
	ProcessGone
	// ProcessAlive means that it lives.
	ProcessAlive
)

// Pane says what is known of the agent's recorded pane.
type Pane uint8

// What can be known of a pane.
const (
	// PaneUnread means that the panes could not be read.
	PaneUnread Pane = iota
	// PaneAlive means that the recorded pane is there with the recorded pid, and its process lives.
	PaneAlive
	// PaneDead means that the recorded pane is there with the recorded pid, and its process ended.
	PaneDead
	// PaneLost means that the recorded pane is not there, or that another pid is in it (a person's respawn-pane).
	PaneLost
)

// Sight is what was seen of one session in one look. The zero value saw nothing.
type Sight struct {
	// Answer is what became of asking the server.
	Answer Answer
	// Server is the tmux server's process as remembered on disk.
	Server Process
	// Session is true when the server has a session of exactly this name. It counts only with Answered.
	Session bool
	// Ours is true when that session carries the stamp of this work item.
	Ours bool
	// Pane is the agent's pane in that session.
	Pane Pane
	// OthersLive is true when a process other than the agent lives in that session.
	OthersLive bool
	// Wrapper is the wrapper's process (the agent's parent) as its record has it.
	Wrapper Process
	// Elsewhere is true when the recorded pane lives, with its pid, in a session of another name on the same server.
	Elsewhere bool
}

// Judge returns the state that a sight proves, its flags, and one line that says what it stands on.
func Judge(s Sight) (State, Flags, string) {
	switch s.Answer {
	case Answered:
		if s.Elsewhere && (!s.Session || s.Pane == PaneLost) {
			return Live, Moved, "the agent's pane lives in a session of another name"
		}
		if s.Session {
			return judgeSession(s)
		}
		return judgeGone(s, "the tmux server has no session of this name")
	case NoServer:
		switch s.Server {
		case ProcessNone:
			return judgeGone(s, "no tmux server was ever started for this work item")
		case ProcessGone:
			return judgeGone(s, "the tmux server of this work item is gone")
		case ProcessAlive:
			return Unknown, 0, "nobody listens on the socket, but the tmux server's process lives"
		case ProcessUnclear:
		}
		return Unknown, 0, "nobody listens on the socket, and the record of the tmux server cannot be read"
	case NoAnswer:
	}
	return Unknown, 0, "the tmux server did not answer"
}

func judgeSession(s Sight) (State, Flags, string) {
	if !s.Ours {
		return Live, Foreign, "the session of this name does not carry our stamp for this work item"
	}
	switch s.Pane {
	case PaneAlive:
		return Live, 0, "the agent's pane is alive"
	case PaneDead, PaneLost:
		what := "the agent's pane is dead"
		if s.Pane == PaneLost {
			what = "the agent's pane is gone or was given to another process"
		}
		if s.OthersLive {
			return Dead, Guests, what + ", and another process lives in the session"
		}
		// The pane can end before its process does (a program that closed its terminal): then the agent is still there.
		if s.Wrapper == ProcessAlive {
			return Live, Detached, what + ", but the agent's process lives on without it"
		}
		return Dead, 0, what
	case PaneUnread:
	}
	return Unknown, 0, "the session exists, but its panes could not be read"
}

// judgeGone judges a session that is certainly not there: the agent may have outlived it.
func judgeGone(s Sight, why string) (State, Flags, string) {
	switch s.Wrapper {
	case ProcessAlive:
		return Live, Detached, why + ", but the agent's process lives on without it"
	case ProcessUnclear:
		return Unknown, 0, why + ", and the record of the agent's process cannot be read"
	case ProcessNone, ProcessGone:
	}
	return Absent, 0, why
}
