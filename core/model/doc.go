// Package model checks the delivery protocol: it lets everything go wrong that the protocol allows for, in every order, and looks
// whether its promises hold in each state that can come of it.
//
// The rules are the real ones: dispatch.Decide decides, session.Judge, Preflight, AfterClear, Phase and Ring judge, ledger.Apply and
// lease.Lease keep the books. The model is the world around them, written anew as small as it can be: one work item, two events, one
// host, one session, and a list of faults.
//
//	poller.go      dispatcher.go            host.go paste.go spawn.go       acts.go              agent.go
//	ledger ──asks──► two runs ──orders──► tmuxd, one mutation at a time ──► command lists ──► the agent: composer,
//	   ▲    ◄answers─ lease, registry         journal, memory, specs           guard, ring,       dialog, queue,
//	   │             (database)                                                generation, fence  transcript
//	   └── killed, silent, late, twice, unheard at every arrow; a person types; the database is restored (config.go)
//
// A State (state.go) is everything that is known anywhere, in about 200 bytes. A step changes it and has a name; a fault is a step that
// costs one of the few that a configuration allows. What happens without a pause in the real program is one step; wherever a kill -9
// or somebody else can come in between, there are two. Check (check.go) follows every step from every state, breadth first, until
// there is nothing new, and so finds a shortest way to a broken promise (promise.go) and tells it in words. Then it looks backwards
// whether from every state, without further faults, both events come to an end.
//
// Rules (config.go) are the parts of the protocol that are not functions of core, as switches: leaving one out must break a promise,
// and the tests show that it does. Time is not modelled: what takes long enough may happen at any moment. So ten minutes without
// evidence may pass between two answers, a lease may end under a run, and a start may come late.
//
// The floor of fencing tokens has a model of its own beside it (floor.go, floorsteps.go), searched by the same Check: two dispatchers that
// connect and greet, one database that is restored, and one host that loses its files. What is typed there is typed in one step, for
// how a delivery goes on at a session makes no difference to who is let in; tokens there are numbers, and no ranks, for it matters how far
// a sequence was set back. Each lease has an age that nothing in the protocol knows, and nothing of an older one may be typed after
// something of a newer one. A delivery may be refused a number of times that the faults account for, and no more.
//
// What is left out: other people's sessions and guests, channels, more than one host, a journal that cannot be read, the 64 places of
// the ring, the floor in the model of the session, and that a dialog may be drawn while tmux reads the screen (the race that
// protocol.md states). In the model a guard sees what the agent shows, and a conversation has an event when the agent has taken it.
//
// When the protocol changes, change the step here that does it, in its words, and run the tests. The package knows nothing of tmux,
// gRPC or Postgres, and nothing imports it.
package model
