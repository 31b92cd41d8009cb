// Package why explains the reasons that muxpost gives, in a sentence for a person: what each means, and what to do about it. It
// is one table; a test holds it complete.
//
// It decides nothing, and knows none of the particulars of a case: those stand in the detail that comes with a reason.
package why

import "strings"

// Explanation explains a reason.
type Explanation struct {
	// Meaning is a sentence without its full stop.
	Meaning string
	// Remedy is what a person can do; empty where nothing is needed. DeliveryID stands in it for the id of the delivery.
	Remedy string
}

// Of returns the explanation of a reason, from whichever part of muxpost it came. It reports false for one that this build does
// not know.
func Of(reason string) (Explanation, bool) {
	for _, table := range []map[string]Explanation{outcomes(), settled(), faults()} {
		if e, ok := table[reason]; ok {
			return e, true
		}
	}
	return Explanation{}, false
}

// DeliveryID stands in remedies for the id of the delivery.
const DeliveryID = "DELIVERY-ID"

const (
	byItself = "nothing; it is looked at again by itself"
	look     = "look at the agent with muxpost attach"
	hostLog  = "if it lasts, see the log of tmuxd on the host"
)

// outcomes are the dispatcher's reasons: of steps, and of outcomes other than delivered.
func outcomes() map[string]Explanation {
	return map[string]Explanation{
		"start":     {"nothing was known of the delivery yet, so the record and the host were asked first", ""},
		"first":     {"the work item had no session yet, so its first one was started", ""},
		"evacuated": {"the host of the session was given up, so a new conversation was begun on another one", ""},
		"no_host": {
			"no host may take the work item: each is drained, or has not the labels that the item needs, or there is none",
			"muxpost hosts shows them; it is tried again by itself once one may",
		},
		"host_draining": {
			"the session ended on a host that is being drained, and its conversation is there",
			"muxpost hosts undrain lets it come back there; muxpost hosts evacuate begins a new conversation elsewhere",
		},
		"no_conversation": {"no conversation is recorded for the session, so there was none to resume and a new one was begun", ""},
		"by_configuration": {
			"the configuration wants sessions that come back to begin a new conversation",
			"set dispatcher.resume to true to have them resumed",
		},
		"cannot_resume": {"the harness cannot resume a conversation, so a new one was begun", ""},
		"bad_conversation_id": {
			"the recorded conversation id is malformed and never reaches a command line, so a new conversation was begun",
			"",
		},
		"resume_failed": {
			"the old conversation could not be resumed, so a new one was begun",
			"the old one is kept in the session's lineage",
		},
		"started": {"a session was started", ""},
		"stamp_proves_ours": {
			"a living session without a record carries muxpost's stamp for this work item, so it was taken into the " +
				"record",
			"",
		},
		"another_incarnation": {"the living session is ours but a later one than the recorded, so the record was brought up to date", ""},
		"session_lives":       {"the agent lives, so the event was put into it", ""},
		"conversation_known": {
			"a session without a record is gone and the host knows its conversation, so it was recorded and then started again",
			"",
		},
		"occupant_lives": {
			"a living agent of this work item was found when one was about to be started, so nothing was started and the " +
				"event went into it",
			"",
		},

		"starting": {"the agent was started and has not shown yet that it took its first message", byItself},
		"session_holds": {
			"the agent lives and something in its terminal is in the way: a draft or a dialog",
			look + " and finish or clear what stands there; the event goes in by itself afterwards",
		},
		"busy":      {"the agent is at work on a turn, and takes the next message after it", byItself},
		"not_ready": {"the agent lives and the box to type into is not there yet", byItself + "; if it lasts, " + look},
		"host_unreachable": {
			"the host did not answer, so nothing is concluded and nothing is started elsewhere",
			"see that tmuxd runs there (muxpost hosts says since when it is away); muxpost hosts evacuate gives a host up",
		},
		"tmux_no_answer":  {"the session's tmux server did not answer, which says nothing about the agent", byItself + "; " + hostLog},
		"spawn_no_answer": {"whether a session was started is not known, or it could not be done now", byItself + "; " + hostLog},
		"session_detached": {
			"the agent's process lives on without its session, and nothing is started beside a living agent",
			"end that process on the host, or wait until it ends; the session comes back by itself afterwards",
		},
		"session_ended": {"the session ended just as the event was to be put into it", byItself},
		"harness_exited": {
			"the agent's program ended right after its start",
			"run it by hand on the host, in the session's directory, and see what it says",
		},
		"conversation_in_use": {
			"the conversation is open in another process, so the agent did not come up with it",
			"close it there; it is tried again every minute",
		},
		"usage_limit": {
			"the agent's program has reached a limit of use and does not start",
			"it is tried again every ten minutes; raise the limit if it cannot wait",
		},
		"not_logged_in": {
			"the agent's program does not start, because nobody is logged in with it or its key is refused",
			"log in with it on the host, as the user that tmuxd runs as, or correct its key; then muxpost retry " + DeliveryID,
		},
		"spawn_refused": {
			"the host will not start what was asked for: no such harness, directory or resume",
			"correct tmuxd.harnesses or tmuxd.directory on the host, or dispatcher.harness",
		},
		"spawn_error":   {"starting the session failed on the host", "see the log of tmuxd there"},
		"paste_refused": {"the session did not take the text: it is another one than was meant, or cannot take several lines", look},
		"paste_error":   {"putting the text into the agent failed on the host", "see the log of tmuxd there"},
		"no_evidence": {
			"the text was typed, and nothing shows yet whether the agent took it; it is never typed twice",
			look + "; evidence is looked for by itself for ten minutes",
		},
		"session-occupied": {
			"the session's name belongs to something that is not muxpost's, or to remains that cannot be cleared; nothing " +
				"was killed",
			"free the name on the host if nobody needs what is there; the remedy of the delivery has the command. It is tried again every five " +
				"minutes by itself, and at once with muxpost retry DELIVERY-ID",
		},
		"spawn_forbidden": {
			"policy allows no first session for this kind of event",
			"change dispatcher.first_spawn, or have another event start it; then muxpost retry " + DeliveryID,
		},
		"target_collision": {
			"another work item has a session of the same name, and two never share one, so nothing was started",
			"this should not happen by chance: report it, with both work items",
		},
		"session_parked": {
			"the agent died so often within so short a time that it is not started again by itself; the event waits and nothing of it is lost",
			"see why it ends (muxpost attach shows what its pane showed last), then muxpost unpark; muxpost attention lists what is parked",
		},
		"session_ending": {
			"a person ordered the end of the item's agent, and its host has not been there to carry that out, so nothing is begun for it",
			"it goes on by itself once the host answers; muxpost stop --cancel takes the order back",
		},
		"session_unparked": {"the agent had died too often, and is tried again: another version runs, or its time is over", ""},
		"paused": {
			"an operator holds back the deliveries of this work item, or of all; the event waits and nothing of it is lost (a team's run hands out no task meanwhile)",
			"end the pause with muxpost unpause; muxpost status shows the pauses",
		},
		"shadow": {
			"the dispatcher runs in shadow mode: it looked, decided and did nothing; the steps of the delivery say what it would do",
			"set dispatcher.shadow to false and restart the dispatcher",
		},
		"reopened":   {"a person took back that it was dropped, so it is decided again when it is asked for", ""},
		"lease_held": {"another process was at work on this work item or this source", byItself},
		"deadline":   {"the time for one call ran out before the end was known", byItself},
	}
}

