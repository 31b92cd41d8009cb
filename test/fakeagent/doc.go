// Fakeagent is a program that behaves at a terminal as interactive coding agents do, so that a system which drives agents
// through tmux can be tested and shown without one. It has a composer, a busy turn, a queue, permission and trust
// dialogs, folded pastes, conversations with ids that can be resumed, and a transcript that says what it really received.
//
// It is built to punish what real agents punish: a key that is pressed without looking approves an open dialog, a paste
// into a dialog is lost, Enter right after a paste is swallowed, a half-typed draft merges with a paste, bracketed paste is
// on long before the program is ready, an unknown conversation id looks alive for a second, a conversation that is open in
// another process takes no input, and text that starts with a slash or an exclamation mark is a command. It answers no
// prompt, runs no command and opens no connection. On a socket it takes messages past its composer, as agents with an interface for
// programs do.
//
// The decoder (bytes to keys), the model (keys and time to state and effects) and the renderer (state to rows) are pure;
// terminal.go joins them to a real terminal. The program knows nothing of tmux, nor of the system that drives it.
//
// Words of a prompt that begin with zz: direct the turn that it starts:
//
//	zz:dur=2s      the turn lasts this long
//	zz:dialog      a permission dialog opens when the turn's time is over, and the turn waits for the answer
//	zz:dialog=1s   the same, one second into the turn
//	zz:fail=limit  the turn fails: at a limit of use; =login, because nobody is logged in; =model, because the model does not answer
//	zz:stream      the screen looks idle during the turn; only the title tells
//	zz:exit=3      the program exits with this status after the turn
//	zz:mute        if it was handed over: it is taken, and whoever handed it over hears nothing
//
// With --task it does one task and ends: it reads the prompt from its standard input to the end, records it in a transcript as everything
// else, and follows these words in their order:
//
//	zz:dur=2s      sleep
//	zz:print=100   print so many coloured lines
//	zz:orphan=60   leave a child that sleeps so many seconds and ignores what would end it with its parent
//	zz:stubborn    ignore HUP and TERM from here on
//	zz:raise=2     end by this signal
//	zz:exit=3      exit with this status in the end
//
// SIGUSR1 opens a permission dialog at once, or as soon as the program is ready.
package main
