package drill

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// scene is a small run in which nothing is wrong, for a test to spoil.
type scene struct{ evidence }

var zero = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n int) time.Time { return zero.Add(time.Duration(n) * time.Second) }

func delivered(item, step int) string {
	return fmt.Sprintf("[muxpost d%d-%d]\nNew comment\n-----NONCE-----\n%s look %s\n-----NONCE-----", item, step, Word(item, step), end(item, step))
}

// newScene has three events of one item and one of another, all as they should be.
func newScene() *scene {
	s := &scene{evidence{deaths: map[string]int{}, accounts: accounts{}, seen: map[life]bool{}}}
	for item, steps := range [][]int{{1, 2, 4}, {3}} {
		c := conversation{id: fmt.Sprintf("c%d", item), host: "a", target: targetOf(item), lines: []agenttest.Line{{Type: "session_start"}}}
		for _, step := range steps {
			text, id := delivered(item, step), fmt.Sprintf("d%d-%d", item, step)
			s.told = append(s.told, told{Telling{step, item, byComment, text}, second(step), second(step)})
			c.lines = append(c.lines, agenttest.Line{Type: "user", Text: text, Time: second(step + 2)})
			s.rows = append(s.rows, row{DeliveryID: id, Kind: "comment", State: "delivered", Excerpt: text, Known: second(step), Claimed: second(step + 1), Outcome: "delivered", Asked: 1})
			s.accounts[id] = "delivered"
		}
		s.conversations = append(s.conversations, c)
	}
	return s
}

func (s *scene) say(item, at int, kind, text string) {
	c := &s.conversations[item]
	c.lines = append(c.lines, agenttest.Line{Type: kind, Text: text, Time: second(at)})
}