// settled are the ledger's own reasons, and those of the policy that judges events as they come in.
func settled() map[string]Explanation {
	return map[string]Explanation{
		"unconfirmed": {
			"the text was typed, and within ten minutes nothing showed whether the agent took it; it is not typed again by " +
				"itself",
			look + " to see whether it is there; if it is, muxpost done DELIVERY-ID; if it is not, muxpost retry --type-again DELIVERY-ID types it " +
				"once more",
		},
		"baselined": {"it was there before the work item was first seen, so it went along as context and is no event", ""},
		"unauthorised": {
			"its author is not among those who may steer agents",
			"if that is wrong, add the login to the source's authors in the configuration, or its association to associations; the comment " +
				"counts again once it is edited",
		},
		"deleted_upstream": {"it was deleted upstream before it was delivered, so it never will be", ""},
		"cancelled_by_hand": {
			"a person cancelled it, so it is not delivered any more; what it says after a later edit upstream is an event of its own",
			"",
		},
		"rearmed": {"its tries were spent, and another version of muxpost gave it new ones", byItself},
		"coalesced": {"what it says is a part of the text of an earlier event of its item, and it shares what becomes of that",
			"muxpost explain with the id that the detail names says what did"},
		"command": {"it was an order to muxpost itself, so it was carried out and is not delivered; or an opening that only one of `team_labels` put under care", ""},
		"superseded": {"it was edited upstream before it was delivered, and what it says now took its place; or it is a result of CI, and its commit " +
			"is not the head of the pull request any more", ""},
		"typed_again": {"nothing showed whether the agent took it, and a person had it typed once more, as another delivery", ""},
		"done":        {"a person said that it is done, so it is not tried again", ""},
		"own":         {"muxpost wrote it itself, or the account that its token acts as", ""},
		"editor": {"somebody edited it who may not steer, or it cannot be told who did",
			"if he may steer, add his login to authors; if nobody can tell, give the source a token"},
		"empty":  {"there is nothing in it that an agent could read", ""},
		"untold": {"it tells the end of an item, or a result of its CI, and no agent was told anything of the item", ""},
		"loop": {"more was written about the item within five minutes than people write, which looks like programs that answer each other",
			"see what writes there, and stop it; muxpost retry DELIVERY-ID delivers it, muxpost done lets it go, and poller.loop_posts is the limit"},
		"bot": {"a machine wrote it, and machines do not steer agents: two that answer each other would never end",
			"if this one may, add its login to the source's machines"},
	}
}

