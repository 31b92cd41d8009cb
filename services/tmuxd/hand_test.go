package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// newHandingRig is a rig whose agent takes deliveries over its channel, with one that is ready.
func newHandingRig(t *testing.T, env map[string]string) (r *rig, conversation string) {
	t.Helper()
	r = newRig(t, env)
	r.entry.Channel = settings.ChannelSocket
	r.restart()
	conversation = r.started("", "").Conversation
	r.ready()
	return r, conversation
}

// sockets are what lies where agents listen.
func (r *rig) sockets() []string {
	r.t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.dir, "state", "agents", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	return paths
}

func (r *rig) phase(id string) session.Phase {
	r.t.Helper()
	st, err := r.State(r.ctx(), r.item, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return st.Phase
}

func TestHand_ADeliveryArrivesOncePastADraftThatStays(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	r.person("send-keys", "-t", "%0", "-l", "half a draft")
	r.until("the draft shows", func() bool { return strings.Contains(r.screen(), "› half a draft") })
	r.person("copy-mode", "-t", "%0")
	text := "/quit\n!touch forbidden\n" + strings.Repeat("- a line × of \"some\" length\n", 4000)
	if got := r.paste("delivery-0001", text); got.Verdict != host.Submitted || !got.ByTranscript {
		t.Fatalf("%+v", got)
	}
	if got := r.paste("delivery-0001", text); got.Verdict != host.AlreadyDelivered {
		t.Errorf("%+v", got)
	}
	r.took(conversation, typed("delivery-0001", strings.TrimSpace(text)))
	r.person("send-keys", "-t", "%0", "-X", "cancel")
	if !strings.Contains(r.screen(), "› half a draft") {
		t.Errorf("the draft is gone:\n%s", r.screen())
	}
	if lines, err := r.conversation(conversation).Lines(); err != nil || !slices.ContainsFunc(lines, isHanded) {
		t.Errorf("it was typed: %v", err)
	}
}

func isHanded(l agenttest.Line) bool { return l.Delivery != "" }

func TestHand_TheSocketIsPrivateAndGoesWithItsIncarnation(t *testing.T) {
	t.Parallel()
	r, _ := newHandingRig(t, nil)
	was := r.sockets()
	if len(was) != 1 {
		t.Fatalf("%v", was)
	}
	for path, want := range map[string]os.FileMode{was[0]: 0o600 | os.ModeSocket, filepath.Dir(was[0]): 0o700 | os.ModeDir} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	r.started("", "")
	r.ready()
	if now := r.sockets(); len(now) != 1 || now[0] == was[0] {
		t.Errorf("after %v: %v", was, now)
	}
}

func TestHand_ADialogIsNeverAnswered(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	r.signal(r.agentPid(), syscall.SIGUSR1)
	r.until("a dialog is open", func() bool { return strings.Contains(r.screen(), "Press enter to confirm") })
	for range 3 {
		if got := r.paste("delivery-0001", "in the meantime"); got.Verdict != host.Held || got.Cause != host.HeldDialog || r.phase("delivery-0001") != session.None {
			t.Fatalf("%+v", got)
		}
	}
	if approvals, err := r.conversation(conversation).Approvals(); err != nil || len(approvals) != 0 {
		t.Errorf("%v, %v", approvals, err)
	}
	r.person("send-keys", "-t", "%0", "y")
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "in the meantime") })
	r.took(conversation, typed("delivery-0001", "in the meantime"))
}

// Programs ask at their start what their own interface may know nothing of.
func TestHand_AQuestionThatOnlyTheScreenShowsHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Channel, r.entry.DialogsHideCursor = settings.ChannelSocket, false
	r.entry.Dialogs = append(r.entry.Dialogs, "Trust this folder")
	r.restart()
	conversation := r.started("", "").Conversation
	r.ready()
	r.person("send-keys", "-t", "%0", "-l", "Trust this folder")
	r.until("the question shows", func() bool { return strings.Contains(r.screen(), "Trust this folder") })
	if got := r.paste("delivery-0001", "hello"); got.Verdict != host.Held || got.Cause != host.HeldDialog || r.phase("delivery-0001") != session.None {
		t.Errorf("%+v", got)
	}
	r.person("send-keys", "-t", "%0", "C-u")
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "hello") })
	r.took(conversation, typed("delivery-0001", "hello"))
}

