package tmux

import (
	"context"
	"strconv"
	"strings"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// at is the target of an act: the agent's pane, in the session that it was seen in. A pane alone would be looked for in the best of all
// sessions that its window is linked to.
func at(g host.Guard) string { return g.Session + ":." + g.Pane }

// word is the target as a word of a command that tmux parses, where $ would begin a variable.
func word(g host.Guard) string { return "'" + at(g) + "'" }

// act is one guarded list.
type act struct {
	// before runs in any case; it changes nothing that anybody sees.
	before string
	guard  host.Guard
	// conditions is what has to hold inside the server for do to be done; undo takes before back where it does not.
	conditions string
	do, undo   string
	// look is the screen that the conditions ask for; nil when they ask for none.
	look *host.Look
}

// factFields is what a refusal tells of the pane: read in the same list, so that it is what the guard saw.
const factFields = "#{" + optStamp + "}|#{pane_id}|#{pane_pid}|#{" + optGeneration + "}|#{pane_dead}|#{pane_input_off}|#{" + optFence +
	"}|#{T:@mux_now}|#{cursor_flag}|#{cursor_x}|#{cursor_y}"

// guarded runs an act, or learns why it was refused.
func (c *Client) guarded(ctx context.Context, name, target string, a act) (host.Ruling, error) {
	n, t := Nonce(), word(a.guard)
	r, err := c.ask(ctx, name, target, n, a.before+"if-shell -F -t "+t+" "+literal(a.conditions)+
		" { "+a.do+" ; display-message -p 'OK|"+n+"' } { "+a.undo+"display-message -p -t "+t+" 'NO|"+n+"|"+factFields+"' }")
	if err != nil {
		return host.Unruled, err
	}
	if _, ok := r.find(tagOK, n); ok {
		return host.Done, nil
	}
	if facts, no := r.find(tagNO, n); no {
		return a.refusal(facts), nil
	}
	return host.Unruled, r.silent()
}

// refusal says which part of a guard did not hold, most telling first.
func (a act) refusal(f []string) host.Ruling {
	g := a.guard
	if len(f) != strings.Count(factFields, "|")+1 {
		return host.NotIncarnation
	}
	fence, fenceErr := strconv.ParseInt(f[6], 10, 64)
	now, _ := strconv.ParseInt(f[7], 10, 64)
	switch {
	case f[0] != g.Stamp, f[1] != g.Pane, f[2] != strconv.Itoa(g.Pid):
		return host.NotIncarnation
	case f[3] != g.Generation:
		return host.NotGeneration
	case f[4] != "0":
		return host.PaneDead
	case f[5] != "0":
		return host.InputOff
	case f[6] != "" && fenceErr != nil, fence > g.Token:
		return host.OlderToken
	case !g.NotAfter.IsZero() && now > g.NotAfter.Unix():
		return host.TooLate
	case a.look != nil && (f[8] != cursorFlag(*a.look) || f[9] != strconv.Itoa(a.look.Cursor.X) || f[10] != strconv.Itoa(a.look.Cursor.Y)):
		return host.CursorMoved
	}
	return host.DialogOrPhase
}

// identity is the condition that the pane is still the agent's pane of this incarnation.
func identity(g host.Guard) string {
	return all(equal(optStamp, g.Stamp), equal("pane_id", g.Pane), equal("pane_pid", strconv.Itoa(g.Pid)))
}

// whoseFields are read by looks at a pane, which need no guard inside the server, and isOf compares them as identity would.
const whoseFields = "#{" + optStamp + "}|#{pane_id}|#{pane_pid}"

func isOf(f []string, g host.Guard) bool {
	return len(f) >= 3 && f[0] == g.Stamp && f[1] == g.Pane && f[2] == strconv.Itoa(g.Pid)
}

// condition is the whole guard of a mutation, with what else the act asks for.
func condition(g host.Guard, more ...string) string {
	return all(append([]string{
		identity(g),
		equal(optGeneration, g.Generation),
		equal("pane_dead", "0"),
		equal("pane_input_off", "0"),
		"#{e|<=:#{" + optFence + "}," + strconv.FormatInt(g.Token, 10) + "}",
		"#{e|<:#{T:@mux_now}," + strconv.FormatInt(g.NotAfter.Unix()+1, 10) + "}",
	}, more...)...)
}

// equal compares a format with a constant. An empty constant would match a pane that is not there, where every format is empty.
func equal(name, value string) string {
	if value == "" {
		value = "(none)"
	}
	return "#{==:#{" + name + "}," + value + "}"
}

// all joins conditions; tmux's && takes two.
func all(conditions ...string) string {
	out := conditions[len(conditions)-1]
	for i := len(conditions) - 2; i >= 0; i-- {
		out = "#{&&:" + conditions[i] + "," + out + "}"
	}
	return out
}

func not(condition string) string { return "#{==:" + condition + ",0}" }

// hasPhase is the condition that the ring has the delivery in this phase.
func hasPhase(id string, phase session.Phase) string {
	return "#{m:" + session.Mark(id, phase) + ",#{" + optRing + "}}"
}

// hasAny is the condition that the ring has the delivery in any phase.
func hasAny(id string) string { return "#{m:" + session.MarkAny(id) + ",#{" + optRing + "}}" }

// cursorAt is the condition that the cursor is where, and as, a look saw it: nobody has typed, and nothing has opened, since.
func cursorAt(l host.Look) string {
	return all(equal("cursor_flag", cursorFlag(l)), equal("cursor_x", strconv.Itoa(l.Cursor.X)), equal("cursor_y", strconv.Itoa(l.Cursor.Y)))
}

// cursorFlag is what tmux says of a cursor that shows, or hides if a look saw it so.
func cursorFlag(l host.Look) string {
	if l.CursorHidden {
		return "0"
	}
	return "1"
}

// unanswered are the conditions that no dialog is open.
func unanswered(l host.Look) []string {
	var out []string
	for _, d := range l.Dialogs {
		out = append(out, not(shows(d)))
	}
	for _, t := range l.DialogTitles {
		out = append(out, not(titleHas(t)))
	}
	return append(out, cursorAt(l))
}

// shows is the condition that a row of the screen matches a regular expression.
func shows(pattern string) string { return "#{!=:#{C/r:" + escapeFormat(pattern) + "},0}" }

// titleHas is the condition that the pane's title begins with a text.
func titleHas(prefix string) string {
	return "#{m:" + escapeFormat(escapeGlob(prefix)) + "*,#{pane_title}}"
}

// escapeFormat writes a text so that a format reads it as itself.
func escapeFormat(s string) string {
	return strings.NewReplacer("#", "##", ",", "#,", "}", "#}").Replace(s)
}

// escapeGlob writes a text so that fnmatch reads it as itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// literal writes a text as one word of a command that tmux parses, as it stands where that is possible.
func literal(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\'' {
			return quote(s)
		}
	}
	return "'" + s + "'"
}

// quote writes a text as one word of a command that tmux parses: inside double quotes, with every byte that it could read as its own
// in octal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(" .,_/:=+@|-", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString(`\` + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
	}
	b.WriteByte('"')
	return b.String()
}
