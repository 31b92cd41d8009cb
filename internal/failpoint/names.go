package failpoint

// Names returns every place that a delivery passes, in the order in which it meets them.
func Names() []string {
	return []string{
		// The poller, from the upstream comment to the ledger.
		"poller.poll.inserted", // the rows are written, and the transaction with them and the cursor is not committed
		"poller.poll.recorded", // the rows and the cursor are committed, and the look goes on
		// The poller, from the ledger to the dispatcher and back.
		"poller.forward.claimed",
		"poller.forward.answered",
		"poller.forward.finished",
		// The dispatcher.
		"dispatcher.deliver.begun",
		"dispatcher.deliver.leased",
		"dispatcher.probe.answered",
		"dispatcher.spawn.announced", // the events that go with the decision are stored, and the host was not asked
		"dispatcher.spawn.answered",
		"dispatcher.session.recorded",
		"dispatcher.paste.answered",
		"dispatcher.outcome.decided",
		"dispatcher.outcome.saved",
		// tmuxd, a spawn.
		"tmuxd.fence.raised", // the token is remembered, and nothing was done under it
		"tmuxd.spawn.cleared",
		"tmuxd.spawn.journalled",
		"tmuxd.spawn.prepared",
		"tmuxd.spawn.remembered",
		"tmuxd.spawn.created",
		"tmuxd.spawn.proven",
		"tmuxd.spawn.answering",
		// tmuxd, a paste.
		"tmuxd.paste.intended",
		"tmuxd.paste.typed",
		"tmuxd.paste.journalled",
		"tmuxd.paste.seen",
		"tmuxd.paste.submitting", // the submit is journalled, and was not sent
		"tmuxd.paste.submitted",
		"tmuxd.paste.proven",
		"tmuxd.paste.answering",
	}
}

// Hands returns the places that a delivery passes at a session whose agent takes it over a channel of its own.
func Hands() []string {
	return []string{
		"tmuxd.hand.intended", // that it will be handed over is journalled, and the session does not say so
		"tmuxd.hand.recorded", // the session says so too, and nothing was sent
		"tmuxd.hand.sent",
		"tmuxd.hand.proven",
	}
}

// Ends returns the places that the end of a session passes.
func Ends() []string {
	return []string{
		"tmuxd.terminate.asked",     // the agent has its TERM
		"tmuxd.terminate.killed",    // what did not take it has its KILL
		"tmuxd.terminate.answering", // it is gone, and that is recorded
		"tmuxd.kill.terminated",     // what the agent started is gone, and the session is there
		"tmuxd.kill.removed",        // the session is gone, and nobody looked
		"tmuxd.reap.removed",        // the session is gone, and what is remembered of it is there
	}
}

// Attempts returns every place that an attempt passes, in the order in which it meets them.
func Attempts() []string {
	return []string{
		"tmuxd.attempt.prepared", // the prompt and the spec are written, and nothing is remembered
		"tmuxd.attempt.begun",    // it is remembered, and nothing was started
		"tmuxd.attempt.launched",
		"tmuxd.attempt.ordered", // its end is remembered, and nothing was signalled
		"tmuxd.attempt.asked",
		"tmuxd.attempt.judged", // how it ended is known, and was not written down
		"tmuxd.attempt.settled",
	}
}

// Teams returns every place of the dispatcher that an attempt of a team's run passes, in the order in which it meets them.
func Teams() []string {
	return []string{
		"dispatcher.team.claimed",  // the task is claimed, and the host was asked for nothing
		"dispatcher.team.launched", // the host has answered for the launch, and nothing is recorded of that
		"dispatcher.team.judged",   // how it ended is known, and is not recorded
		"dispatcher.team.ended",    // it is recorded, and the run was not looked at
		"dispatcher.team.moved",    // the run came to another phase, and nothing was done there
	}
}

// Orders returns the places that an order in a comment passes.
func Orders() []string {
	return []string{
		"poller.order.carried", // it is carried out or refused, and nothing is recorded of that
	}
}
