package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// notes writes a note as a program does.
func (r *rig) notes(path, text string, at time.Time) {
	r.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chtimes(path+".new", at, at); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// tells waits until an item's agent is told to do something, without asking anybody.
func (w *watching) tells(n int, want host.Activity) host.Doing {
	w.t.Helper()
	item := w.item
	if n > 0 {
		item = itemNo(w.t, n)
	}
	w.until(fmt.Sprintf("it is told that it does %d", want), func() bool { return w.listed(item).Doing.Activity == want })
	return w.listed(item).Doing
}

// quiet waits until nothing was asked of tmux for longer than the watcher leaves a session alone.
func (w *watching) quiet() {
	w.t.Helper()
	last, since := w.commands.Load(), time.Now()
	w.until("nobody asks tmux any more", func() bool {
		if n := w.commands.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

func TestStatus_IsToldAsItChangesAndCostsNoCommand(t *testing.T) {
	t.Parallel()
	const sessions = 12
	r := newRig(t, nil)
	r.sleepers()
	w := r.watched(time.Hour)
	r.startMany(sessions)
	var terminals []*os.File
	for n := range sessions {
		w.settled(itemNo(t, n+1), session.Live)
		w.tells(n+1, host.ActivityStarting)
		// What is written there is what the program of the pane shows.
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", w.listed(itemNo(t, n+1)).Incarnation.PanePid), os.O_WRONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		terminals = append(terminals, f)
	}
	w.quiet()
	before := w.commands.Load()
	var since time.Time
	for _, row := range []struct {
		titles []string
		want   host.Activity
	}{
		{[]string{"⠋ widget", "⠙ widget", "⠹ widget"}, host.ActivityWorking},
		{[]string{"[ ! ] Action Required | widget"}, host.ActivityApproval},
		{[]string{"⠸ widget"}, host.ActivityWorking},
		{[]string{"widget [ ! ] Action Required", "⠸widget", "[ ? ] ⠋ widget"}, host.ActivityIdle}, // which a text can bring about
	} {
		for _, f := range terminals {
			for _, title := range row.titles {
				if _, err := fmt.Fprintf(f, "\x1b]2;%s\x07", title); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n := range terminals {
			d := w.tells(n+1, row.want)
			if !d.SeenAt.IsZero() || d.Since.Before(since) || time.Since(d.Since) > time.Minute {
				t.Errorf("%+v, after %v", d, since)
			}
			if n == len(terminals)-1 {
				since = d.Since.Add(-5 * time.Second) // the clock of files is coarse, and others were told before
			}
			if got := r.Activity(r.ctx(), itemNo(t, n+1), false); got.Activity != row.want {
				t.Errorf("asked, it is %+v", got)
			}
		}
	}
	if n := w.commands.Load() - before; n != 0 {
		t.Errorf("%d commands of tmux for %d changes", n, 4*sessions)
	}
}

func TestStatus_OfAnAgentFollowsItsTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_TURN": "1s"})
	w := r.watched(time.Hour)
	res := r.started("", "")
	w.tells(0, host.ActivityIdle) // its title says so from the start
	if got := r.Activity(r.ctx(), r.item, true); got.Activity != host.ActivityStarting && got.Activity != host.ActivityIdle {
		t.Errorf("%+v", got)
	}
	r.until("it takes a message", func() bool { return r.goesIn(d1, "zz:stream hello") })
	w.tells(0, host.ActivityWorking)
	w.tells(0, host.ActivityIdle)
	r.signal(r.agentPid(), syscall.SIGUSR1)
	if d := w.tells(0, host.ActivityApproval); d.Detail != "" {
		t.Errorf("%+v", d)
	}
	if got := r.paste(d2, "hello"); got.Cause != host.HeldDialog {
		t.Errorf("%+v", got)
	}
	if d := w.listed(r.item).Doing; d.Activity != host.ActivityApproval || !strings.Contains(d.Detail, "Action Required") {
		t.Errorf("what a look has shown besides is not kept: %+v", d)
	}
	// A tmuxd that is started anew knows it from the note, and since when.
	was := w.listed(r.item).Doing.Since
	w.stop()
	r.restart()
	again := r.watched(time.Hour)
	if d := again.tells(0, host.ActivityApproval); d.Since.Sub(was).Abs() > time.Second || !d.SeenAt.IsZero() {
		t.Errorf("%+v, and was %v", d, was)
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	again.settled(r.item, session.Dead)
	if d := again.listed(r.item).Doing; d != (host.Doing{}) {
		t.Errorf("a dead agent does %+v", d)
	}
	// What something of an earlier life tells late says nothing of this one.
	r.notes(r.disk.NotePath(r.item.Target(), "another"), "working", time.Now())
	r.notes(r.disk.NotePath(r.item.Target(), res.Incarnation.Stamp), "working", time.Now())
	r.started("", "")
	again.tells(0, host.ActivityIdle)
}

func TestStatus_AQuestionAtTheStartIsFoundByALook(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_TRUST_DIALOG": "true"})
	w := r.watched(30 * time.Millisecond)
	r.started("", "")
	if d := w.tells(0, host.ActivityHuman); d.SeenAt.IsZero() || d.Detail == "" {
		t.Errorf("%+v", d)
	}
	r.person("send-keys", "-t", "%0", "Enter")
	w.tells(0, host.ActivityIdle)
	w.quiet()
}

func TestStatus_AnotherConversationThatAPersonBeganIsTheOneToResume(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Status, r.entry.ConversationID, r.entry.Env["MUXPOST_NOTE"] = "note", "learned", "{note}"
	r.entry.Fresh = nil
	r.restart()
	w := r.watched(time.Hour)
	res := r.started("", "")
	w.settled(r.item, session.Live)
	note := r.disk.NotePath(r.item.Target(), res.Incarnation.Stamp)
	for _, conversation := range []string{"conv-one", "conv-two"} {
		r.notes(note, "working "+conversation+"\nit reads\n", time.Now())
		if d := w.tells(0, host.ActivityWorking); d.Detail != "it reads" {
			t.Errorf("%+v", d)
		}
		w.until(conversation+" is known", func() bool { return w.listed(r.item).Conversation == conversation })
		r.notes(note, "idle --resume\n", time.Now())
		w.tells(0, host.ActivityIdle)
		if got := r.state().Conversation; got != conversation {
			t.Errorf("the conversation is %q", got)
		}
	}
}

// An agent that fails at the end of a turn looks idle, by its title too: its own record says that a person has to do something.
func TestStatus_ATurnThatFailedForWantOfAPersonIsFoundInTheRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := r.watched(time.Hour)
	r.started("", "")
	w.tells(0, host.ActivityIdle)
	for _, row := range []struct {
		id, text, detail string
		want             host.Activity
	}{
		{d1, "zz:fail=limit please", "usage limit: You have hit your usage limit; try again later", host.ActivityHuman},
		{d2, "zz:fail=login please", "auth: You are not logged in", host.ActivityHuman},
		{d3, "zz:fail=model please", "", host.ActivityIdle},
	} {
		r.until("it takes "+row.text, func() bool { return r.goesIn(row.id, row.text) })
		w.until("the turn is over and its end was looked at", func() bool {
			d := w.listed(r.item).Doing
			return d.Activity == row.want && d.Detail == row.detail && (row.want == host.ActivityIdle || d.SeenAt.IsZero())
		})
		// It does not keep the next event away: only trying tells whether it has passed.
		if got := r.Activity(r.ctx(), r.item, true); got.Activity != row.want {
			t.Errorf("%s: a look says %+v", row.text, got)
		}
		w.stop()
		r.restart()
		w = r.watched(time.Hour)
		w.until("a tmuxd that is started anew knows it", func() bool {
			d := w.listed(r.item).Doing
			return d.Activity == row.want && d.Detail == row.detail
		})
	}
	r.until("a turn succeeds", func() bool { return r.goesIn("delivery-0004", "hello") })
	w.until("it is idle again", func() bool { d := w.listed(r.item).Doing; return d.Activity == host.ActivityIdle && d.Detail == "" })
}

func TestSpawn_SaysWhyAProgramEndedRightAfterItsStart(t *testing.T) {
	t.Parallel()
	for class, row := range map[string]struct{ message, code string }{
		"usage_limit": {"■ You have hit your usage limit; try again later", "1"},
		"auth":        {"■ You are not logged in", "1"},
		"":            {"■ You are not logged in", "0"}, // that was no failure
	} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]string{"FAKEAGENT_EXIT_AFTER": "500ms", "FAKEAGENT_EXIT_CODE": row.code, "FAKEAGENT_EXIT_MESSAGE": row.message})
			got := r.spawn("", "")
			if got.Outcome != host.SpawnNotStarted || got.Failure.Class != class || class != "" && got.Failure.Line != row.message {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("conversation_unknown", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: "01997b4e-6c6d-7c02-9d3c-8a2a5f6f2f10", Token: r.token()})
		if err != nil || got.Outcome != host.SpawnNotStarted || got.Failure.Class != "conversation_unknown" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestSpawn_AConversationIsResumedWhereItWas(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	place := r.dir + "/work/elsewhere"
	if err := os.MkdirAll(place, 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: d1, Text: "hello", Directory: place, Token: r.token()})
	if err != nil || first.Directory != place {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, row := range []struct{ resume, want string }{{first.Conversation, place}, {"", r.dir + "/work/" + r.item.Target()}} {
		r.signal(r.agentPid(), syscall.SIGKILL)
		r.becomes(session.Dead)
		got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: row.resume, Token: r.token()})
		if err != nil || got.Outcome != host.SpawnStarted || got.Directory != row.want {
			t.Errorf("resuming %q: %+v, %v", row.resume, got, err)
		}
	}
}

func TestStatus_AConversationThatIsOpenElsewhereNeedsAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started(d1, "hello")
	lock, err := os.Open(r.home + "/sessions/" + first.Conversation + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	r.until("another program has it", func() bool { return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil })
	if got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: first.Conversation, Token: r.token()}); err != nil || got.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", got, err)
	}
	r.until("it is said", func() bool {
		d := r.Activity(r.ctx(), r.item, true)
		return d.Activity == host.ActivityHuman && strings.HasPrefix(d.Detail, "conversation in use: This conversation is open")
	})
	if got := r.paste(d2, "hello there"); got.Cause != host.HeldDialog {
		t.Errorf("%+v", got)
	}
}
