package tmux

import (
	"context"
	"strings"
)

// Names returns the names of the sessions on a server: no pane is read, and no name is looked for by tmux, which would take the beginning of
// another for it. The error is host.ErrNoAnswer when the server did not answer.
func (c *Client) Names(ctx context.Context, target string) ([]string, error) {
	n := Nonce()
	r, err := c.look(ctx, "Names", target, n, "list-sessions -F 'L|"+n+"|#{session_name}' ; display-message -p 'END|"+n+"'")
	if err != nil {
		return nil, err
	}
	if _, whole := r.find(tagEnd, n); !whole || r.cut {
		return nil, r.silent()
	}
	var names []string
	for _, line := range r.lines {
		if name, ok := strings.CutPrefix(line, "L|"+n+"|"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}
