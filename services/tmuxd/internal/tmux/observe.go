package tmux

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Options of a session by which it describes itself. They are read with formats, and set in the list that makes the session.
const (
	optStamp        = "@mux_stamp"
	optItem         = "@mux_item"
	optPane         = "@mux_pane"
	optPid          = "@mux_pid"
	optRing         = "@mux_ring"
	optFence        = "@mux_fence"
	optHarness      = "@mux_harness"
	optConversation = "@mux_conversation"
	optGeneration   = "@mux_gen" // a server option: it wins over every other level in a format
)

// Server is what a server says of itself.
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
	// What the pane's session says of itself; empty when it says nothing.
	Stamp, Item, AgentPane, AgentPid, Ring, Harness, Conversation string
	Fence                                                         int64
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

const paneFields = "#{session_name}|#{session_id}|#{pane_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|" +
	"#{pane_input_off}|#{" + optStamp + "}|#{" + optItem + "}|#{" + optPane + "}|#{" + optPid + "}|#{" + optHarness + "}|#{" +
	optConversation + "}|#{" + optFence + "}|"

// Observe reads a server in one list, without naming any target: a name is compared here, exactly, and not by tmux. The error is
// IsNoAnswer when the server did not answer.
func (c *Client) Observe(ctx context.Context, socket string) (View, error) {
	n := Nonce()
	r, err := c.run(ctx, "Observe", socket, "",
		"display-message", "-p", "S|"+n+"|#{pid}|#{start_time}|#{version}|#{"+optGeneration+"}", ";",
		"list-sessions", "-F", "L|"+n+"|#{session_name}", ";",
		"display-message", "-p", "M|"+n, ";",
		"list-panes", "-a", "-F", "P|"+n+"|"+paneFields+"#{"+optRing+"}", ";",
		"display-message", "-p", "E|"+n)
	if err != nil {
		return View{}, err
	}
	server, ok := r.find("S", n)
	if _, listed := r.find("M", n); !ok || !listed || len(server) != 4 {
		return View{}, r.silent()
	}
	v := View{Server: parseServer(server[0], server[1], server[2]), Generation: server[3]}
	for _, line := range r.lines {
		if name, ok := strings.CutPrefix(line, "L|"+n+"|"); ok {
			v.Sessions = append(v.Sessions, name)
		}
		if fields, ok := strings.CutPrefix(line, "P|"+n+"|"); ok {
			if p, ok := parsePane(fields); ok {
				v.Panes = append(v.Panes, p)
			}
		}
	}
	_, v.PanesRead = r.find("E", n)
	return v, nil
}

func parseServer(pid, started, version string) Server {
	s := Server{Version: version}
	s.Pid, _ = strconv.Atoi(pid)
	if sec, err := strconv.ParseInt(started, 10, 64); err == nil {
		s.Started = time.Unix(sec, 0)
	}
	return s
}

// parsePane reads one row. A ring is written with the separator of the row, so it comes last and takes the rest.
func parsePane(row string) (Pane, bool) {
	f := strings.SplitN(row, "|", 16)
	if len(f) != 16 {
		return Pane{}, false
	}
	p := Pane{Session: f[0], SessionID: f[1], ID: f[2], Dead: f[4] != "0", Status: f[5], Signal: f[6], InputOff: f[7] == "1",
		Stamp: f[8], Item: f[9], AgentPane: f[10], AgentPid: f[11], Harness: f[12], Conversation: f[13], Ring: f[15]}
	p.Pid, _ = strconv.Atoi(f[3])
	p.Fence, _ = strconv.ParseInt(f[14], 10, 64)
	return p, p.ID != ""
}

// Screen is what a pane shows, with what a guard needs to know of it.
type Screen struct {
	Rows             []string
	CursorX, CursorY int
	CursorShown      bool
	Title            string
	Dead, InputOff   bool
	Ring             string
}

// Capture reads the screen of a pane, if it still is the pane of this incarnation. ok is false when it is not. The error is
// IsNoAnswer when the server did not answer.
func (c *Client) Capture(ctx context.Context, socket string, g Guard) (s Screen, ok bool, err error) {
	n := Nonce()
	r, err := c.run(ctx, "Capture", socket, "",
		"if-shell", "-F", "-t", g.Pane, g.identity(),
		"display-message -p -t "+g.Pane+" 'C|"+n+"|#{cursor_x}|#{cursor_y}|#{cursor_flag}|#{pane_dead}|#{pane_input_off}' ; "+
			"display-message -p -t "+g.Pane+" 'R|"+n+"|#{"+optRing+"}' ; "+
			"display-message -p -t "+g.Pane+" 'T|"+n+"|#{pane_title}' ; "+
			"display-message -p 'B|"+n+"' ; capture-pane -p -t "+g.Pane+" ; display-message -p 'E|"+n+"'",
		"display-message -p 'NO|"+n+"'")
	if err != nil {
		return Screen{}, false, err
	}
	if _, no := r.find("NO", n); no {
		return Screen{}, false, nil
	}
	f, found := r.find("C", n)
	if _, whole := r.find("E", n); !found || !whole || len(f) != 5 {
		return Screen{}, false, r.silent()
	}
	s.CursorX, _ = strconv.Atoi(f[0])
	s.CursorY, _ = strconv.Atoi(f[1])
	s.CursorShown, s.Dead, s.InputOff = f[2] == "1", f[3] != "0", f[4] == "1"
	inRows := false
	for _, line := range r.lines {
		switch {
		case line == "B|"+n:
			inRows = true
		case line == "E|"+n:
			inRows = false
		case inRows:
			s.Rows = append(s.Rows, line)
		case strings.HasPrefix(line, "T|"+n+"|"):
			s.Title = strings.TrimPrefix(line, "T|"+n+"|")
		case strings.HasPrefix(line, "R|"+n+"|"):
			s.Ring = strings.TrimPrefix(line, "R|"+n+"|")
		}
	}
	return s, true, nil
}
