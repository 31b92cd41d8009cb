package view

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestLists_ReadAsTheyShould(t *testing.T) {
	for name, write := range map[string]func(Printer){
		"ledger": func(p Printer) {
			p.Ledger([]*pollerv1.LedgerEntry{
				{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Source: "github", Kind: "comment", Author: "ann",
					State: pollerv1.LedgerState_LEDGER_STATE_HELD, Reason: "session_holds", Tries: 1, Budget: 3,
					NextLook: ago(-40 * time.Second), CreateTime: ago(3 * time.Minute)},
				{DeliveryId: "dbbbb2222", WorkItem: "github:ghe.example.com/o/r#12", Source: "manual", Kind: "message",
					State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED, Budget: 3, CreateTime: ago(50 * time.Hour)},
				{DeliveryId: "dcccc3333", WorkItem: "github:octo/widget#7", Source: "github", Kind: "check", Pull: "github:octo/widget#8",
					State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED, Budget: 3, CreateTime: ago(time.Hour)},
				{DeliveryId: "ddddd4444", WorkItem: "github:octo/widget#9", Source: "github", Kind: "review", Author: "ann", Pull: "github:octo/widget#9",
					State: pollerv1.LedgerState_LEDGER_STATE_DELIVERED, Budget: 3, CreateTime: ago(time.Hour)},
			})
		},
		"deliveries": func(p Printer) {
			p.Deliveries([]*dispatcherv1.Delivery{
				{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", Outcome: dispatcherv1.Outcome_OUTCOME_DROPPED,
					Reason: "session-occupied", Detail: "the name belongs to\x1b[31m something\nelse " + strings.Repeat("x", 200), Asked: 2,
					UpdateTime: ago(time.Second)},
				{DeliveryId: "dbbbb2222", WorkItem: "github:octo/widget#8", Outcome: dispatcherv1.Outcome_OUTCOME_DELIVERED,
					How: dispatcherv1.How_HOW_PASTED, Detail: "it was pasted into the living agent", Asked: 1, Host: "h1", UpdateTime: ago(2 * time.Hour)},
			})
		},
		"sessions": func(p Printer) {
			p.Sessions([]*dispatcherv1.Session{{WorkItem: "github:octo/widget#7", Target: "loop-octo-widget-7", Host: "h1", Harness: "fakeagent",
				ConversationId: "c-1", State: dispatcherv1.SessionState_SESSION_STATE_LIVE, Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_APPROVAL, StateDetail: "the agent's pane is alive",
				UpdateTime: ago(time.Minute)}, {WorkItem: "github:octo/widget#8", Target: "loop-octo-widget-8", Host: "h1", Closed: true,
				UpdateTime: ago(time.Hour)}, {WorkItem: "github:octo/widget#9", Target: "loop-octo-widget-9", Host: "h2",
				State: dispatcherv1.SessionState_SESSION_STATE_UNKNOWN, StateDetail: "nobody answers", UpdateTime: ago(time.Hour),
				Ending: &dispatcherv1.Ending{Verb: dispatcherv1.EndingVerb_ENDING_VERB_CLOSE}},
				{WorkItem: "github:octo/widget#10", State: dispatcherv1.SessionState_SESSION_STATE_DEAD, Flags: []dispatcherv1.SessionFlag{dispatcherv1.SessionFlag_SESSION_FLAG_DETACHED},
					Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_WORKING, ActivitySince: ago(90 * time.Second), UpdateTime: ago(time.Minute)},
				{WorkItem: "github:octo/widget#11", Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_IDLE, ActivitySince: ago(time.Hour), ActivityAsOf: ago(time.Minute), UpdateTime: ago(time.Minute)}})
		},
		"orphans": func(p Printer) {
			p.Orphans(&dispatcherv1.ListOrphansResponse{SilentHosts: []string{"h3"}, More: true, Orphans: []*dispatcherv1.Orphan{
				{Kind: dispatcherv1.OrphanKind_ORPHAN_KIND_UNRECORDED, WorkItem: "github:octo/widget#7", Host: "h1", Harness: "fakeagent",
					State: dispatcherv1.SessionState_SESSION_STATE_LIVE, ConversationId: "c-1", Detail: "the agent's pane is alive"},
				{Kind: dispatcherv1.OrphanKind_ORPHAN_KIND_GONE, WorkItem: "github:octo/widget#8", Host: "h2", RecordedOn: "h2",
					State: dispatcherv1.SessionState_SESSION_STATE_ABSENT, ConversationId: "c-2", Detail: "the host has nothing of it"},
			}})
			p.Orphans(&dispatcherv1.ListOrphansResponse{})
		},
		"events": func(p Printer) {
			p.Events([]*dispatcherv1.Event{
				{Sequence: 7, Type: "session.spawned", Time: ago(0), WorkItem: "github:octo/widget#7", DeliveryId: "daaaa1111",
					Fields: map[string]string{"host": "h1", "harness": "fakeagent", "work_item": "github:octo/widget#7", "reason": ""}},
				{Sequence: 8, Type: "host.reached", Time: ago(0), Fields: map[string]string{"host": "h1"}},
			})
		},
		"harnesses": func(p Printer) {
			p.Harnesses([]*tmuxdv1.HarnessInfo{
				{Name: "claude", Resumes: true, RunsSessions: true, RunsTasks: true, Unmeasured: []string{"prompt", "dialogs"},
					ConversationSource: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_ASSIGNED},
				{Name: "codex", Binary: "/usr/bin/codex", Version: "codex-cli 0.171.0", Resumes: true, RunsSessions: true, RunsTasks: true,
					Channel:            tmuxdv1.Channel_CHANNEL_APP_SERVER,
					ConversationSource: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_LEARNED},
				{Name: "fakeagent", Binary: "/opt/muxpost/fakeagent", Version: "fakeagent 1.0.0", Resumes: true, RunsSessions: true, RunsTasks: true,
					Channel: tmuxdv1.Channel_CHANNEL_SOCKET, TakesPrompt: true, ConversationSource: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_ASSIGNED},
				{Name: "mine", Binary: "/opt/mine", VersionProblem: "it did not answer --version in time", RunsSessions: true,
					ConversationSource: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_NONE},
				{Name: "omx", RunsTasks: true, ConversationSource: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_NONE, Unmeasured: []string{"task"}},
			}, "claude")
		},
		"polls": func(p Printer) {
			p.Polls([]*pollerv1.SourcePoll{
				{Source: "github", Items: 3, NewEvents: 1, Took: durationpb.New(1234 * time.Millisecond)},
				{Source: "other", Error: "no such repository", Took: durationpb.New(30 * time.Millisecond)},
			})
		},
		"empty": func(p Printer) {
			p.Ledger(nil)
			p.Deliveries(nil)
			p.Sessions(nil)
			p.Polls(nil)
			p.Harnesses(nil, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var plain, coloured bytes.Buffer
			write(Printer{Out: &plain, Now: now})
			write(Printer{Out: &coloured, Now: now, Colour: true})
			golden(t, name, plain.String())
			uncoloured := coloured.String()
			for _, tone := range []Tone{Good, Warn, Bad, Dim, Bold, reset} {
				uncoloured = strings.ReplaceAll(uncoloured, string(tone), "")
			}
			if diff := cmp.Diff(plain.String(), uncoloured); diff != "" {
				t.Error("colour changes more than colours:", diff)
			}
		})
	}
}

