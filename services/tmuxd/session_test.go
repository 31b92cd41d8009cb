package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/disk"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	d1 = "delivery-0001"
	d2 = "delivery-0002"
	d3 = "delivery-0003"
)

func TestSpawn_TheEventIsTheFirstPrompt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started(d1, "fix the build\nplease")
	if res.PromptPhase != session.Taken || res.Conversation == "" || res.Resumed {
		t.Errorf("%+v", res)
	}
	r.took(res.Conversation, typed(d1, "fix the build\nplease"))
	st := r.state()
	if st.State != session.Live || st.Flags != 0 || st.Conversation != res.Conversation || st.Incarnation.Stamp != res.Incarnation.Stamp {
		t.Errorf("%+v", st)
	}
	for _, pid := range []int{r.agentPid(), st.Incarnation.PanePid, st.Incarnation.Server.Pid} {
		for _, file := range []string{"cmdline", "environ"} {
			data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "fix the build") {
				t.Errorf("the prompt stands in the %s of %d", file, pid)
			}
		}
	}
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(r.agentPid()) + "/environ")
	if strings.Contains(string(env), "TMUX") {
		t.Error("the agent sees the variables of tmux")
	}
	left, _ := filepath.Glob(filepath.Join(r.dir, "state", "*s", "*"))
	for _, path := range left {
		if strings.Contains(path, "/specs/") || strings.Contains(path, "/prompts/") {
			t.Errorf("%s is left behind", path)
		}
	}
}

func TestSpawn_ARepeatOfTheSameDeliveryStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started(d1, "hello there")
	again := r.spawn(d1, "hello there")
	if again.Outcome != host.SpawnStarted || !again.AlreadyDone || again.Incarnation.Stamp != first.Incarnation.Stamp {
		t.Errorf("%+v", again)
	}
	r.took(first.Conversation, typed(d1, "hello there"))
}

func TestSpawn_OverTheLivingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started(d1, "hello there")
	res := r.spawn(d2, "another")
	if res.Outcome != host.SpawnOccupied || res.Occupant != host.OccupantLive || res.Incarnation.Stamp != first.Incarnation.Stamp {
		t.Errorf("%+v", res)
	}
	r.took(first.Conversation, typed(d1, "hello there"))
}

func TestSpawn_ManyAtOnceStartOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	results := make([]host.SpawnResult, 8)
	var wg sync.WaitGroup
	for i := range results {
		token := r.token()
		wg.Go(func() {
			res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: "delivery-100" + strconv.Itoa(i), Text: "x y", Token: token})
			if err != nil && !errors.Is(err, fault.Fenced) {
				t.Error(err)
			}
			results[i] = res
		})
	}
	wg.Wait()
	started := 0
	for _, res := range results {
		if res.Outcome == host.SpawnStarted {
			started++
		}
	}
	if started != 1 {
		t.Errorf("%d were started: %+v", started, results)
	}
}

func TestPaste_IntoALivingAgentOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	for id, text := range map[string]string{d1: "one line", d2: "/exit\n!ls\n# note", d3: strings.Repeat("six kilobytes of text\n", 300)} {
		got := r.paste(id, text)
		if got.Verdict != host.Submitted || !got.ByTranscript {
			t.Fatalf("%s: %+v\n%s", id, got, r.screen())
		}
		if again := r.paste(id, text); again.Verdict != host.AlreadyDelivered {
			t.Errorf("%s again: %+v", id, again)
		}
		r.idle()
	}
	texts, err := r.conversation(res.Conversation).Texts("user")
	if err != nil || len(texts) != 3 {
		t.Errorf("the agent took %d messages", len(texts))
	}
	if st, err := r.State(r.ctx(), r.item, d1); err != nil || st.Phase != session.Taken {
		t.Errorf("phase %v, %v", st.Phase, err)
	}
}

// idle waits for the end of every turn that began: a moment after the agent took a message, its title does not say so yet.
func (r *rig) idle() {
	r.t.Helper()
	conversation := r.conversation(r.state().Conversation)
	r.until("the turn is over", func() bool {
		took, err := conversation.Texts("user")
		answered, err2 := conversation.Texts("assistant")
		title, err3 := r.cmd("display-message", "-p", "-t", "%0", "#{pane_title}")
		return err == nil && err2 == nil && err3 == nil && len(took) == len(answered) && strings.TrimSpace(title) == "fakeagent"
	})
}

