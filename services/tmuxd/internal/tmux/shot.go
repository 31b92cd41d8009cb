package tmux

import (
	"slices"
	"strings"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// shot is the part of a list that prints rows of a pane, as capture-pane -p would, with its flags. What that prints to a control client stays in
// the memory of a server before 3.6, for good; what is in a buffer does not. Before 3.4 a buffer is shown with its backslashes doubled and its
// control characters written out: a backslash that is shown first says which it is.
//
// No such part is ever put into braces: a list that if-shell chooses stays in the server's memory too, in every release.
func shot(flags string, g host.Guard, nonce string) string {
	b := "-b mux-shot-" + nonce
	return "set-buffer " + b + ` '\' ; show-buffer ` + b + " ; capture-pane " + b + flags + " -t " + word(g) + " ; show-buffer " + b +
		" ; delete-buffer " + b
}

// shot returns the rows that such a part printed between two lines.
func (r reply) shot(from, to string) []string {
	first := slices.Index(r.lines, from) + 1
	if first == 0 || first >= len(r.lines) {
		return nil
	}
	mark, rows := r.lines[first], r.lines[first+1:]
	if end := slices.Index(rows, to); end >= 0 {
		rows = rows[:end]
	}
	// The last row has an end of its own, and so has what is printed.
	if last := len(rows) - 1; last >= 0 && rows[last] == "" {
		rows = rows[:last]
	}
	out := slices.Clone(rows)
	if mark != `\` {
		for i, row := range out {
			out[i] = unescape(row)
		}
	}
	return out
}

// controls are the characters that are written as a backslash and a letter.
var controls = map[byte]byte{'n': '\n', 'r': '\r', 'b': '\b', 'a': '\a', 'v': '\v', 't': '\t', 'f': '\f', 's': ' '}

// unescape reads a row as it is shown before 3.4: a backslash before another one, before a letter, or before the three octal digits of a byte.
func unescape(row string) string {
	if !strings.Contains(row, `\`) {
		return row
	}
	var b strings.Builder
	for i := 0; i < len(row); i++ {
		c := row[i]
		if c != '\\' || i+1 == len(row) {
			b.WriteByte(c)
			continue
		}
		if i+3 < len(row) && octal(row[i+1]) && octal(row[i+2]) && octal(row[i+3]) {
			b.WriteByte((row[i+1]-'0')<<6 | (row[i+2]-'0')<<3 | (row[i+3] - '0'))
			i += 3
			continue
		}
		i++
		if control, ok := controls[row[i]]; ok {
			b.WriteByte(control)
		} else {
			b.WriteByte(row[i])
		}
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