func TestHand_ATurnIsWaitedFor(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	if got := r.paste("delivery-0001", "zz:dur=2s"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	if got := r.paste("delivery-0002", "after it"); got.Verdict != host.Held || got.Cause != host.HeldBusy || r.phase("delivery-0002") != session.None {
		t.Errorf("%+v", got)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0002", "after it") })
	r.took(conversation, typed("delivery-0001", "zz:dur=2s"), typed("delivery-0002", "after it"))
}

// What waits in the agent's own queue dies with the agent, and is handed over again.
func TestHand_AQueueThatDiedWithItsAgentLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Channel, r.entry.WhenBusy = settings.ChannelSocket, settings.BusyDeliver
	r.restart()
	conversation := r.started("", "").Conversation
	r.ready()
	if got := r.paste("delivery-0001", "zz:dur=60s"); got.Verdict != host.Submitted {
		t.Fatalf("%+v", got)
	}
	for range 2 {
		if got := r.paste("delivery-0002", "behind it"); got.Verdict != host.Held || got.Cause != host.HeldBusy || r.phase("delivery-0002") != session.Handing {
			t.Fatalf("%+v", got)
		}
	}
	r.signal(r.agentPid(), syscall.SIGKILL)
	r.becomes(session.Dead)
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: conversation, Token: r.token()})
	if err != nil || res.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", res, err)
	}
	r.ready()
	r.until("it goes in", func() bool { return r.goesIn("delivery-0002", "behind it") })
	r.took(conversation, typed("delivery-0001", "zz:dur=60s"), typed("delivery-0002", "behind it"))
}

func TestHand_ALostAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	if got := r.paste("delivery-0001", "zz:mute"); got.Verdict != host.Unconfirmed || got.Phase != session.Handing {
		t.Fatalf("%+v", got)
	}
	if got := r.paste("delivery-0001", "zz:mute"); got.Verdict != host.AlreadyDelivered {
		t.Errorf("%+v", got)
	}
	r.took(conversation, typed("delivery-0001", "zz:mute"))
}

// While the agent's own record cannot tell, the agent itself is asked, and what it does not have is handed over once more.
func TestHand_WithoutARecordTheAgentIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Channel, r.entry.Transcript = settings.ChannelSocket, ""
	r.restart()
	conversation := r.started("", "").Conversation
	r.ready()
	if got := r.paste("delivery-0001", "zz:mute"); got.Verdict != host.Unconfirmed {
		t.Fatalf("%+v", got)
	}
	r.restart()
	if got := r.paste("delivery-0001", "zz:mute"); got.Verdict != host.AlreadyDelivered {
		t.Errorf("%+v", got)
	}
	st := r.state()
	if err := r.disk.Append(r.item.Target(), host.Entry{Time: time.Now(), ID: "delivery-0002", Phase: session.Handing, Stamp: st.Incarnation.Stamp,
		Harness: "fakeagent", Conversation: st.Conversation, Directory: st.Directory}, false); err != nil {
		t.Fatal(err)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0002", "announced, and not sent") })
	r.took(conversation, typed("delivery-0001", "zz:mute"), typed("delivery-0002", "announced, and not sent"))
}

func TestHand_AnAgentThatDoesNotAnswerGetsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Channel = settings.ChannelSocket
	r.shelled()
	conversation := r.started("", "").Conversation
	r.ready()
	agent := r.grandchild()
	r.signal(agent, syscall.SIGSTOP)
	got := r.paste("delivery-0001", "are you there")
	r.signal(agent, syscall.SIGCONT)
	if got.Verdict != host.Held || got.Cause != host.HeldFrozen || r.phase("delivery-0001") != session.None {
		t.Errorf("%+v", got)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "are you there") })
	r.took(conversation, typed("delivery-0001", "are you there"))
}

// Without its channel the agent is typed at, as long as nothing was handed over.
func TestHand_WhereNobodyListensItIsTyped(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	if err := os.Remove(r.sockets()[0]); err != nil {
		t.Fatal(err)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "typed") })
	lines, err := r.conversation(conversation).Lines()
	if err != nil || slices.ContainsFunc(lines, isHanded) {
		t.Errorf("%+v, %v", lines, err)
	}
	st := r.state()
	// As a tmuxd leaves it that died while it handed over: whether the agent has it, nobody can say but the agent.
	if err := r.disk.Append(r.item.Target(), host.Entry{Time: time.Now(), ID: "delivery-0002", Phase: session.Handing, Stamp: st.Incarnation.Stamp,
		Harness: "fakeagent", Conversation: st.Conversation, Directory: st.Directory}, false); err != nil {
		t.Fatal(err)
	}
	if got := r.paste("delivery-0002", "not typed"); got.Verdict != host.Unconfirmed || got.Phase != session.Handing {
		t.Errorf("%+v", got)
	}
	r.took(conversation, typed("delivery-0001", "typed"))
}

