// Package team runs teams: it takes runs that nobody coordinates, asks core/team what each needs next, and has that done. The rules are
// core/team's, the records the Store's, and attempts are run by hosts.
//
// A run's whole state is rows. Whoever coordinates it holds it under an epoch, and every change checks that. An effect on a host (RunTask) comes
// after the row that it is for, under the id in that row, so that whoever comes later can ask for the same effect again and nothing runs twice.
//
// It knows nothing of SQL, of gRPC or of tmux.
package team
