package tmux

import (
	"strings"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// optSays is the format of the word for what the title says, optNoted the word that was noted last, and optNoting is set while the buffer of a
// note is there; all are options of the pane.
const (
	optSays   = "@mux_says"
	optNoted  = "@mux_noted"
	optNoting = "@mux_noting"
)

// againNoted is how often it is looked whether the title says yet another thing once a word was written.
const againNoted = 2

// noting is the list that tmux runs whenever the title of a pane changes: it writes what that says of its program into a file, without starting
// anything for it and without anybody who would have to ask. It runs in the pane whose title changed.
//
// A spinner changes a title ten times a second, and nearly always it says what it said before: then a few comparisons are all that is run.
//
// While the file is being written, tmux hears of further changes of the title, and runs nothing for them: it takes them for what a hook has done.
// An agent that has nothing to do in its turn is idle again by then. So what the title says is compared again after each word that was written. To
// miss a change for good, a program has to say another thing in each of as many turns of the server, one upon another.
//
// What stands in braces runs for a client: the best that the server has at that moment, a person's or ours, and save-buffer waits for the file.
// If that client leaves meanwhile, a command that is left of what stands in the same braces ends a server of 3.3a, and the agent with it. So
// nothing follows save-buffer there, and the buffer is removed by the next command of the list itself, which is no client's.
func noting(t host.Title) string {
	word := func(w string) string { return "{ set-buffer -b mux-note " + w + " }" } // a buffer of its own, not one that a person pastes from
	noted := func(w string) string { return "if-shell -F " + literal(equal(optNoted, w)) + " " + word(w) }
	another := "#{!=:#{" + optNoted + "},#{E:" + optSays + "}}"
	note := " { set-option -pF " + optNoted + " '#{E:" + optSays + "}' ; set-option -p " + optNoting + " 1 ; " + noted("working") + " { " +
		noted("idle") + " " + word("awaiting_approval") + " } ; save-buffer -b mux-note " + literal(escapeFormat(t.Note)) + " } ; "
	return "if-shell -F " + literal(another) + note +
		strings.Repeat("if-shell -F "+literal("#{?#{"+optNoting+"},"+another+",}")+note, againNoted) +
		"if-shell -F '#{" + optNoting + "}' { set-option -pu " + optNoting + " ; delete-buffer -b mux-note }"
}

// says is the format of the word for what a title says.
func says(t host.Title) string {
	dialog := "0"
	for _, d := range t.Dialogs {
		dialog = "#{||:" + titleHas(d) + "," + dialog + "}"
	}
	return "#{?" + dialog + ",awaiting_approval,#{?#{m/r:" + escapeFormat(t.Busy) + ",#{pane_title}},working,idle}}"
}
