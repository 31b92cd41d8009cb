package stack

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/workitem"
)

// dialTime is long for a connection on one machine.
const dialTime = 500 * time.Millisecond

// Agent is a tmux server that somebody listens on, as its socket shows it.
type Agent struct {
	Target string `json:"target"`
	// WorkItem is empty when tmuxd's memory of the session cannot be read.
	WorkItem string `json:"work_item,omitempty"`
	Socket   string `json:"socket"`
	// Answers is false when nobody could be reached although the socket may be in use.
	Answers bool `json:"answers"`
}

// Agents returns the tmux servers of this installation that run, or that may: a socket on which nobody listens is none.
func (s *Stack) Agents() ([]Agent, error) {
	entries, err := os.ReadDir(s.Tmuxd.SocketDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var agents []Agent
	for _, entry := range entries {
		target, ok := strings.CutSuffix(entry.Name(), ".sock")
		if !ok || !workitem.ValidTarget(target) || entry.Type()&fs.ModeSocket == 0 {
			continue
		}
		a := Agent{Target: target, Socket: s.Socket(target), WorkItem: s.itemOf(target)}
		switch Listens(a.Socket) {
		case Nobody:
			continue
		case Somebody:
			a.Answers = true
		case Silence:
		}
		agents = append(agents, a)
	}
	return agents, nil
}

// Socket returns the path of the socket of a target's tmux server.
func (s *Stack) Socket(target string) string { return filepath.Join(s.Tmuxd.SocketDir, target+".sock") }

// itemOf reads which work item tmuxd started a session for. It is a help for people, and nothing is decided by it.
func (s *Stack) itemOf(target string) string {
	data, err := os.ReadFile(filepath.Join(s.Tmuxd.StateDir, "sessions", target+".json"))
	if err != nil {
		return ""
	}
	var memory struct{ WorkItem string }
	if json.Unmarshal(data, &memory) != nil {
		return ""
	}
	ref, err := workitem.Parse(memory.WorkItem)
	if err != nil || ref.Target() != target {
		return ""
	}
	return ref.String()
}

// Listener says whether somebody listens on a socket.
type Listener int

// Who may listen.
const (
	// Silence: it cannot be told.
	Silence Listener = iota
	Nobody
	Somebody
)

// Listens asks a unix socket by connecting to it. It sends nothing.
func Listens(path string) Listener {
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(context.Background(), "unix", path)
	switch {
	case err == nil:
		_ = conn.Close() // it was only a question
		return Somebody
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return Nobody
	}
	return Silence
}
