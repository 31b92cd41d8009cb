package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Cases in which a careless driver types twice, merges, or sends what nobody wrote. Each was seen to happen.

func TestPaste_AFrozenAgentIsNotTypedAtAgain(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"short": "hello there", "more rows than show": strings.Repeat("a line of the event\n", 14),
		"folded": strings.Repeat("long ", 300)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.shelled()
			res := r.started("", "")
			r.ready()
			agent := r.grandchild()
			r.signal(agent, syscall.SIGSTOP)
			for range 3 {
				if got := r.paste(d1, text); got.Verdict != host.Held {
					t.Errorf("frozen: %+v", got)
				}
			}
			r.signal(agent, syscall.SIGCONT)
			r.until("it is submitted", func() bool {
				got := r.paste(d1, text)
				return got.Verdict == host.Submitted || got.Verdict == host.AlreadyDelivered
			})
			r.took(res.Conversation, typed(d1, strings.TrimRight(text, "\n ")))
		})
	}
}

// A program may have read a text long before it draws it: until then nothing shows of it, and its input is read.
func TestPaste_ATextThatShowsLateIsNotTypedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_PASTE_DRAW": "2500ms"})
	res := r.started("", "")
	r.ready()
	paste := func(id string) host.PasteResult {
		got, err := r.Paste(r.ctxFor(900*time.Millisecond), host.PasteRequest{Item: r.item, DeliveryID: id, Text: "hello there", Token: r.token()})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, id := range []string{d1, d1, d2} {
		if got := paste(id); got.Verdict != host.Held {
			t.Errorf("%s before it shows: %+v", id, got)
		}
	}
	r.until("it is submitted", func() bool {
		got := r.paste(d1, "hello there").Verdict
		return got == host.Submitted || got == host.AlreadyDelivered
	})
	r.idle()
	r.until("the other one is too", func() bool { return r.goesIn(d2, "hello there") })
	r.took(res.Conversation, typed(d1, "hello there"), typed(d2, "hello there"))
}

// What a person types while a delivery is under way is never sent with it. Where their keys met the submit itself (the agent had read them
// and not drawn them yet), the delivery may end as unconfirmed once they wiped the box; it is never merged, and never typed twice.
func TestPaste_WhatAPersonTypesMeanwhileIsNeverSent(t *testing.T) {
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	var want []string
	for i := range 8 {
		id := "delivery-200" + string(rune('a'+i))
		typing := make(chan struct{})
		go func() {
			defer close(typing)
			time.Sleep(time.Duration(rand.IntN(260)) * time.Millisecond)
			_, _ = r.cmd("send-keys", "-t", "%0", "-l", "DRAFT")
		}()
		got := r.paste(id, "hello there")
		<-typing
		unconfirmed := 0
		r.until("it ends", func() bool {
			if got.Verdict == host.Submitted || got.Verdict == host.AlreadyDelivered {
				want = append(want, typed(id, "hello there"))
				return true
			}
			if got.Verdict == host.Unconfirmed {
				unconfirmed++
			}
			r.wipe()
			got = r.paste(id, "hello there")
			return unconfirmed > 2
		})
		r.wipe()
		r.idle()
	}
	if len(want) < 4 {
		t.Errorf("only %d of 8 arrived", len(want))
	}
	for i, text := range r.texts(res.Conversation) {
		if i >= len(want) || text != want[i] {
			t.Errorf("message %d is %q", i, text)
		}
	}
	r.took(res.Conversation, want...)
}

// wipe has a person empty the composer.
func (r *rig) wipe() {
	r.t.Helper()
	for range 20 {
		if !strings.Contains(r.composer(), "DRAFT") && !strings.Contains(r.composer(), "hello") {
			return
		}
		r.person("send-keys", "-N", "60", "-t", "%0", "BSpace")
		time.Sleep(50 * time.Millisecond) // a person looks what came of it
	}
}

// composer is what stands at the bottom of the agent's screen, from its last prompt on.
func (r *rig) composer() string {
	screen := r.screen()
	return screen[max(strings.LastIndex(screen, "\n› "), 0):]
}

func (r *rig) texts(conversation string) []string {
	r.t.Helper()
	texts, err := r.conversation(conversation).Texts("user")
	if err != nil {
		r.t.Fatal(err)
	}
	return texts
}