// faults are the reasons of errors, which the ledger keeps where a request was answered with one, and the kinds of errors that
// have no reason.
func faults() map[string]Explanation {
	return map[string]Explanation{
		"bad_work_item":   {"the work item is not written as github:[host/]owner/repo#n", "write it so and send the event again"},
		"bad_delivery_id": {"the delivery id has characters or a length that are not allowed", "copy it from muxpost ledger"},
		"bad_text":        {"the text is not valid UTF-8", "convert it, for example with iconv"},
		"text_empty":      {"nothing is left of the text once what cannot be typed is removed", "send some text"},
		"text_too_large":  {"the text is larger than the limit", "put it into a file and send a message that names the file"},
		"bad_argument":    {"a part of the request was malformed; the detail names it", ""},
		"bad_config": {
			"the configuration has an unknown key or a value that cannot be used",
			"correct it; muxpost doctor names the line",
		},
		"unknown_harness": {
			"the host's table has no harness of that name",
			"add it under tmuxd.harnesses on the host, or name another",
		},
		"directory_missing": {"the working directory does not exist on the host", "make it, or set tmuxd.make_directory"},
		"directory_outside_roots": {
			"the working directory is not below a configured root",
			"add a root under tmuxd.roots, or choose another directory",
		},
		"delivery_mismatch":  {"the delivery id is known with another text or another work item", "send it as a new event"},
		"delivery_not_found": {"no delivery has this id", "muxpost ledger and muxpost deliveries list those that are known"},
		"session_not_found":  {"no session is recorded for this work item", "an event for it starts one: muxpost send"},
		"source_not_found":   {"no source has this name", "see poller.sources in the configuration"},
		"older_token":        {"a later run has taken over, so the older one was refused", byItself},
		"lease_lost":         {"the lease ended before the act did, so another run goes on with it", byItself},
		"storage": {
			"a directory could not be written",
			"see that the disk is not full and the data directory is this user's: muxpost doctor",
		},
		"database":     {"the database did not answer", "see muxpost status; events are kept and go on afterwards"},
		"tmux_missing": {"tmux was not found on the host, or cannot be run", "install tmux 3.3 or newer there"},
		"dispatcher_unreachable": {
			"the dispatcher did not answer, so the event waits; no try is spent",
			"see muxpost status, and start what is down with muxpost up",
		},
		"rate_limited":       {"the upstream limit is used up", "it is tried again by itself once the limit allows it; a token raises the limit"},
		"source_unreachable": {"the source did not answer", byItself},
		"source_refused": {
			"the source refused the request: a wrong token, a missing permission, or no such repository",
			"correct the token or the repository in the configuration",
		},
		"address_taken": {"the address to listen on is in use", "stop who has it, or choose another"},
		"not_loopback": {
			"the address is not loopback, and nothing listens beyond it without credentials",
			"listen on 127.0.0.1 or a unix socket",
		},
		"panic": {"a part of muxpost crashed on it", "this is a bug: report it with the log"},
		"no_tasks": {
			"the harness runs no tasks",
			"write under tmuxd.harnesses, with task, how it does one task and exits",
		},
		"attempt_mismatch": {
			"the attempt id is known with another task or other limits",
			"an id is for one launch: make a new one",
		},
		"attempt_not_found": {
			"no attempt has this id on the host: it was never launched there, or was swept",
			"ask the host where it was launched, or raise tmuxd.tasks.keep_for",
		},
		"no_capacity": {
			"as many agents live on the host, or as many attempts run there, as it lets at once",
			"it is tried again by itself once one has ended; end one that nobody needs, or raise tmuxd.capacity, or tmuxd.tasks.max_running for attempts",
		},
		"tree_preparing": {
			"the item's working tree is being made, or its repository cannot be read now",
			"it goes on by itself; if this lasts, see that the host reaches the repository of tmuxd.trees",
		},
		"tree_unusable": {
			"the item's working tree cannot be made or used as things are on the host",
			"the detail says what is in the way; then run muxpost retry",
		},
		"tree_not_found": {
			"no working tree of the work item was made on the host",
			"muxpost workspaces lists those that are there",
		},
		"tree_in_use": {
			"the working tree holds what would be lost, or an agent works in it",
			"commit and push what is in it, or end the agent",
		},
		"overloaded": {
			"the service has as many calls under way as it takes",
			byItself + "; if it stays so, look who calls, or run another replica",
		},
		"run_exists": {
			"the team has a run that is not over",
			"follow it with muxpost team watch, or give it up with muxpost team abandon",
		},
		"run_not_found": {
			"there is no such run of a team",
			"muxpost team status lists the runs",
		},
		"unknown_call": {
			"the other side is of another release and does not have this call",
			"run the same release everywhere; `muxpost version` and the services' --version say which one runs",
		},

		"internal":        {"a part of muxpost failed on it", "see the logs; if it lasts, report it"},
		"invalid":         {"the request can never succeed as it was made; the detail says why", ""},
		"not_found":       {"something that was named is not there; the detail says what", ""},
		"conflict":        {"it contradicts what is already recorded; the detail says how", ""},
		"already_exists":  {"what was to be made is there already", ""},
		"fenced":          {"a later run has taken over, so the older one was refused", byItself},
		"throttled":       {"a limit was reached", byItself},
		"unavailable":     {"somebody did not answer, so what happened is not known", byItself},
		"unauthenticated": {"the caller has no name", "check the certificates or the token"},
		"denied":          {"the caller may not do this", "check its role"},
	}
}

// WithRetry ends the remedy of a delivery that ended with its retry, where it does not name it. What would have passed by itself while it
// was still asked about needs the retry alone.
func WithRetry(remedy, id string) string {
	retry := "muxpost retry " + id
	switch {
	case strings.Contains(remedy, "muxpost retry"):
		return remedy
	case remedy == "", remedy == byItself:
		return retry
	}
	return remedy + "; then " + retry
}
