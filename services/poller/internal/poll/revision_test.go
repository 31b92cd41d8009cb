package poll

import (
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/ledger"
)

func TestRevision_IsOfTheWordsThatAnAgentReads(t *testing.T) {
	const body = "Paint it blue.\n\n- [ ] door\n- [x] wall"
	want := revisionOf(body)
	for name, same := range map[string]string{
		"line ends": strings.ReplaceAll(body, "\n", "\r\n"), "blanks": "  " + strings.ReplaceAll(body, " ", " \t ") + "\n\n",
		"what does not show": "Paint\u200b it blue.\u202e\n\n- [ ] door\n- [x] wall", "an HTML comment": "Paint it<!-- not --> blue.\n\n- [ ] door\n- [x] wall",
	} {
		equal(t, name, revisionOf(same), want)
	}
	for name, other := range map[string]string{
		"a word": "Paint it blue!\n\n- [ ] door\n- [x] wall", "a ticked box": strings.Replace(body, "[ ]", "[x]", 1), "nothing": "",
	} {
		if revisionOf(other) == want {
			t.Errorf("%s: the same revision", name)
		}
	}
	// The revision stands in natural keys for good: another rule would have every known comment seem to be edited.
	equal(t, "the revision of a text", want, "2p2nbdxq6pezxwfj")
}

func TestEdited_OnlyWhatTheAgentCannotKnowIsReplacedAsIfItHadNeverBeen(t *testing.T) {
	for _, tt := range []struct {
		name    string
		earlier Earlier
		want    bool
	}{
		{"it waits for its turn", Earlier{State: ledger.Pending}, false},
		{"it was re-armed", Earlier{State: ledger.Pending, Reason: ledger.ReasonRearmed}, false},
		{"it was asked about", Earlier{State: ledger.Pending, Reason: "starting"}, true},
		{"nobody answered", Earlier{State: ledger.Pending, Silent: true}, true},
		{"it is held", Earlier{State: ledger.Held, Reason: "session_holds"}, false},
		{"it is being delivered", Earlier{State: ledger.Leased}, true},
		{"it was delivered", Earlier{State: ledger.Delivered}, true},
		{"it may be there", Earlier{State: ledger.Settled, Reason: ledger.ReasonUnconfirmed}, true},
		{"it went along as context", Earlier{State: ledger.Settled, Reason: ledger.ReasonBaselined}, true},
		{"a digest has it", Earlier{State: ledger.Settled, Reason: ledger.ReasonCoalesced}, true},
		{"it was an order to muxpost", Earlier{State: ledger.Settled, Reason: ledger.ReasonCommand}, false},
		{"its author could not steer", Earlier{State: ledger.Settled, Reason: ledger.ReasonUnauthorised}, false},
		{"it gave up", Earlier{State: ledger.GaveUp, Reason: "harness_exited"}, false},
		{"it was dropped", Earlier{State: ledger.Dropped, Reason: ledger.ReasonSessionOccupied}, false},
		{"it was replaced before", Earlier{State: ledger.Cancelled, Reason: ReasonSuperseded}, false},
		{"it was replaced before, and said that it was an edit", Earlier{State: ledger.Cancelled, Reason: ReasonSuperseded, Edited: true}, true},
	} {
		equal(t, tt.name, Edited([]Earlier{tt.earlier, {State: ledger.Pending}}), tt.want)
	}
}

func TestSupersede_CancelsWhatHasNotEndedAndNothingElse(t *testing.T) {
	for _, state := range ledger.States() {
		before := ledger.Progress{State: state, Reason: "why"}
		after := Supersede(before)
		switch state {
		case ledger.Pending, ledger.Held, ledger.GaveUp:
			equal(t, state.String(), []any{after.State, after.Reason}, []any{ledger.Cancelled, ReasonSuperseded})
		default:
			equal(t, state.String(), after, before)
		}
	}
}

func TestEvents_AnEditHasItsOwnKeyAndSaysThatItIsOne(t *testing.T) {
	m := newMaker(Policy{Authors: []string{"alice"}})
	i, c := item(t), Post{Kind: KindComment, ID: 1, NodeID: "IC_1", Author: Author{Login: "alice"}, Body: "one"}
	before, err := m.later(thread{workItem: "github:octo/widget#7", item: i}, []Post{c}, time.Time{})
	must(t, err)
	c.Body = "two"
	after, err := m.later(thread{workItem: "github:octo/widget#7", item: i}, []Post{c}, time.Time{})
	must(t, err)
	if before[0].DeliveryID == after[0].DeliveryID {
		t.Error("two revisions are one delivery")
	}
	equal(t, "object", ObjectOf(after[0].Key), ObjectOf(before[0].Key))
	if !strings.HasPrefix(after[0].Text, "New comment by alice") || !strings.HasPrefix(after[0].EditedText, "Edited comment by alice") ||
		!strings.Contains(after[0].EditedText, "two") {
		t.Errorf("%s\n%s", after[0].Text, after[0].EditedText)
	}
	c.Author.Login = "mallory"
	after, err = m.later(thread{workItem: "github:octo/widget#7", item: i}, []Post{c}, time.Time{})
	must(t, err)
	equal(t, "of somebody else", []any{after[0].State, after[0].Text, after[0].EditedText}, []any{ledger.Settled, "", ""})
}
