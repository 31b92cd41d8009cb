package tmux

import "muxpost.dev/muxpost/services/tmuxd/internal/host"

// optNoted is the word that was noted last, and optNoting is set while the buffer of a note is there; both are options of the pane.
const (
	optNoted  = "@mux_noted"
	optNoting = "@mux_noting"
)

// noting is the list that tmux runs whenever the title of a pane changes: it writes what that says of its program into a file, without starting
// anything for it and without anybody who would have to ask. It runs in the pane whose title changed.
//
// A spinner changes a title ten times a second, and nearly always it says what it said before: then two comparisons are all that is run.
//
// What stands in braces runs for a client: the best that the server has at that moment, a person's or ours, and save-buffer waits for the file.
// If that client leaves meanwhile, a command that is left of what stands in the same braces ends a server of 3.3a, and the agent with it. So
// nothing follows save-buffer there, and the buffer is removed by the next command of the list itself, which is no client's.
func noting(t host.Title) string {
	dialog := "0"
	for _, d := range t.Dialogs {
		dialog = "#{||:" + titleHas(d) + "," + dialog + "}"
	}
	busy := "#{m/r:" + escapeFormat(t.Busy) + ",#{pane_title}}"
	now := "#{?" + dialog + ",awaiting_approval,#{?" + busy + ",working,idle}}"
	note := func(word string) string {
		// A buffer of its own, not one that a person pastes from.
		return "{ set-option -p " + optNoted + " " + word + " ; set-option -p " + optNoting + " 1 ; set-buffer -b mux-note " + word +
			" ; save-buffer -b mux-note " + literal(escapeFormat(t.Note)) + " }"
	}
	return "if-shell -F " + literal("#{!=:#{"+optNoted+"},"+now+"}") + " { if-shell -F " + literal(dialog) + " " + note("awaiting_approval") +
		" { if-shell -F " + literal(busy) + " " + note("working") + " " + note("idle") + " } } ; if-shell -F '#{" + optNoting +
		"}' { set-option -pu " + optNoting + " ; delete-buffer -b mux-note }"
}