func TestPaste_AMebibyteIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	text := strings.Repeat("0123456789abcdef é\n", 1<<20/21)
	// A busy machine may still be drawing when it is looked at: then it is asked again, as the product does.
	r.until("it is submitted", func() bool { return r.goesIn(d1, text) })
	r.took(res.Conversation, typed(d1, strings.TrimRight(text, "\n")))
}

func TestPaste_ASwallowedSubmitIsRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_PASTE_SETTLE": "1s"})
	res := r.started("", "")
	r.ready()
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_ADialogIsNeverAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.signal(r.agentPid(), syscall.SIGUSR1)
	r.until("the dialog shows", func() bool { return strings.Contains(r.screen(), "Would you like to run") })
	for range 3 {
		if got := r.paste(d1, "hello there"); got.Verdict != host.Held || got.Cause != host.HeldDialog {
			t.Fatalf("%+v", got)
		}
	}
	if a, err := r.conversation(res.Conversation).Approvals(); err != nil || len(a) > 0 {
		t.Fatalf("a dialog was answered: %v %v", a, err)
	}
	r.person("send-keys", "-t", "%0", "3")
	r.until("the dialog is gone", func() bool { return !strings.Contains(r.screen(), "Would you like to run") })
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("after the dialog: %+v\n%s", got, r.screen())
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_ADraftIsNeverMerged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("send-keys", "-t", "%0", "-l", "merge only after")
	r.until("the draft shows", func() bool { return strings.Contains(r.screen(), "› merge only after") })
	if got := r.paste(d1, "hello there"); got.Verdict != host.Held || got.Cause != host.HeldDraft {
		t.Fatalf("%+v", got)
	}
	if !strings.Contains(r.screen(), "› merge only after") {
		t.Fatal("the draft is gone")
	}
	r.person("send-keys", "-t", "%0", "C-u")
	r.ready()
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_ATurnIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started(d1, "zz:dur=3s")
	// For a moment the agent may not have drawn its composer yet.
	r.until("a turn is told", func() bool {
		got := r.paste(d2, "hello there")
		return got.Verdict == host.Held && got.Cause == host.HeldBusy
	})
	r.idle()
	if got := r.paste(d2, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "zz:dur=3s"), typed(d2, "hello there"))
}

func TestPaste_AWordThatCouldBeCompletedIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	if got := r.paste(d1, "look at @README.md"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "look at @README.md "))
}

func TestPaste_ATurnThatDoesNotShowYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Status, r.entry.Env["MUXPOST_NOTE"] = "note", "{note}"
	r.restart()
	res := r.started("", "")
	r.ready()
	if got := r.paste(d1, "hello"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.idle()
	note := r.disk.NotePath(r.item.Target(), res.Incarnation.Stamp)
	if env, err := os.ReadFile("/proc/" + strconv.Itoa(r.agentPid()) + "/environ"); err != nil || !strings.Contains(string(env), "MUXPOST_NOTE="+note+"\x00") {
		t.Fatalf("the program does not know where to tell: %v", err)
	}
	r.notes(note, "working", time.Now())
	if got := r.paste(d2, "hello there"); got.Verdict != host.Held || got.Cause != host.HeldBusy {
		t.Fatalf("an agent looks idle, but may have begun a turn: %+v", got)
	}
	r.notes(note, "idle", time.Now())
	if got := r.paste(d2, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("the turn is over: %+v", got)
	}
	r.idle()
	r.notes(note, "working", time.Now().Add(-time.Hour))
	if got := r.paste(d3, "and again"); got.Verdict != host.Submitted {
		t.Fatalf("it did not say that it is done, and its screen shows it: %+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello"), typed(d2, "hello there"), typed(d3, "and again"))
}

// What was noted of a title is older than the title that a look sees: a note that is not true any more must hold nothing.
func TestPaste_ATitleIsBelievedBeforeItsNote(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.notes(r.disk.NotePath(r.item.Target(), res.Incarnation.Stamp), "working", time.Now())
	if got := r.paste(d1, "hello"); got.Verdict != host.Submitted {
		t.Fatalf("its title shows that no turn runs: %+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello"))
}

func TestPaste_GoesToTheAgentsPaneAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("split-window", "-t", "%0", "cat -v")
	r.person("rename-window", "-t", "%0", "mine")
	if got := r.paste(d1, "touch /tmp/pwned"); got.Verdict != host.Submitted {
		t.Fatalf("%+v\n%s", got, r.screen())
	}
	if strings.Contains(r.shown("%1"), "pwned") {
		t.Fatal("it went into the person's pane")
	}
	r.took(res.Conversation, typed(d1, "touch /tmp/pwned"))
}

func TestPaste_FollowsARenamedSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("rename-session", "-t", "="+r.item.Target()+":", "mine")
	if st := r.state(); st.State != session.Live || !st.Flags.Has(session.Moved) {
		t.Fatalf("%+v", st)
	}
	if got := r.spawn(d2, "beside"); got.Outcome != host.SpawnOccupied {
		t.Fatalf("spawned beside it: %+v", got)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_InCopyModeArrives(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("copy-mode", "-t", "%0")
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_IntoTheDeadIsRefusedAndHarmsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.ready()
	r.signal(r.agentPid(), syscall.SIGKILL)
	st := r.becomes(session.Dead)
	if st.Exit.Signal != 9 {
		t.Errorf("exit %+v", st.Exit)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Refused || got.Cause != host.RefusedDead {
		t.Fatalf("%+v", got)
	}
	if _, err := r.cmd("has-session", "-t", "="+r.item.Target()+":"); err != nil {
		t.Error("the server is gone")
	}
}

func TestSpawn_TheDeadComesBackWithItsConversation(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.started(d1, "hello there")
	r.idle()
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: first.Conversation, DeliveryID: d2,
		Text: "go on", Token: r.token()})
	if err != nil || res.Outcome != host.SpawnStarted || !res.Resumed || res.Conversation != first.Conversation {
		t.Fatalf("%+v, %v", res, err)
	}
	if res.Incarnation.Stamp == first.Incarnation.Stamp {
		t.Error("the same incarnation")
	}
	r.took(first.Conversation, typed(d1, "hello there"), typed(d2, "go on"))
}

func TestSpawn_AResumeThatDiesIsNotStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_DIE_AFTER": "300ms"})
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: "00000000-0000-4000-8000-000000000000",
		DeliveryID: d1, Text: "go on", Token: r.token()})
	if err != nil || res.Outcome != host.SpawnNotStarted || !res.Exit.Known || res.Exit.Code != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if !strings.Contains(strings.Join(res.LastLines, "\n"), "No saved session found") {
		t.Errorf("last lines %q", res.LastLines)
	}
	// It never took the event, so the event may become the first prompt of a fresh start, which clears what is left.
	if st, err := r.State(r.ctx(), r.item, d1); err != nil || st.State != session.Dead || st.Phase != session.None {
		t.Errorf("%+v, %v", st, err)
	}
	fresh := r.started(d1, "go on")
	r.took(fresh.Conversation, typed(d1, "go on"))
}

func TestSpawn_RefusesWhatCannotWorkBeforeAnyTmux(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, row := range map[string]struct {
		change func(*host.SpawnRequest)
		want   fault.Reason
	}{
		"unknown harness":     {func(q *host.SpawnRequest) { q.Harness = "codx" }, fault.ReasonUnknownHarness},
		"missing directory":   {func(q *host.SpawnRequest) { q.Directory = r.dir + "/work/none" }, fault.ReasonDirectoryMissing},
		"outside the roots":   {func(q *host.SpawnRequest) { q.Directory = "/etc" }, fault.ReasonDirectoryOutside},
		"dots":                {func(q *host.SpawnRequest) { q.Directory = r.dir + "/work/../../etc" }, fault.ReasonBadArgument},
		"flag as id":          {func(q *host.SpawnRequest) { q.Resume = "--help" }, fault.ReasonCannotResume},
		"empty text":          {func(q *host.SpawnRequest) { q.Text = " \n" }, fault.ReasonTextEmpty},
		"five mebibytes":      {func(q *host.SpawnRequest) { q.Text = strings.Repeat("x", 5<<20) }, fault.ReasonTextTooLarge},
		"invalid UTF-8":       {func(q *host.SpawnRequest) { q.Text = "a\xff" }, fault.ReasonBadText},
		"malformed delivery":  {func(q *host.SpawnRequest) { q.DeliveryID = "#{x}" }, fault.ReasonBadDeliveryID},
		"no fencing token":    {func(q *host.SpawnRequest) { q.Token = 0 }, fault.ReasonBadArgument},
		"a link out of there": {func(q *host.SpawnRequest) { q.Directory = r.dir + "/work/out" }, fault.ReasonDirectoryOutside},
	} {
		_ = os.MkdirAll(r.dir+"/work", 0o755)
		_ = os.Symlink("/etc", r.dir+"/work/out")
		q := host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: d1, Text: "hello there", Token: 1}
		row.change(&q)
		if _, err := r.Spawn(r.ctx(), q); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.tmux.Dial(r.item.Target()) != session.NoServer {
		t.Error("a tmux server was started")
	}
}