func TestHand_BeforeItIsReadyItIsNeitherHandedOverNorTyped(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_READY_AFTER": "3s"})
	r.entry.Channel = settings.ChannelSocket
	r.restart()
	conversation := r.started("", "").Conversation
	if got := r.paste("delivery-0001", "too early"); got.Verdict != host.Held || got.Cause != host.HeldNotReady {
		t.Errorf("%+v", got)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "too early") })
	r.took(conversation, typed("delivery-0001", "too early"))
}

// A tmuxd died before it handed over, and the agent has no conversation now, as after a person's beginning another one: it is typed then.
func TestHand_WhatTheAgentDoesNotHaveAndCannotTakeIsTyped(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"FAKEAGENT_READY_AFTER": "3s"})
	r.entry.Channel = settings.ChannelSocket
	r.restart()
	conversation := r.started("", "").Conversation
	st := r.state()
	if err := r.tmux.Advance(r.ctx(), r.item.Target(), "g0"); err != nil {
		t.Fatal(err)
	}
	g := host.Guard{Stamp: st.Incarnation.Stamp, Pane: st.Incarnation.PaneID, Pid: st.Incarnation.PanePid, Session: st.Incarnation.SessionID,
		Token: r.token(), NotAfter: time.Now().Add(time.Minute), Generation: "g0"}
	done, err := r.tmux.Intend(r.ctx(), r.item.Target(), g, "delivery-0001", session.None, session.Ring{}.With("delivery-0001", session.Handing))
	if err != nil || done != host.Done {
		t.Fatalf("%v %v", done, err)
	}
	r.restart()
	if got := r.paste("delivery-0001", "once"); got.Verdict != host.Held || got.Cause != host.HeldNotReady || r.phase("delivery-0001") != session.None {
		t.Errorf("%+v", got)
	}
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "once") })
	r.took(conversation, typed("delivery-0001", "once"))
}

func TestHand_InputThatIsOffHoldsAndAnOlderTokenIsRefused(t *testing.T) {
	t.Parallel()
	r, conversation := newHandingRig(t, nil)
	r.person("select-pane", "-d", "-t", "%0")
	if got := r.paste("delivery-0001", "hello"); got.Verdict != host.Held || got.Cause != host.HeldInputOff || r.phase("delivery-0001") != session.None {
		t.Errorf("%+v", got)
	}
	r.person("select-pane", "-e", "-t", "%0")
	r.person("set-option", "-p", "-t", "%0", "@mux_fence", "1000")
	if _, err := r.Paste(r.ctx(), host.PasteRequest{Item: r.item, DeliveryID: "delivery-0001", Text: "hello", Token: 999}); err == nil {
		t.Error("an older token handed over")
	}
	r.tokens = 1000
	r.until("it goes in", func() bool { return r.goesIn("delivery-0001", "hello") })
	r.took(conversation, typed("delivery-0001", "hello"))
}

// It dies in the middle of handing over, is started again and asked again: the delivery is in once.
func TestHand_ATmuxdThatDiesInTheMiddleGoesOn(t *testing.T) {
	t.Parallel()
	for _, place := range failpoint.Hands() {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, "")
			client, marker := d.up(place)
			res, err := client.Spawn(d.ctx(), &tmuxdv1.SpawnRequest{WorkItem: d.item.String(), Harness: "fakeagent", FencingToken: d.token(),
				Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}})
			if err != nil || res.GetStarted() == nil {
				t.Fatalf("%v, %v", res, err)
			}
			paste := func() (*tmuxdv1.PasteResponse, error) {
				return client.Paste(d.ctx(), &tmuxdv1.PasteRequest{WorkItem: d.item.String(), DeliveryId: "delivery-0001", Text: "once", FencingToken: d.token()})
			}
			d.soon("it dies", func() bool { _, err := paste(); return err != nil })
			d.died(marker)
			client, _ = d.up("")
			d.soon("it is in", func() bool {
				res, err := paste()
				if err != nil {
					t.Fatal(err)
				}
				return res.GetSubmitted() != nil || res.GetAlreadyDelivered() != nil
			})
			d.home = filepath.Join(d.dir, "state", "harness", "fakeagent")
			d.took(res.GetStarted().GetConversationId(), typed("delivery-0001", "once"))
			d.stop()
		})
	}
}
