package tmux

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Options by which a session describes itself, set in the list that makes it: on the agent's pane, so that they go with it wherever a
// person moves it; stamp and item on the session as well, which says whose its other panes are. A format reads the pane's first.
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

// paneFields describe a pane. A person may give a session any name, and a ring is written with the separator: they come last, and the length
// of the name says where it begins.
const paneFields = "#{n:session_name}|#{session_id}|#{pane_id}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|" +
	"#{pane_input_off}|#{pane_tty}|#{" + optStamp + "}|#{" + optItem + "}|#{" + optPane + "}|#{" + optPid + "}|#{" + optHarness + "}|#{" +
	optConversation + "}|#{" + optFence + "}|#{" + optRing + "}|#{session_name}"

// Observe reads a server in one list, without naming any target: a name is compared here, exactly, and not by tmux. The sessions are those of
// the panes, for none is without. Every further command would cost a tenth of a look. The error is host.ErrNoAnswer when the server did not
// answer.
func (c *Client) Observe(ctx context.Context, target string) (host.View, error) {
	n := Nonce()
	r, err := c.look(ctx, "Observe", target, n, "list-panes -a -F 'P|"+n+"|"+paneFields+"'"+
		" ; display-message -p 'END|"+n+"|#{pid}|#{start_time}|#{version}|#{"+optGeneration+"}'")
	if err != nil {
		return host.View{}, err
	}
	var v host.View
	for _, line := range r.lines {
		if fields, ok := strings.CutPrefix(line, "P|"+n+"|"); ok {
			if p, ok := parsePane(fields); ok {
				v.Panes = append(v.Panes, p)
				if !slices.Contains(v.Sessions, p.Session) {
					v.Sessions = append(v.Sessions, p.Session)
				}
			}
		}
	}
	server, whole := r.find(tagEnd, n)
	switch {
	case whole && len(server) == 4:
		v.Server, v.Generation, v.PanesRead = parseServer(server[0], server[1], server[2]), server[3], true
	case len(v.Panes) == 0:
		return host.View{}, r.silent()
	default:
		v.Panes = nil // it broke off: which sessions there are is known, and not what is in them
	}
	return v, nil
}

func parseServer(pid, started, version string) host.Server {
	s := host.Server{Version: version}
	s.Pid, _ = strconv.Atoi(pid)
	if sec, err := strconv.ParseInt(started, 10, 64); err == nil {
		s.Started = time.Unix(sec, 0)
	}
	return s
}

// parsePane reads one row.
func parsePane(row string) (host.Pane, bool) {
	f := strings.SplitN(row, "|", 17)
	if len(f) != 17 {
		return host.Pane{}, false
	}
	name, err := strconv.Atoi(f[0])
	rest := f[16]
	at := len(rest) - name
	if err != nil || at < 1 || rest[at-1] != '|' {
		return host.Pane{}, false
	}
	// An option holds any bytes, and no message may. What stands for the broken ones is in no stamp of ours, so that nothing passes for another.
	for i := range f[:16] {
		f[i] = strings.ToValidUTF8(f[i], "\uFFFD")
	}
	p := host.Pane{Session: rest[at:], SessionID: f[1], ID: f[2], Dead: f[4] != "0", Status: f[5], Signal: f[6], InputOff: f[7] == "1",
		TTY: f[8], Stamp: f[9], Item: f[10], AgentPane: f[11], AgentPid: f[12], Harness: f[13], Conversation: f[14], Ring: rest[:at-1]}
	p.Pid, _ = strconv.Atoi(f[3])
	if f[15] != "" {
		if p.Fence, err = strconv.ParseInt(f[15], 10, 64); err != nil {
			p.Fence = -1 // a person wrote something there; the guard refuses everything then
		}
	}
	return p, p.ID != ""
}

// Capture reads the screen of a pane, if it still is the pane of this incarnation. ok is false when it is not. The error is
// host.ErrNoAnswer when the server did not answer.
func (c *Client) Capture(ctx context.Context, target string, g host.Guard) (s host.Screen, ok bool, err error) {
	n := Nonce()
	r, err := c.look(ctx, "Capture", target, n, "display-message -p -t "+word(g)+" "+"'C|"+n+"|"+whoseFields+
		"|#{cursor_x}|#{cursor_y}|#{cursor_flag}|#{pane_dead}|#{pane_input_off}|#{pane_width}|#{T:@mux_now}'"+
		" ; display-message -p -t "+word(g)+" 'R|"+n+"|#{"+optRing+"}' ; display-message -p -t "+word(g)+" 'T|"+n+"|#{pane_title}'"+
		" ; list-clients -F 'K|"+n+"|#{client_control_mode}|#{client_readonly}|#{client_activity}'"+
		" ; display-message -p 'B|"+n+"' ; "+shot("", g, n)+" ; display-message -p 'END|"+n+"'")
	if err != nil {
		return host.Screen{}, false, err
	}
	f, found := r.find("C", n)
	switch _, whole := r.find(tagEnd, n); {
	case found && !isOf(f, g):
		return host.Screen{}, false, nil
	case !whole || len(f) != 10:
		return host.Screen{}, false, r.silent()
	}
	f = f[3:]
	s.CursorX, _ = strconv.Atoi(f[0])
	s.CursorY, _ = strconv.Atoi(f[1])
	s.Width, _ = strconv.Atoi(f[5])
	s.CursorShown, s.Dead, s.InputOff = f[2] == "1", f[3] != "0", f[4] == "1"
	s.LastKey, s.Attended = lastKey(r, n, f[6]), attended(r, n)
	s.Rows = r.shot("B|"+n, tagEnd+"|"+n)
	s.Title = r.text("T", n)
	s.Ring = r.text("R", n)
	return s, true, nil
}

// attended reports whether somebody looks at the session in a terminal, even in one that only reads.
func attended(r reply, n string) bool {
	for _, line := range r.lines {
		rest, ok := strings.CutPrefix(line, "K|"+n+"|")
		if f := strings.Split(rest, "|"); ok && len(f) == 3 && f[0] != "1" {
			return true
		}
	}
	return false
}

// lastKey says when somebody last pressed a key in a terminal that may type: not in one that only reads, nor in a control client.
func lastKey(r reply, n, now string) host.Keypress {
	at, err := strconv.ParseInt(now, 10, 64)
	if err != nil {
		return host.Keypress{}
	}
	var k host.Keypress
	for _, line := range r.lines {
		rest, ok := strings.CutPrefix(line, "K|"+n+"|")
		f := strings.Split(rest, "|")
		if !ok || len(f) != 3 || f[0] == "1" || f[1] == "1" {
			continue
		}
		if pressed, err := strconv.ParseInt(f[2], 10, 64); err == nil {
			if ago := time.Duration(at-pressed) * time.Second; !k.Known || ago < k.Ago {
				k = host.Keypress{Known: true, Ago: max(ago, 0)}
			}
		}
	}
	return k
}
