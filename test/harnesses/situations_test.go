package harnesses

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// situation is what a delivery meets at a program that runs.
type situation struct {
	name string
	// deliveries is how many it makes.
	deliveries int
	meet       func(*rig)
}

const (
	// forbidden is a file that no text may bring about, and known one that is there.
	forbidden = "forbidden"
	known     = "README.md"
)

// situations are those that leave the program running and its composer empty.
func situations() []situation {
	says := func(text string) func(*rig) {
		return func(r *rig) { r.deliver(r.next(text)) }
	}
	lines := func(n int) string { return strings.Repeat("- a line, of \"some\" length × and 'more'\n", n) }
	return []situation{
		{"one line", 1, says("hello there")},
		{"6 KB in many lines", 1, says(lines(150))},
		{"100 KB", 1, says(lines(2440))},
		{"a text that begins with a slash", 1, says("/quit\n/exit")},
		{"a text that begins with an exclamation mark", 1, says("!touch " + forbidden)},
		{"a text that begins with a hash", 1, says("# remember this")},
		{"a text that begins with an at sign", 1, says("@" + known + " @nobody")},
		{"a text that ends with a file's name", 1, says("look at @" + known)},
		{"a long text that ends with a file's name", 1, says(lines(150) + "@" + known)},
		{"a text that ends with a skill's name", 1, says("use $plan")},
		{"a text that quotes a question", 1, func(r *rig) { r.deliver(r.next(r.asks)) }},
		{"a text that quotes the choices", 1, says("› 1. Yes, proceed (y)\n Allow once   Allow always   Reject\nPress enter to confirm or esc to cancel")},
		{"a text that quotes a turn", 1, says("press esc to interrupt, esc interrupt")},
		{"a text that quotes a composer", 1, says("[Pasted Content 6108 chars] [Pasted ~3 lines]\n  fake-1 default · /work/widget")},
		{"a turn that runs", 2, (*rig).meetTurn},
		{"a draft", 1, (*rig).meetDraft},
		{"a question", 2, (*rig).meetQuestion},
		{"somebody who watches", 1, (*rig).meetWatcher},
		{"copy mode", 1, (*rig).meetCopyMode},
	}
}

// holds asks for a delivery until it is held for one reason, and expects that it is not typed before that.
func (r *rig) holds(d delivery, reason tmuxdv1.HoldReason) {
	r.t.Helper()
	r.until(startTime, d.id+" is held: "+reason.String(), func() bool {
		res := r.paste(d)
		if submitted(res) || !r.absent(d) || r.typed(d) {
			r.t.Fatalf("%s had to be held (%v): %v, on\n%s", d.id, reason, res, r.screen())
		}
		return res.GetHeld().GetReason() == reason
	})
}

// typed reports whether a delivery was typed, also if it is queued behind a turn.
func (r *rig) typed(d delivery) bool {
	r.t.Helper()
	st, err := r.tmuxd.SessionState(r.t.Context(), &tmuxdv1.SessionStateRequest{WorkItem: item, DeliveryId: d.id})
	must(r.t, err)
	return st.GetDeliveryPhase() != tmuxdv1.Phase_PHASE_UNSPECIFIED
}

// meetTurn has a delivery come while a turn runs: it goes in after it.
func (r *rig) meetTurn() {
	r.t.Helper()
	const seconds = 5
	first := r.next(r.turn(seconds))
	r.deliver(first)
	second := r.next("after the turn")
	r.holds(second, tmuxdv1.HoldReason_HOLD_REASON_BUSY)
	r.deliver(second)
	if between := r.arrives(second).at.Sub(r.arrives(first).at); between < seconds*time.Second {
		r.t.Errorf("it went in %v after the turn began", between)
	}
}

// meetDraft has a delivery come while a person writes: it waits, or goes past the draft; the draft stays, and they never mix.
func (r *rig) meetDraft() {
	r.t.Helper()
	draft := r.draft()
	r.tmux("send-keys", "-t", r.pane(), "-l", draft)
	r.until(startTime, "the draft shows", func() bool { return r.shows(draft) })
	d := r.next("not beside a draft")
	if r.handsOver() {
		r.deliver(d)
	} else {
		r.holds(d, tmuxdv1.HoldReason_HOLD_REASON_DRAFT)
	}
	if !r.shows(draft) {
		r.t.Errorf("the draft is gone:\n%s", r.screen())
	}
	r.tmux("send-keys", "-t", r.pane(), "C-u")
	r.until(startTime, "the draft is cleared", func() bool { return !r.shows(draft) })
	r.deliver(d)
}

// meetCopyMode has a delivery come while a person reads in copy mode: it goes in, and the person reads on unless it was typed.
func (r *rig) meetCopyMode() {
	r.t.Helper()
	r.tmux("copy-mode", "-t", r.pane())
	r.deliver(r.next("from copy mode"))
	if !r.handsOver() {
		return
	}
	if !strings.HasPrefix(r.tmux("display-message", "-p", "-t", r.pane(), "#{pane_in_mode}"), "1") {
		r.t.Error("copy mode was left")
	}
	r.tmux("copy-mode", "-q", "-t", r.pane())
}