// enter has a person press Enter until the composer is empty: the agent swallows one right behind a paste.
func (r *rig) enter() {
	r.t.Helper()
	r.until("the composer is empty", func() bool {
		r.person("send-keys", "-t", "%0", "Enter")
		return strings.Contains(r.screen(), "› Ask fakeagent to do anything")
	})
}

func TestPaste_WhatAPersonSentIsNotTypedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.leftPasted(d1, "hello there")
	r.enter()
	r.took(res.Conversation, typed(d1, "hello there"))
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	if st, err := r.State(r.ctx(), r.item, d1); err != nil || st.Phase != session.Taken {
		t.Errorf("%+v, %v", st, err)
	}
	again, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: res.Conversation, DeliveryID: d1,
		Text: "hello there", Token: r.token()})
	if err != nil || again.Outcome != host.SpawnFailed || again.Reason != "prompt_may_have_arrived" {
		t.Errorf("%+v, %v", again, err)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_WithoutARecordNothingIsTypedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Transcript = ""
	r.restart()
	res := r.started("", "")
	r.ready()
	text := strings.TrimSpace(strings.Repeat("a line\n", 60))
	r.leftPasted(d1, text)
	r.enter()
	r.took(res.Conversation, typed(d1, text))
	r.idle()
	if got := r.paste(d1, text); got.Verdict != host.Unconfirmed {
		t.Errorf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, text))
}

func TestPaste_ANewConversationOfThePersonsIsFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.started("", "")
	r.ready()
	r.person("send-keys", "-t", "%0", "-l", "/clear")
	r.until("the command shows", func() bool { return strings.Contains(r.screen(), "› /clear") })
	time.Sleep(200 * time.Millisecond) // the agent takes an Enter right behind fast typing for a newline: that is the person's affair
	r.person("send-keys", "-t", "%0", "Enter")
	r.ready()
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted || !got.ByTranscript {
		t.Errorf("%+v", got)
	}
}

func TestPaste_AQuotedMarkIsNoEvidence(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	quoting := "somebody wrote \"" + prompt.Mark(d2) + "\n\" here"
	if got := r.paste(d1, quoting); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.idle()
	if got := r.paste(d2, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, quoting), typed(d2, "hello there"))
}

func TestPaste_TextsThatLookLikeTheAgentsScreen(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	var want []string
	for i, text := range []string{
		"  fake-1 · x\nfake-1 · /bar", "This conversation is open in another app", "› 1. Yes, proceed (y)\nPress enter to confirm",
		"[Pasted Content 12 chars]", "› Ask fakeagent to do anything", "done ✅ 🎉 😀 🫠 🪿 🩷", "the 👨‍👩‍👧‍👦 family, 👩🏽‍💻",
		"cafe\u0301 nai\u0308ve z\u0335\u0336\u0337", "مرحبا بالعالم", "日本語のテキスト", "tabs\there\t and\tthere", "ends in \\",
		strings.Repeat("x", 1000), strings.Repeat("y", 979), strings.Repeat("word ", 190),
	} {
		id := "delivery-300" + string(rune('a'+i))
		got := r.paste(id, text)
		if got.Verdict != host.Submitted {
			t.Fatalf("%q: %+v\n%s", text, got, r.screen())
		}
		clean, _, err := prompt.Clean(text)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, typed(id, clean))
		r.idle()
	}
	r.took(res.Conversation, want...)
}

func TestPaste_ALinkedWindowAndAGroupChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("new-session", "-d", "-s", "overview", "sleep", "300")
	r.person("link-window", "-s", "="+r.item.Target()+":0", "-t", "=overview:5")
	r.person("new-session", "-d", "-t", "="+r.item.Target()+":")
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestPaste_FollowsAPaneThatAPersonMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("split-window", "-d", "-t", "%0", "cat -v")
	r.person("new-session", "-d", "-s", "a|b c", "-x", "200", "-y", "60", "cat -v")
	r.person("join-pane", "-d", "-l", "40", "-s", "%0", "-t", "%2")
	st := r.state()
	if st.State != session.Live || !st.Flags.Has(session.Moved) || st.Incarnation.PaneID != "%0" {
		t.Fatalf("%+v", st)
	}
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v\n%s", got, r.screen())
	}
	r.took(res.Conversation, typed(d1, "hello there"))
	for _, other := range []string{"%1", "%2"} {
		if strings.Contains(r.shown(other), "hello") {
			t.Errorf("it went into %s as well", other)
		}
	}
}