func TestJSON_IsStableAndHasItsEmptyFields(t *testing.T) {
	var out bytes.Buffer
	if err := JSON(&out, &pollerv1.ListLedgerResponse{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("{\n  \"entries\": [],\n  \"nextPageToken\": \"\"\n}\n", out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := JSONLine(&out, &dispatcherv1.Event{Sequence: 1, Type: "x"}); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestAgo_UsesTheUnitThatMatters(t *testing.T) {
	p := Printer{Now: now}
	for d, want := range map[time.Duration]string{
		0: "now", 3 * time.Second: "3s ago", 90 * time.Second: "1m ago", 61 * time.Minute: "1h01m ago", 72 * time.Hour: "3d ago",
		-5 * time.Second: "in 5s",
	} {
		if got := p.Ago(now.Add(-d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := p.When(nil); got != "" {
		t.Errorf("no time: %q", got)
	}
	if got := p.When(timestamppb.New(now.AddDate(-2, 0, 0))); !strings.HasPrefix(got, "2024-03-04 12:00 (") {
		t.Errorf("long ago: %q", got)
	}
}

func TestQuote_IsOneWordForAShell(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "/a/b-c.sock": "/a/b-c.sock", "github:o/r#1": "'github:o/r#1'", "it's": `'it'\''s'`, "=x:": "'=x:'",
	} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
