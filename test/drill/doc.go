// Package drill runs the product on several hosts while things break, and counts what the agents themselves recorded: events that were lost,
// doubled, crossed, out of order or merged with what a person was typing, living agents that were harmed, servers that crashed, what went on
// for ever, and what nobody can explain.
//
// Everything is a real process: three tmuxd, each on a host of its own (a network namespace with a disk that can be full), two dispatchers,
// two pollers, one Postgres, agents in tmux, and a server that speaks GitHub's API, by poll and by webhook. What is told to the agents and what
// breaks is a function of a seed, and happens at numbered steps of the load (plan.go), so that a run can be repeated (nemesis.go does it), and
// made smaller (shrink.go). The judge (judge.go) asks nobody but the agents' transcripts which events arrived; only for what it calls
// unexplained, looped and unconfirmed it reads the product's own tables and span files.
//
// Where namespaces cannot be made, hosts are directories, and a proxy stands between them and the dispatchers (wire.go).
//
// It knows nothing of how the product decides: a fault that it does not notice is its own.
package drill