// meetQuestion has a delivery come while the program asks a person: it waits, and the person answers.
func (r *rig) meetQuestion() {
	r.t.Helper()
	r.sent++
	r.deliver(r.next(r.ask("allowed-" + strconv.Itoa(r.sent))))
	d := r.next("after the question")
	r.holds(d, tmuxdv1.HoldReason_HOLD_REASON_DIALOG)
	// Over its channel it may say so before it has drawn the question.
	r.until(startTime, "the question shows", r.asksNow)
	for range 2 {
		r.holds(d, tmuxdv1.HoldReason_HOLD_REASON_DIALOG)
	}
	n, err := r.allowed(r)
	must(r.t, err)
	if n != r.allowances || !r.asksNow() {
		r.t.Fatalf("the question was answered, by nobody:\n%s", r.screen())
	}
	r.allowances++
	var pressed time.Time
	r.until(startTime, "the answer is taken", func() bool {
		// A program that has only just drawn its question may miss a key.
		if time.Since(pressed) > 2*time.Second && r.asksNow() {
			pressed = time.Now()
			r.tmux("send-keys", "-t", r.pane(), r.allow)
		}
		n, err := r.allowed(r)
		must(r.t, err)
		return n >= r.allowances
	})
	r.deliver(d)
}

// asksNow reports whether a question is open: a text may quote one, but beside it the cursor shows.
func (r *rig) asksNow() bool {
	return r.shows(r.asks) && strings.HasPrefix(r.tmux("display-message", "-p", "-t", r.pane(), "#{cursor_flag}"), "0")
}

// meetWatcher has a delivery come while a person looks on: over a terminal of another tmux, and without a right to type.
func (r *rig) meetWatcher() {
	r.t.Helper()
	watcher := func(args ...string) {
		r.t.Helper()
		if out, err := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", filepath.Join(r.dir, "w.sock")}, args...)...).CombinedOutput(); err != nil {
			r.t.Fatalf("%v: %s", err, out)
		}
	}
	watcher("new-session", "-d", "-x", "200", "-y", "50", "env", "-u", "TMUX", "tmux", "-N", "-S", r.state().GetSocketPath(), "attach-session", "-r", "-t", "="+target+":")
	defer watcher("kill-server")
	r.until(startTime, "the watcher is there", func() bool { return strings.Contains(r.tmux("list-clients", "-F", "#{client_readonly}"), "1") })
	r.deliver(r.next("watched"))
}

// meetAnew has a person begin another conversation: what comes then is not lost.
func (r *rig) meetAnew() {
	r.t.Helper()
	r.tmux("send-keys", "-t", r.pane(), "-l", r.anew)
	r.until(startTime, "the command shows", func() bool { return r.shows(r.anew) })
	last := r.deliveries[len(r.deliveries)-1].id
	r.until(startTime, "another conversation shows", func() bool {
		r.tmux("send-keys", "-t", r.pane(), "Enter")
		return !r.shows(last)
	})
	r.deliver(r.next("after a person began anew"))
	r.deliver(r.next("and once more"))
}

// meetDeath has the program killed, in a turn or after one, and resumed: the next delivery goes into the same conversation.
func (r *rig) meetDeath(v victim, inTurn bool) {
	r.t.Helper()
	r.conversation = r.state().GetConversationId()
	if r.conversation == "" {
		r.t.Fatalf("its conversation was not learned: %v", r.state())
	}
	if inTurn {
		r.deliver(r.next(r.turn(60)))
	}
	r.kills++
	r.kill(v)
	r.started(r.conversation)
	d := r.next("go on")
	r.deliver(d)
	got, kept := r.arrives(d).conversation, r.state().GetConversationId()
	if got != r.conversation || kept != r.conversation {
		r.t.Errorf("the conversation was %s; it goes on in %s, and %s is remembered", r.conversation, got, kept)
		return
	}
	r.resumed++
}

// meetSuddenDeath has the program killed as soon as it took a delivery: that is in its conversation, and goes on with the next one.
func (r *rig) meetSuddenDeath() {
	r.t.Helper()
	r.conversation = r.state().GetConversationId()
	d := r.next("the last words before the end")
	r.submits(d)
	r.kill(theProgram)
	r.kills++
	r.started(r.conversation)
	r.submits(d)
	r.deliver(r.next("go on after that"))
	r.arrives(d)
	r.resumed++
}

// meetUnknown has the program started with a conversation that it does not have: it is not started, however late it says so, and takes nothing.
func (r *rig) meetUnknown() {
	r.t.Helper()
	d := r.next("not for an unknown conversation")
	r.kill(theWrapper)
	if res := r.start(r.unknown); res.GetStarted() != nil {
		r.until(startTime, "it gives up", func() bool {
			if got := r.paste(d); submitted(got) {
				r.t.Fatalf("it took a delivery in a conversation that it does not have: %v", got)
			}
			return r.dead()
		})
		if res = r.start(r.unknown); res.GetNotStarted() == nil {
			r.t.Fatal(res)
		}
		r.classified(res)
	} else if res.GetNotStarted() == nil {
		r.t.Fatal(res)
	} else {
		r.classified(res)
	}
	r.started(r.conversation)
	r.deliver(d)
}

// classified expects that a start failed for want of the conversation.
func (r *rig) classified(res *tmuxdv1.SpawnResponse) {
	r.t.Helper()
	if got := res.GetNotStarted().GetFailure(); got != tmuxdv1.Failure_FAILURE_CONVERSATION_UNKNOWN {
		r.t.Errorf("it is told as %v: %v", got, res)
	}
}

// innocent expects that nothing was executed.
func (r *rig) innocent() {
	r.t.Helper()
	if _, err := os.Stat(filepath.Join(r.directory, forbidden)); err == nil {
		r.t.Error("a text was executed as a command")
	}
}
