package deliver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/dispatch"
)

// maxLine bounds a line for a person, in bytes.
const maxLine = 600

// explain returns the outcome in one line for a person, and what that person can do; the second is empty where nothing is needed.
func (r *run) explain(d dispatch.Decision) (detail, remedy string) {
	if d.Outcome == dispatch.Delivered {
		return line(deliveredBy(d.How)), ""
	}
	text, remedy := r.reason(d.Reason)
	switch d.Reason {
	case dispatch.ReasonSpawnRefused, dispatch.ReasonSpawnError, dispatch.ReasonHarnessExited:
		if r.facts.Registry == dispatch.Recorded {
			text = "respawn: " + text
		}
	}
	if r.remedy != "" && (d.Reason == dispatch.ReasonSessionOccupied || d.Reason == dispatch.ReasonNoCapacity || d.Outcome == dispatch.Failed) {
		remedy = r.remedy
	}
	if r.detail != "" {
		text += ": " + r.detail
	}
	return line(text), line(remedy)
}

func deliveredBy(how dispatch.How) string {
	switch how {
	case dispatch.HowPasted:
		return "it was pasted into the living agent"
	case dispatch.HowSpawned:
		return "it is in the conversation of the session that was started for it"
	case dispatch.HowResumed:
		return "the session came back with its conversation, and it is in there"
	case dispatch.HowFresh:
		return "the session came back with a new conversation, and it is in there"
	case dispatch.HowAverted:
		return "a living agent of this work item was found when one was about to be started, and it was pasted there"
	case dispatch.HowAlready:
		return "it was in the conversation already"
	}
	return "it is in the conversation"
}

