package tmux

import (
	"context"
	"strings"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Company returns what runs in the panes of a server, and who is attached to it in a terminal. tmux looks a command up in /proc, pane by pane,
// so this is no part of every look. The error is host.ErrNoAnswer when the server did not answer.
func (c *Client) Company(ctx context.Context, target string) (host.Company, error) {
	n := Nonce()
	r, err := c.look(ctx, "Company", target, n, "list-panes -a -F 'C|"+n+"|#{pane_id}|#{pane_current_command}'"+
		" ; list-clients -F 'K|"+n+"|#{client_control_mode}|#{session_id}|#{client_tty}|#{client_user}' ; display-message -p 'END|"+n+"'")
	if err != nil {
		return host.Company{}, err
	}
	if _, whole := r.find(tagEnd, n); !whole {
		return host.Company{}, r.silent()
	}
	out := host.Company{Commands: map[string]string{}}
	for _, line := range r.lines {
		if row, ok := strings.CutPrefix(line, "C|"+n+"|"); ok {
			pane, command, _ := strings.Cut(row, "|")
			out.Commands[pane] = command
		}
		row, ok := strings.CutPrefix(line, "K|"+n+"|")
		if f := strings.SplitN(row, "|", 4); ok && len(f) == 4 && f[0] != "1" {
			out.Clients = append(out.Clients, host.Attached{SessionID: f[1], TTY: f[2], User: f[3]})
		}
	}
	return out, nil
}
