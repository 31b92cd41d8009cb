package tmux

import (
	"context"
	"os"
	"strconv"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// everyPaneDead is the condition that no program lives in any pane of the session.
const everyPaneDead = "#{==:#{m:*0*,#{W:#{P:#{pane_dead}}}},0}"

// nobodyLooks is the condition that no terminal is attached to the session. A client in a terminal has its path for a name, one that reads
// from a pipe, as ours does, has not.
const nobodyLooks = "#{==:#{m:*/*,#{session_attached_list}},0}"

// Remove ends a session, if inside the server it still is the one that is named. done is false when the guard refused. The error is
// host.ErrNoAnswer when the server did not answer.
func (c *Client) Remove(ctx context.Context, target string, r host.Removal) (done bool, err error) {
	conditions := []string{equal("session_name", target), equal(optGeneration, r.Generation)}
	if r.Stamp != "" {
		conditions = append(conditions, equal(optStamp, r.Stamp))
	} else {
		conditions = append(conditions, equal("session_id", r.SessionID), equal("pid", strconv.Itoa(r.Server.Pid)),
			equal("start_time", strconv.FormatInt(r.Server.Started.Unix(), 10)))
	}
	if r.Dead {
		conditions = append(conditions, everyPaneDead)
	}
	if r.Unattached {
		conditions = append(conditions, nobodyLooks)
	}
	n, t := Nonce(), "'="+target+":'"
	// The answer is printed first: with its last session the server may be gone before it could say anything.
	out, err := c.ask(ctx, "Remove", target, n, "if-shell -F -t "+t+" "+literal(all(conditions...))+
		" { display-message -p 'OK|"+n+"' ; kill-session -t "+t+" } { display-message -p 'NO|"+n+"' }")
	if err != nil {
		return false, err
	}
	if _, ok := out.find(tagOK, n); ok {
		return true, nil
	}
	if _, no := out.find(tagNO, n); no {
		return false, nil
	}
	return false, out.silent()
}

// Unlink removes the socket of a server that is gone, and the lock that a client of it may have left. A socket on which somebody listens stays.
func (c *Client) Unlink(target string) {
	if c.Dial(target) == session.NoServer {
		_ = os.Remove(c.Socket(target))
		_ = os.Remove(c.Socket(target) + ".lock")
	}
}

var _ host.Ender = (*Client)(nil)
