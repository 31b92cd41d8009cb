package host

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

func TestRemembered_TakesOverTheLivingIncarnationAndNoOther(t *testing.T) {
	item, err := workitem.Parse("github:octo/widget#7")
	if err != nil {
		t.Fatal(err)
	}
	kept := Memory{Target: item.Target(), WorkItem: item.String(), Stamp: "s1", Harness: "fakeagent", Conversation: "c1", Directory: "/w",
		CreatedAt: time.Unix(1, 0), Token: 5}
	whole := kept
	whole.SessionID, whole.PaneID, whole.PanePid, whole.Server = "$1", "%1", 42, Server{Pid: 9}
	whole.ServerStart, whole.Boot = 77, "b"
	pane := &Pane{Stamp: "s1", SessionID: "$1", ID: "%1", Pid: 42, Harness: "fakeagent", Conversation: "c1"}
	half, moved := whole, whole
	half.Token, half.ServerStart, half.Boot = 6, 0, ""
	moved.Server, moved.ServerStart, moved.Boot = Server{Pid: 8}, 3, "b"
	again := whole
	again.Token = 6
	other := half
	other.Stamp, other.Conversation, other.Directory, other.CreatedAt = "s2", "c2", "", time.Time{}
	only := kept
	only.Token = 6
	for name, c := range map[string]struct {
		memory Memory
		state  session.State
		flags  session.Flags
		pane   *Pane
		want   Memory
	}{
		"a start that was half remembered": {kept, session.Live, 0, pane, half},
		"what is remembered already":       {whole, session.Live, 0, pane, again},
		"another server":                   {moved, session.Live, 0, pane, half},
		"another incarnation": {kept, session.Live, 0, &Pane{Stamp: "s2", SessionID: "$1", ID: "%1", Pid: 42, Harness: "fakeagent",
			Conversation: "c2"}, other},
		"a dead one":               {kept, session.Dead, 0, pane, only},
		"one that is not ours":     {kept, session.Live, session.Foreign, pane, only},
		"one whose pane was moved": {kept, session.Live, session.Moved, pane, only},
		"one that is not known":    {kept, session.Unknown, 0, nil, only},
	} {
		s := sight{item: item, target: item.Target(), memory: c.memory, state: c.state, flags: c.flags, pane: c.pane,
			view: View{Server: Server{Pid: 9}}}
		if diff := cmp.Diff(c.want, s.remembered(6)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := s.remembered(4).Token; got != 5 {
			t.Errorf("%s: an older token makes it %d", name, got)
		}
	}
}