// reason returns what a reason means, and what to do about it.
func (r *run) reason(reason dispatch.Reason) (text, remedy string) {
	look := "look at it with `muxpost attach " + r.req.WorkItem + "`"
	switch reason {
	case dispatch.ReasonStarting:
		return "the agent was started and has not shown yet that it took its first message", ""
	case dispatch.ReasonSessionHolds:
		return "the agent lives and cannot take it now",
			"it goes in by itself once that has passed; a draft or a dialog waits for a person: " + look
	case dispatch.ReasonBusy:
		return "the agent is at work on a turn, and takes the next message after it", "it goes in by itself afterwards"
	case dispatch.ReasonNotReady:
		return "the agent lives and its composer is not there yet", "if this lasts, " + look
	case dispatch.ReasonHostUnreachable:
		return "the host cannot be reached, so nothing is concluded and nothing is started elsewhere",
			"see that tmuxd runs there (`muxpost hosts` says since when it is away); `muxpost hosts evacuate` gives a host up"
	case dispatch.ReasonNoHost:
		return "no host may take it", "`muxpost hosts` shows them; dispatcher.placement says which labels a work item needs"
	case dispatch.ReasonHostDraining:
		return "the session ended on a host that is being drained, and its conversation is there",
			"`muxpost hosts undrain` lets it come back there, and `muxpost hosts evacuate` begins a new conversation elsewhere"
	case dispatch.ReasonTmuxNoAnswer:
		return "the session's tmux server did not answer, so nothing is concluded", "if this lasts, look at the host and at tmuxd's log there"
	case dispatch.ReasonSpawnNoAnswer:
		return "no session could be started now", "if this lasts, look at the host and at tmuxd's log there"
	case dispatch.ReasonNoCapacity:
		return "the host has as many agents as it may have, and nothing was started", "end one that nobody needs, or raise tmuxd.capacity on the host"
	case dispatch.ReasonSessionDetached:
		return "the agent's process lives on without its session, and nothing is started beside it",
			"end that process on the host, or wait until it ends; the session comes back by itself afterwards"
	case dispatch.ReasonSessionEnded:
		return "the session ended before it could be pasted into", ""
	case dispatch.ReasonHarnessExited:
		return "the harness ended right after its start",
			"start the harness by hand on the host, in the session's directory, and see what it says"
	case dispatch.ReasonConversationInUse:
		return "the conversation is open in another process, and the agent did not come up with it", "close it there; it is tried again by itself"
	case dispatch.ReasonUsageLimit:
		return "the harness has reached a limit of use and does not start", "it is tried again every ten minutes; raise the limit if it cannot wait"
	case dispatch.ReasonNotLoggedIn:
		return "the harness does not start, because nobody is logged in or its key is refused",
			"log in with it on the host, as the user that tmuxd runs as, or correct its key; then run `muxpost retry " + r.req.DeliveryID + "`"
	case dispatch.ReasonSpawnRefused:
		return "the host will not start what was asked for",
			"correct the harness table or the directory in tmuxd's configuration, or dispatcher.harness"
	case dispatch.ReasonSpawnError:
		return "starting the session failed", "look at tmuxd's log on the host"
	case dispatch.ReasonPasteRefused:
		return "the session did not take it", "if this lasts, " + look
	case dispatch.ReasonPasteError:
		return "pasting failed", "look at tmuxd's log on the host"
	case dispatch.ReasonNoEvidence:
		return "it was typed, and nothing shows yet whether it arrived", look + "; it is never typed twice"
	case dispatch.ReasonSessionOccupied:
		return "the session's name belongs to something that is not ours or cannot be cleared; nothing was killed", r.freeing()
	case dispatch.ReasonSpawnForbidden:
		return "the configuration lets no event of this kind start the first session of a work item",
			"change dispatcher.first_spawn, or have another event start it; then run `muxpost retry " + r.req.DeliveryID + "`"
	case dispatch.ReasonTargetCollision:
		return "another work item has a session of the same name, and two never share one; nothing was started",
			"this should not happen by chance: report it, with both work items"
	case dispatch.ReasonSessionParked:
		return r.parkedBecause(), "see why it ends: `muxpost attach " + r.req.WorkItem + "` shows what its pane showed last; then `muxpost unpark " +
			shellQuote(r.req.WorkItem) + "`"
	case dispatch.ReasonSessionEnding:
		return r.endingBy(), "it goes on by itself once the host has carried that out; to take the order back: `muxpost stop --cancel " +
			shellQuote(r.req.WorkItem) + "`"
	case dispatch.ReasonPaused:
		return r.pausedBy()
	case dispatch.ReasonShadow:
		return "the dispatcher runs in shadow mode and does nothing; it would",
			"to have it done, set dispatcher.shadow to false and restart the dispatcher"
	case dispatch.ReasonLeaseHeld:
		if r.outdated {
			return "the host takes no lease this old, and asking again takes a new one", ""
		}
		return "another run is at work on this work item", ""
	case dispatch.ReasonDeadline:
		return "the time for one call ran out, and asking again goes on", ""
	case dispatch.ReasonNone, dispatch.ReasonStart, dispatch.ReasonFirst, dispatch.ReasonNoConversation, dispatch.ReasonEvacuated, dispatch.ReasonByConfiguration,
		dispatch.ReasonCannotResume, dispatch.ReasonBadConversationID, dispatch.ReasonResumeFailed, dispatch.ReasonStarted,
		dispatch.ReasonStampProvesOurs, dispatch.ReasonAnotherIncarnation, dispatch.ReasonSessionLives, dispatch.ReasonOccupantLives,
		dispatch.ReasonConversationKnown, dispatch.ReasonReopened, dispatch.ReasonSessionUnparked:
		// These are reasons of steps and of an operator's act, which no run ends with.
	}
	return string(reason), ""
}

// endingBy says who ordered the end of the session, and why that waits.
func (r *run) endingBy() string {
	if r.ending == nil {
		return "the end of the session is ordered"
	}
	text := "the end of the session is ordered (" + r.ending.Verb() + by(r.ending.Who) + "), and waits for its host"
	if r.ending.Detail != "" {
		text += ": " + r.ending.Detail
	}
	return text
}

// pausedBy says who holds the item back, since when and why, and which commands end that.
func (r *run) pausedBy() (text, remedy string) {
	var texts, commands []string
	for _, p := range r.pauses {
		what, scope := "deliveries of all work items are paused", "--all"
		if p.WorkItem != "" {
			what, scope = "deliveries of this work item are paused", shellQuote(p.WorkItem)
		}
		what += " since " + p.Since.UTC().Format("2006-01-02 15:04:05 MST")
		if p.Who != "" {
			what += " by " + p.Who
		}
		if p.Reason != "" {
			what += " (" + p.Reason + ")"
		}
		texts, commands = append(texts, what), append(commands, "`muxpost unpause "+scope+"`")
	}
	if len(texts) == 0 {
		return "deliveries are paused", "`muxpost status` shows the pauses"
	}
	return strings.Join(texts, ", and "), "it goes in by itself after " + strings.Join(commands, " and ")
}

