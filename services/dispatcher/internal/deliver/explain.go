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
	if r.remedy != "" && (d.Reason == dispatch.ReasonSessionOccupied || d.Outcome == dispatch.Failed) {
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
	case dispatch.ReasonNotReady:
		return "the agent lives and its composer is not there yet", "if this lasts, " + look
	case dispatch.ReasonHostUnreachable:
		return "the host cannot be reached, so nothing is concluded and nothing is started elsewhere",
			"see that tmuxd runs there and that dispatcher.host names its address"
	case dispatch.ReasonTmuxNoAnswer:
		return "the session's tmux server did not answer, so nothing is concluded", "if this lasts, look at the host and at tmuxd's log there"
	case dispatch.ReasonSpawnNoAnswer:
		return "no session could be started now", "if this lasts, look at the host and at tmuxd's log there"
	case dispatch.ReasonSessionDetached:
		return "the agent's process lives on without its session, and nothing is started beside it",
			"end that process on the host, or wait until it ends; the session comes back by itself afterwards"
	case dispatch.ReasonSessionEnded:
		return "the session ended before it could be pasted into", ""
	case dispatch.ReasonHarnessExited:
		return "the harness ended right after its start",
			"start the harness by hand on the host, in the session's directory, and see what it says"
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
		return "policy allows no first session for this event", "start a session for the work item by hand, or change the policy"
	case dispatch.ReasonLeaseHeld:
		return "another run is at work on this work item", ""
	case dispatch.ReasonDeadline:
		return "the time for one call ran out, and asking again goes on", ""
	case dispatch.ReasonNone, dispatch.ReasonStart, dispatch.ReasonFirst, dispatch.ReasonNoConversation, dispatch.ReasonByConfiguration,
		dispatch.ReasonCannotResume, dispatch.ReasonBadConversationID, dispatch.ReasonResumeFailed, dispatch.ReasonStarted,
		dispatch.ReasonStampProvesOurs, dispatch.ReasonAnotherIncarnation, dispatch.ReasonSessionLives, dispatch.ReasonOccupantLives:
		// These are reasons of steps, which no outcome has.
	}
	return string(reason), ""
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
	return name(int(p), "not asked", "unreachable", "unknown", "live", "foreign", "detached", "dead", "dead with guests", "absent")
}

func spawnName(s dispatch.Spawn) string {
	return name(int(s), "not tried", "started", "started, prompt taken", "occupied", "unclearable", "died", "refused", "no answer", "failed")
}

func pasteName(p dispatch.Paste) string {
	return name(int(p), "not tried", "submitted", "already delivered", "held", "not ready", "session gone", "session foreign", "refused",
		"unconfirmed", "no answer", "failed")
}

func name(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return names[0]
}
