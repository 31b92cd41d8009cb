// Package dispatch decides what a delivery needs. Decide is a total, deterministic step function: Facts hold what is known so
// far, each zero value meaning "not asked yet", and a Decision is the next action with its reason. The dispatcher performs the
// action, adds what came of it to the facts, and asks again, until the action is Finish. No other package has an opinion about
// when to paste, respawn, adopt, wait or drop.
//
// The package performs nothing and reads no clock; it knows nothing of hosts, tmux or databases.
package dispatch
