// Package failpoint lets a test end a process at a named place in its sources, to prove what holds when a process dies there. A program
// that is built without the tag "failpoints" holds nothing of it: Hit is an empty function.
//
// It knows the names of the places, and nothing of what is done there or of what has to hold.
package failpoint

const (
	// Variable says where to end the process, and how: a name, "@n" for the nth time that it is passed (the first without), and "=kill"
	// (SIGKILL) or "=stop" (SIGSTOP).
	Variable = "MUXPOST_FAILPOINT"
	// OnceVariable names a file that is made, with the process id in it, just before the end. Where it exists nothing happens, so that the
	// process that is started again goes on. Files beside it count the times before the nth.
	OnceVariable = "MUXPOST_FAILPOINT_ONCE"
)
