// Package stack starts and stops the services of one installation on this machine, with a local database where the configuration
// names no other, and says what runs.
//
// A service is known by a file that names its process for good: by pid, start time and boot. A pid that another process has by
// now is recognised, and nothing is ever signalled without that proof. Agents are never touched: they live in tmux servers of
// their own, which this package only counts.
package stack
