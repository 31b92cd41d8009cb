// Package session holds the rules about one session: what state it is in given what was seen (Judge), whether its name may be
// used for a spawn (Preflight), and how far a delivery has come there (Phase, Ring).
//
// Only a state that was proven ever permits a destructive act: silence is Unknown, and Unknown permits nothing. The package
// performs nothing and reads no clock; it knows nothing of tmux's commands, of files or of processes beyond what a Sight says.
package session