// The judge is tried on records that show each fault, or it would prove nothing.
func TestJudge_NoticesWhatWentWrong(t *testing.T) {
	agent := proc{pid: 7, started: "1", target: targetOf(0), args: []string{"fakeagent", "--resume", "c0"}}
	for name, row := range map[string]struct {
		spoil func(*scene)
		want  Verdict
	}{
		"nothing is wrong":          {func(*scene) {}, Verdict{}},
		"an event is with no agent": {func(s *scene) { s.conversations[1].lines = nil }, Verdict{Lost: 1}},
		"an event is nowhere at all": {func(s *scene) {
			s.told = append(s.told, told{Telling: Telling{9, 0, byHand, ""}, At: second(9), Done: second(9)})
		}, Verdict{Lost: 1}},
		"an event waits for ever": {func(s *scene) {
			s.rows[3].State, s.rows[3].Outcome, s.conversations[1].lines = "held", "held", nil
		}, Verdict{Lost: 1}},
		// The same delivery twice, which also is the same event twice.
		"an event comes again": {func(s *scene) { s.say(0, 7, "user", delivered(0, 4)) }, Verdict{Doubled: 2}},
		"an event comes again under another id": {func(s *scene) {
			s.say(0, 7, "user", strings.Replace(delivered(0, 4), "d0-4", "other", 1))
		}, Verdict{Doubled: 1}},
		"an opening event comes twice": {func(s *scene) {
			s.say(0, 7, "user", "[muxpost o]\nopened")
			s.say(0, 8, "user", "[muxpost o]\nopened")
		}, Verdict{Doubled: 1}},
		"an event is with another item's agent": {func(s *scene) {
			s.conversations[0].lines = append(s.conversations[0].lines, s.conversations[1].lines[1:]...)
			s.conversations[1].lines = nil
		}, Verdict{Crossed: 1}},
		"a person's pane is typed into": {func(s *scene) { s.guests = map[string]string{"guest-3": "\r"} }, Verdict{Crossed: 1}},
		"an event comes after a later one": {func(s *scene) {
			lines := s.conversations[0].lines
			lines[1].Time, lines[2].Time = lines[2].Time, lines[1].Time
			s.rows[0].Known = second(1)
			s.rows[1].Claimed = second(3)
		}, Verdict{Disordered: 1}},
		"a later one was there first": {func(s *scene) {
			lines := s.conversations[0].lines
			lines[1].Time, lines[2].Time = lines[2].Time, lines[1].Time
			s.rows[0].Known = second(5) // a webhook that was held
		}, Verdict{}},
		"a draft stands before it":               {func(s *scene) { s.conversations[0].lines[1].Text = draftWord + delivered(0, 1) }, Verdict{Merged: 1}},
		"a draft stands behind it":               {func(s *scene) { s.conversations[0].lines[1].Text += draftWord }, Verdict{Merged: 1}},
		"its own CR stands behind it":            {func(s *scene) { s.conversations[0].lines[1].Text += "\n" }, Verdict{Merged: 1}},
		"its own CR and a draft stand behind it": {func(s *scene) { s.conversations[0].lines[1].Text += "\n" + draftWord }, Verdict{Merged: 1}},
		"two deliveries in one": {func(s *scene) {
			s.conversations[0].lines[1].Text = delivered(0, 1) + delivered(0, 2)
			s.conversations[0].lines = append(s.conversations[0].lines[:2], s.conversations[0].lines[3:]...)
		}, Verdict{Merged: 1}},
		"half of it is missing": {func(s *scene) {
			s.conversations[0].lines[1].Text = "[muxpost d0-1]\n" + Word(0, 1) + "\n-----NONCE-----"
		}, Verdict{Merged: 1}},
		"a message of nobody's":    {func(s *scene) { s.say(0, 9, "user", draftWord) }, Verdict{Merged: 1}},
		"a dialog is approved":     {func(s *scene) { s.conversations[0].approved = []string{"yes"} }, Verdict{Harmed: 1}},
		"a command is run":         {func(s *scene) { s.say(0, 9, "shell", "!date") }, Verdict{Harmed: 1}},
		"a turn is interrupted":    {func(s *scene) { s.say(0, 9, "interrupted", "") }, Verdict{Harmed: 1}},
		"a person ends a turn":     {func(s *scene) { s.say(0, 9, "approval", ""); s.say(0, 9, "interrupted", "") }, Verdict{}},
		"an agent is gone":         {func(s *scene) { s.gone = []proc{agent} }, Verdict{Harmed: 1}},
		"an agent ended by itself": {func(s *scene) { s.gone = []proc{agent}; s.exit(exitCode) }, Verdict{}},
		"an agent was hung up":     {func(s *scene) { s.gone = []proc{agent}; s.exit(129) }, Verdict{Harmed: 1}},
		"an agent was to resume what was never begun": {func(s *scene) {
			s.gone, s.lost = []proc{agent}, map[string]int{agent.id(): 5}
			s.refused = map[life]bool{{agent.pid, "c0"}: true}
		}, Verdict{}},
		"another agent was": {func(s *scene) {
			s.gone, s.refused = []proc{agent}, map[life]bool{{agent.pid + 1, "c0"}: true}
		}, Verdict{Harmed: 1}},
		"a server is gone with it":      {func(s *scene) { s.gone, s.lost = []proc{agent}, map[string]int{agent.id(): 5} }, Verdict{Harmed: 1, Crashed: 1}},
		"an item has two agents":        {func(s *scene) { s.twins = map[string]string{targetOf(0): "both"} }, Verdict{Harmed: 1}},
		"a process crashes":             {func(s *scene) { s.crashes = []string{"tmuxd a ended by itself"} }, Verdict{Crashed: 1}},
		"an agent is started too often": {func(s *scene) { s.say(0, 9, "resumed", "") }, Verdict{Looped: 1}},
		"an agent is started again": {func(s *scene) {
			s.say(0, 9, "resumed", "")
			s.deaths[targetOf(0)] = 1
		}, Verdict{}},
		"an agent that nobody saw ended by itself": {func(s *scene) { s.exit(exitCode); s.say(0, 9, "resumed", "") }, Verdict{}},
		"one that was seen is no further death": {func(s *scene) {
			s.seen[life{7, "c0"}], s.deaths[targetOf(0)] = true, 1
			s.exit(exitCode)
			s.say(0, 9, "resumed", "")
			s.say(0, 9, "resumed", "")
		}, Verdict{Looped: 1}},
		"an event is tried too often":       {func(s *scene) { s.rows[0].Tries = maxTries + 1 }, Verdict{Looped: 1}},
		"an event is asked about for ever":  {func(s *scene) { s.rows[0].Asked = maxAsked + 1 }, Verdict{Looped: 1}},
		"the ledger and the dispatcher":     {func(s *scene) { s.rows[0].Outcome = "held" }, Verdict{Unexplained: 1}},
		"the ledger and the trace":          {func(s *scene) { s.accounts["d0-1"] = "dropped" }, Verdict{Unexplained: 1}},
		"no trace":                          {func(s *scene) { delete(s.accounts, "d0-1") }, Verdict{Unexplained: 1}},
		"it was dropped":                    {func(s *scene) { s.rows[0].State = "dropped" }, Verdict{Unexplained: 1}},
		"nobody can say whether it arrived": {func(s *scene) { s.rows[0].State, s.rows[0].Reason = "settled", "unconfirmed" }, Verdict{Unconfirmed: 1}},
		"it became one text with another":   {func(s *scene) { s.rows[0].State, s.rows[0].Reason = "settled", "coalesced" }, Verdict{}},
		"it came with another, but did not": {func(s *scene) {
			s.rows[3].State, s.rows[3].Reason, s.conversations[1].lines = "settled", "coalesced", nil
		}, Verdict{Lost: 1}},
		"a hand and a comment of one moment": {func(s *scene) { s.told[1].How = byHand; s.swap(); s.rows[1].Claimed = second(3) }, Verdict{}},
	} {
		s := newScene()
		row.spoil(s)
		got := judge(s.evidence)
		findings := got.Findings
		got.Findings, got.Events, row.want.Events = nil, 4, 4
		if got.String() != row.want.String() {
			t.Errorf("%s:\n%s, want\n%s\n%s", name, got, row.want, strings.Join(findings, "\n"))
		}
		if got.Clean() != (row.want.String() == Verdict{Events: 4}.String()) {
			t.Errorf("%s: clean is %v", name, got.Clean())
		}
	}
}

