package tmux

import "muxpost.dev/muxpost/services/tmuxd/internal/host"

// optNoted is the word that was noted last, an option of the pane.
const optNoted = "@mux_noted"

// noting is the command that tmux runs whenever the title of a pane changes: it writes what that says of its program into a file, without starting
// anything for it and without anybody who would have to ask. It runs in the pane whose title changed.
//
// A spinner changes a title ten times a second, and nearly always it says what it said before: then one comparison is all that is run.
func noting(t host.Title) string {
	dialog := "0"
	for _, d := range t.Dialogs {
		dialog = "#{||:" + titleHas(d) + "," + dialog + "}"
	}
	busy := "#{m/r:" + escapeFormat(t.Busy) + ",#{pane_title}}"
	now := "#{?" + dialog + ",awaiting_approval,#{?" + busy + ",working,idle}}"
	note := func(word string) string {
		// A buffer of its own, not one that a person pastes from.
		return "{ set-option -p " + optNoted + " " + word + " ; set-buffer -b mux-note " + word + " ; save-buffer -b mux-note " +
			literal(escapeFormat(t.Note)) + " ; delete-buffer -b mux-note }"
	}
	return "if-shell -F " + literal("#{!=:#{"+optNoted+"},"+now+"}") + " { if-shell -F " + literal(dialog) + " " + note("awaiting_approval") +
		" { if-shell -F " + literal(busy) + " " + note("working") + " " + note("idle") + " } }"
}
