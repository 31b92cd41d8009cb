// Package drill runs the product on several hosts while things break, and counts what the agents themselves recorded: events that were lost,
// doubled, brought to another item's agent or out of order, and living agents that were harmed.
//
// Everything is a real process: three tmuxd with directories of their own, two dispatchers, two pollers, one Postgres, agents in tmux. What stands
// between a dispatcher and a host can cut the line (wire.go). What breaks and when follows from a seed (nemesis.go), and the judge (drill_test.go)
// asks nobody but the agents' transcripts which events arrived.
//
//	DRILL_SEED=7 DRILL_TIME=10m go test ./test/drill -run Drill -v
package drill