func (s *scene) exit(code int) {
	s.say(0, 9, "exit", "")
	lines := s.conversations[0].lines
	lines[len(lines)-1].Code, lines[len(lines)-1].PID = &code, 7
}

func (s *scene) swap() {
	lines := s.conversations[0].lines
	lines[1].Time, lines[2].Time = lines[2].Time, lines[1].Time
}

func TestVerdict_IsTheLineThatIsPromised(t *testing.T) {
	v := Verdict{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, nil}
	if want := "drill: seed=1 events=2 lost=3 doubled=4 crossed=5 disordered=6 merged=7 harmed=8 crashed=9 looped=10 unexplained=11 unconfirmed=12"; v.String() != want {
		t.Error(v.String())
	}
}

func TestVerdict_TheWorstOfItIsWhatCannotBeUndone(t *testing.T) {
	for want, v := range map[string]Verdict{"": {}, "lost": {Lost: 3}, "harmed": {Harmed: 1, Lost: 20, Unconfirmed: 2}, "doubled": {Doubled: 1, Harmed: 9}} {
		if got := v.Worst(); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
	if len((Verdict{}).Counts()) != 10 {
		t.Error("there are counts that Worst does not know")
	}
}

func TestWatcher_TellsWhoEndedFromWhomTheDrillKilled(t *testing.T) {
	agent := func(pid int, target string) proc { return proc{pid: pid, started: "1", host: "a", target: target} }
	w := newWatcher(&fleet{Options: Options{Log: t.Logf}})
	server := agent(9, "x")
	w.note(census{agents: []proc{agent(1, "x"), agent(2, "y"), agent(3, "z")}, servers: []proc{server}})
	w.doom(agent(2, "y"))
	w.end(proc{pid: 77, target: "q"})
	w.note(census{agents: []proc{agent(3, "z"), agent(4, "z")}})
	if len(w.gone) != 2 || w.lost[agent(1, "x").id()] != 9 || len(w.lost) != 1 || w.twins["z"] == "" || !w.spared(agent(1, "x")) || w.spared(agent(2, "y")) ||
		w.spared(proc{pid: 8, server: 77}) || w.deaths()["x"] != 1 || w.deaths()["y"] != 1 || w.deaths()["q"] != 1 {
		t.Errorf("gone %v, lost %v, twins %v", w.gone, w.lost, w.twins)
	}
}