func TestFence_AnOlderTokenNeverActs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.tokens = 10
	res := r.started(d1, "hello there")
	r.idle()
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d2, Text: "stale", Token: 3}); !errors.Is(err, fault.Fenced) {
		t.Errorf("paste: %v", err)
	}
	if _, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Token: 3}); !errors.Is(err, fault.Fenced) {
		t.Errorf("spawn: %v", err)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestRestart_AdoptsEverySession(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started(d1, "hello there")
	r.idle()
	r.restart()
	st := r.state()
	if st.State != session.Live || st.Incarnation.Stamp != res.Incarnation.Stamp || st.Conversation != res.Conversation {
		t.Fatalf("%+v", st)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.AlreadyDelivered {
		t.Errorf("%+v", got)
	}
	if got := r.paste(d2, "go on"); got.Verdict != host.Submitted {
		t.Errorf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"), typed(d2, "go on"))
}

// The journal was written by a clock that was set back afterwards, so that the agent's record looks older than what it has.
func TestEvidence_IsFoundWhateverTheClockDid(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.now = func() time.Time { return time.Now().Add(5 * time.Minute) }
	r.restart()
	res := r.started(d1, "hello there")
	r.took(res.Conversation, typed(d1, "hello there"))
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	// What was asked about last is not known: tmuxd ended before it could note it.
	if err := r.disk.Append(r.item.Target(), host.Entry{Time: r.now(), ID: d1, Phase: session.Submitted, Stamp: res.Incarnation.Stamp, Harness: "fakeagent",
		Conversation: res.Conversation, Directory: r.state().Directory}, true); err != nil {
		t.Fatal(err)
	}
	for what, clock := range map[string]func() time.Time{"set back": time.Now, "long after": func() time.Time { return time.Now().Add(time.Hour) }} {
		r.now = clock
		r.restart()
		got, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", DeliveryID: d1, Text: "hello there", Resume: res.Conversation,
			Token: r.token()})
		if err != nil || got.Reason != "prompt_may_have_arrived" {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
}

func TestRestart_ATextThatStandsUnsentIsSubmittedNotTypedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.leftPasted(d1, "hello there")
	if got := r.paste(d2, "another"); got.Verdict != host.Held || got.Cause != host.HeldDraft || !strings.Contains(got.Detail, d1) {
		t.Errorf("another delivery meanwhile: %+v", got)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v\n%s", got, r.screen())
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestState_SilenceIsUnknownAndLicensesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.signal(res.Incarnation.Server.Pid, syscall.SIGSTOP)
	if st := r.state(); st.State != session.Unknown {
		t.Errorf("%+v", st)
	}
	if got := r.spawn(d1, "over it"); got.Outcome != host.SpawnFailed || got.Reason != "tmux_no_answer" {
		t.Errorf("%+v", got)
	}
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: r.token()}); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	r.signal(res.Incarnation.Server.Pid, syscall.SIGCONT)
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestState_ADeletedSocketIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	server := r.state().Incarnation.Server.Pid
	if err := os.Remove(r.tmux.Socket(r.item.Target())); err != nil {
		t.Fatal(err)
	}
	if got := r.spawn(d2, "a second server"); got.Outcome != host.SpawnOccupied {
		t.Errorf("%+v", got)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	if now := r.state().Incarnation.Server.Pid; now != server {
		t.Errorf("the server is %d, and was %d", now, server)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestState_ADeletedSocketOfAStoppedServerIsNotAbsence(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	server := r.started("", "").Incarnation.Server.Pid
	r.signal(server, syscall.SIGSTOP)
	if err := os.Remove(r.tmux.Socket(r.item.Target())); err != nil {
		t.Fatal(err)
	}
	if st := r.state(); st.State != session.Unknown {
		t.Errorf("%+v", st)
	}
	if got := r.spawn(d1, "a second server"); got.Outcome != host.SpawnFailed {
		t.Errorf("%+v", got)
	}
}

func TestState_APersonsRespawnPaneIsNotOurAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.ready()
	r.person("respawn-pane", "-k", "-t", "%0", "cat -v")
	st := r.becomes(session.Dead)
	if !st.Flags.Has(session.Guests) {
		t.Fatalf("%+v", st)
	}
	if got := r.paste(d1, "touch /tmp/pwned"); got.Verdict != host.Refused {
		t.Errorf("%+v", got)
	}
	if got := r.spawn(d1, "x y"); got.Outcome != host.SpawnOccupied || got.Occupant != host.OccupantUnclearable {
		t.Errorf("%+v", got)
	}
	if strings.Contains(r.screen(), "pwned") {
		t.Error("it was typed")
	}
}

func TestState_AForeignSessionIsNeverTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.ready()
	r.person("set-option", "-u", "-t", "="+r.item.Target()+":", "@mux_stamp")
	r.person("set-option", "-pu", "-t", "="+r.item.Target()+":", "@mux_stamp")
	if st := r.state(); st.State != session.Live || !st.Flags.Has(session.Foreign) {
		t.Fatalf("%+v", st)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Refused || got.Cause != host.RefusedForeign {
		t.Errorf("%+v", got)
	}
	if got := r.spawn(d1, "x y"); got.Outcome != host.SpawnOccupied || got.Occupant != host.OccupantForeign || got.Remedy == "" {
		t.Errorf("%+v", got)
	}
}

func TestSpawn_AnAgentThatOutlivesItsSessionIsNotDoubled(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	// A program that does not end with its terminal: for a second, until the wrapper ends it for good, it outlives its session.
	r.entry.Binary, r.entry.Fresh = "/bin/sh", []string{"-c", "trap '' HUP TERM; while :; do sleep 0.1; done", "{conversation_id}"}
	r.restart()
	server := r.started("", "").Incarnation.Server.Pid
	r.signal(server, syscall.SIGKILL)
	r.until("the session is detached", func() bool { st := r.state(); return st.State == session.Live && st.Flags.Has(session.Detached) })
	if got := r.spawn(d1, "beside it"); got.Outcome != host.SpawnOccupied {
		t.Errorf("%+v", got)
	}
	r.becomes(session.Absent)
}

func TestOpen_TwoTmuxdOnOneDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := disk.Open(filepath.Join(r.dir, "state"), r.execs); err == nil || !strings.Contains(err.Error(), "another tmuxd") {
		t.Errorf("%v", err)
	}
}

// Some programs take half a minute to say that they do not know a conversation, which is longer than a start is watched.
func TestSpawn_AResumeThatDiesLateIsToldOnceAndNotTriedForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_DIE_AFTER": "4s"}) // longer than its survival window
	resume := func() host.SpawnResult {
		res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: "00000000-0000-4000-8000-000000000000", Token: r.token()})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	first := resume()
	if first.Outcome != host.SpawnStarted {
		t.Fatalf("%+v", first)
	}
	r.until("it has died", func() bool { return r.state().State == session.Dead })
	told := resume()
	if told.Outcome != host.SpawnNotStarted || told.Exit.Code != 1 || !strings.Contains(strings.Join(told.LastLines, "\n"), "No saved session found") {
		t.Fatalf("%+v", told)
	}
	if again := resume(); again.Outcome != host.SpawnStarted || again.Incarnation.Stamp == first.Incarnation.Stamp {
		t.Errorf("it is not tried once more when it is asked for once more: %+v", again)
	}
}
