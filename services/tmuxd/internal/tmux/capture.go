package tmux

import (
	"context"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Scrollback reads the screen of a pane and what was scrolled out of it, oldest first and without blanks at the end, if it still is the pane
// of this incarnation. ok is false when it is not. The error is host.ErrNoAnswer when the server did not answer.
//
// With joined lines it cannot be told from the lines alone where the screen begins, so it is read once more, in the same list, and counted.
func (c *Client) Scrollback(ctx context.Context, target string, g host.Guard, q host.Extent) (out host.Captured, ok bool, err error) {
	n, t := Nonce(), word(g)
	flags := ""
	if q.Attributes {
		flags += " -e"
	}
	if q.Join {
		flags += " -J"
	}
	start := "0"
	if q.Lines > 0 {
		start = "-" + strconv.Itoa(q.Lines)
	}
	r, err := c.look(ctx, "Scrollback", target, n, "display-message -p -t "+t+" "+"'C|"+n+"|"+whoseFields+
		"|#{pane_width}|#{pane_height}|#{pane_dead}'"+" ; display-message -p -t "+t+" 'T|"+n+"|#{pane_title}' ; display-message -p 'V|"+n+"' ; "+
		shot(flags, g, n)+" ; display-message -p 'B|"+n+"' ; "+shot(flags+" -S "+start, g, n)+" ; display-message -p 'END|"+n+"'")
	if err != nil {
		return host.Captured{}, false, err
	}
	f, found := r.find("C", n)
	switch _, whole := r.find(tagEnd, n); {
	case found && !isOf(f, g):
		return host.Captured{}, false, nil
	case !whole || len(f) != 6:
		return host.Captured{}, false, r.silent()
	}
	out.Width, _ = strconv.Atoi(f[3])
	out.Height, _ = strconv.Atoi(f[4])
	out.Dead, out.Cut = f[5] != "0", r.cut
	out.Title = r.text("T", n)
	screen := len(r.shot("V|"+n, "B|"+n))
	for _, row := range r.shot("B|"+n, tagEnd+"|"+n) {
		out.Lines = append(out.Lines, strings.TrimRight(row, " "))
	}
	out.Scrollback = max(len(out.Lines)-screen, 0)
	for len(out.Lines) > 0 && out.Lines[len(out.Lines)-1] == "" {
		out.Lines = out.Lines[:len(out.Lines)-1]
	}
	out.Scrollback = min(out.Scrollback, len(out.Lines))
	return out, true, nil
}