func TestPaste_ATinyPaneIsHeldBeforeAnythingIsTyped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	r.person("resize-window", "-t", "%0", "-x", "30", "-y", "8")
	r.until("the pane is small", func() bool { return r.paste(d1, "hello there").Cause == host.HeldNotReady })
	r.person("resize-window", "-t", "%0", "-x", "200", "-y", "50")
	r.ready()
	if got := r.paste(d1, "hello there"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	r.took(res.Conversation, typed(d1, "hello there"))
}

func TestFence_ATokenThatWasSeenBindsWhateverCameOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	server := r.started("", "").Incarnation.Server.Pid
	r.ready()
	r.person("send-keys", "-t", "%0", "-l", "a draft")
	r.until("the draft shows", func() bool { return strings.Contains(r.screen(), "› a draft") })
	r.tokens = 20
	if got := r.paste(d1, "hello there"); got.Verdict != host.Held {
		t.Fatalf("%+v", got)
	}
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: d1, Text: "hello there", Token: 20}); !errors.Is(err, fault.Fenced) {
		t.Errorf("paste: %v", err)
	}
	r.signal(server, syscall.SIGKILL)
	r.becomes(session.Absent)
	r.restart()
	if _, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Token: 20}); !errors.Is(err, fault.Fenced) {
		t.Errorf("spawn: %v", err)
	}
}

func TestPaste_ADialogAfterTheSubmitIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Taken = "never" // the agent leaves no evidence in time
	r.restart()
	res := r.started("", "")
	r.ready()
	if got := r.paste(d1, "zz:dialog zz:dur=100ms"); got.Verdict != host.Held || got.Cause != host.HeldDialog {
		t.Errorf("%+v", got)
	}
	if a, err := r.conversation(res.Conversation).Approvals(); err != nil || len(a) > 0 {
		t.Errorf("a dialog was answered: %v %v", a, err)
	}
}

func TestPaste_EndsWithinItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	server := r.started("", "").Incarnation.Server.Pid
	r.ready()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		time.Sleep(100 * time.Millisecond)
		_ = syscall.Kill(server, syscall.SIGSTOP)
	}()
	began := time.Now()
	ctx := r.ctxFor(3 * time.Second)
	_, err := r.Paste(ctx, host.PasteRequest{Item: r.item, DeliveryID: d1, Text: strings.Repeat("x", 1<<19), Token: r.token()})
	<-stopped
	// One act and one resolution may be under way when the time is over; nothing more is begun.
	if took := time.Since(began); took > 3*time.Second+2*actMost || err == nil && took > 6*time.Second {
		t.Errorf("it took %v: %v", took, err)
	}
	r.signal(server, syscall.SIGCONT)
	r.until("it is submitted", func() bool {
		got := r.paste(d1, strings.Repeat("x", 1<<19))
		return got.Verdict == host.Submitted || got.Verdict == host.AlreadyDelivered
	})
}

const actMost = 3 * time.Second

func TestSpawn_AWrapperThatCannotStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.execs = "/nowhere/muxpost-exec"
	r.restart()
	got := r.spawn(d1, "a secret")
	if got.Outcome != host.SpawnNotStarted {
		t.Errorf("%+v", got)
	}
	out, _ := exec.Command("grep", "-rl", "a secret", r.dir).Output()
	if len(out) > 0 {
		t.Errorf("the prompt lies in %s", out)
	}
}

func TestState_AMemoryThatCannotBeReadIsToldByName(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	server := r.started("", "").Incarnation.Server.Pid
	file := r.dir + "/state/sessions/" + r.item.Target() + ".json"
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.signal(server, syscall.SIGKILL)
	r.until("the server is gone", func() bool { return r.tmux.Dial(r.item.Target()) == session.NoServer })
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := r.state(); st.State != session.Unknown || !strings.Contains(st.Detail, r.item.Target()) {
		t.Errorf("%+v", st)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
}