// rehearsed tells of what shadow mode did not do, in a step each and all in one line.
func (r *run) rehearsed(withheld []dispatch.Decision) string {
	var words []string
	for _, d := range withheld {
		words = append(words, r.withheld(d))
		r.step("would %s", words[len(words)-1])
	}
	return strings.Join(words, ", then ")
}

// withheld says in words what shadow mode did not do.
func (r *run) withheld(d dispatch.Decision) string {
	text := d.Action.String()
	switch d.Action {
	case dispatch.Adopt:
		text = "record the session that was found"
	case dispatch.Heal:
		text = "bring the record up to date with the living session"
	case dispatch.Register:
		text = "record the session that was started"
	case dispatch.SpawnResume:
		text = "start the session again with its conversation"
	case dispatch.SpawnFresh:
		text = "start a session with a new conversation"
	case dispatch.PasteText:
		text = "paste into the living session"
		if r.facts.Probe == dispatch.ProbeUnknown {
			text = "try to paste into the session, which may live"
		}
	case dispatch.Finish:
		return "end it as " + outcomeLine(d)
	case dispatch.LookUp, dispatch.ProbeHost:
	}
	if d.WithPrompt {
		text += ", the event as its first prompt"
	}
	return text + " (" + string(d.Reason) + ")"
}

// freeing is the command that frees the session's name.
func (r *run) freeing() string {
	if r.sight.SocketPath == "" {
		return "end the session " + r.req.ref.Target() + " on the host if nobody needs it"
	}
	return "if nobody needs it, run on the host: tmux -N -S " + shellQuote(r.sight.SocketPath) + " kill-session -t '=" + r.req.ref.Target() + ":'"
}

func shellQuote(s string) string {
	plain := func(c rune) bool {
		return c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("/._-+:@%", c))
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// step adds one line to the delivery's record.
func (r *run) step(format string, args ...any) {
	r.steps = append(r.steps, line(strings.TrimSuffix(fmt.Sprintf(format, args...), " ()")))
}

// line makes one line of bounded length, without control characters.
func line(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), unicode.IsControl), " ")
	if len(s) <= maxLine {
		return s
	}
	return strings.ToValidUTF8(s[:maxLine], "") + "…"
}

// withLines adds the last lines of a pane to a detail, leaving out every line that repeats a part of the prompt: an agent that
// dies at its start may have printed it.
func withLines(detail string, lines []string, text string) string {
	const looked, most = 5, 3
	var kept []string
	for _, l := range lines[max(0, len(lines)-looked):] {
		if l = strings.TrimSpace(line(l)); l != "" && !repeats(l, text) {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		return detail
	}
	return detail + "; its last lines: " + strings.Join(kept[max(0, len(kept)-most):], " / ")
}

// repeats reports whether a line and a text share a run of characters, whatever was wrapped around it. A run of half a line is
// already enough to count.
func repeats(l, text string) bool {
	const run = 12
	if text == "" {
		return false
	}
	if strings.Contains(l, text) {
		return true
	}
	runes := []rune(l)
	for i := 0; i+run <= len(runes); i++ {
		if strings.Contains(text, string(runes[i:i+run])) {
			return true
		}
	}
	// A short line is a whole line of the text, or it says nothing about it.
	if len(runes) < run {
		for t := range strings.SplitSeq(text, "\n") {
			if strings.TrimSpace(t) == l {
				return true
			}
		}
	}
	return false
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// outcomeLine is the last step: what it came to.
func outcomeLine(d dispatch.Decision) string {
	switch {
	case d.How != "":
		return d.Outcome.String() + " by " + string(d.How)
	case d.Reason != dispatch.ReasonNone:
		return d.Outcome.String() + " (" + string(d.Reason) + ")"
	}
	return d.Outcome.String()
}

func probeName(p dispatch.Probe) string {
	return name(int(p), "not asked", "nowhere", "unreachable", "unknown", "live", "foreign", "detached", "dead", "dead with guests", "absent")
}

func spawnName(s dispatch.Spawn) string {
	return name(int(s), "not tried", "started", "started, prompt taken", "occupied", "unclearable", "died", "refused",
		"cannot resume", "no answer", "failed", "no capacity", "conversation in use", "at a limit of use", "not logged in")
}

func pasteName(p dispatch.Paste) string {
	return name(int(p), "not tried", "submitted", "already delivered", "held", "not ready", "busy", "session gone", "session foreign", "refused",
		"unconfirmed", "no answer", "failed")
}

func name(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return names[0]
}
