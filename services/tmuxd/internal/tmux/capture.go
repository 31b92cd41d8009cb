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
	r, err := c.look(ctx, "Scrollback", target, n,
		"if-shell -F -t "+t+" "+literal(identity(g))+" { display-message -p -t "+t+" 'C|"+n+"|#{pane_width}|#{pane_height}|#{pane_dead}'"+
			" ; display-message -p -t "+t+" 'T|"+n+"|#{pane_title}' ; display-message -p 'V|"+n+"' ; capture-pane -p"+flags+" -t "+t+
			" ; display-message -p 'B|"+n+"' ; capture-pane -p"+flags+" -S "+start+" -t "+t+
			" ; display-message -p 'END|"+n+"' } { display-message -p 'NO|"+n+"' }")
	if err != nil {
		return host.Captured{}, false, err
	}
	if _, no := r.find(tagNO, n); no {
		return host.Captured{}, false, nil
	}
	f, found := r.find("C", n)
	if _, whole := r.find(tagEnd, n); !found || !whole || len(f) != 3 {
		return host.Captured{}, false, r.silent()
	}
	out.Width, _ = strconv.Atoi(f[0])
	out.Height, _ = strconv.Atoi(f[1])
	out.Dead, out.Cut = f[2] != "0", r.cut
	screen := 0
	part := ""
	for _, line := range r.lines {
		switch {
		case line == "V|"+n, line == "B|"+n, line == tagEnd+"|"+n:
			part = line[:1]
		case part == "V":
			screen++
		case part == "B":
			out.Lines = append(out.Lines, strings.TrimRight(line, " "))
		case strings.HasPrefix(line, "T|"+n+"|"):
			out.Title = strings.TrimPrefix(line, "T|"+n+"|")
		}
	}
	out.Scrollback = max(len(out.Lines)-screen, 0)
	for len(out.Lines) > 0 && out.Lines[len(out.Lines)-1] == "" {
		out.Lines = out.Lines[:len(out.Lines)-1]
	}
	out.Scrollback = min(out.Scrollback, len(out.Lines))
	return out, true, nil
}
