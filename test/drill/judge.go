package drill

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// evidence is what there is to judge by.
type evidence struct {
	told          []told
	conversations []conversation
	// guests is what was typed into panes of people's.
	guests map[string]string
	// gone are the agents that ended, without those that the nemesis killed; lost the tmux servers that ended together with one of those.
	gone []proc
	lost map[string]int
	// deaths are the agents that ended in all, by target, as far as they were seen, and seen those that were, by their life; twins are the items
	// that had two at once.
	deaths map[string]int
	seen   map[life]bool
	twins  map[string]string
	// refused are the agents that ended because the conversation to resume was never begun, as they noted themselves.
	refused map[life]bool
	// crashes are processes of the product that ended by themselves.
	crashes []string
	rows    []row
	accounts
}

// Verdict counts what went wrong, and says what.
type Verdict struct {
	Seed   uint64
	Events int
	Lost, Doubled, Crossed, Disordered, Merged, Harmed, Crashed,
	Looped, Unexplained, Unconfirmed int
	Findings []string
}

// String is the drill's last line.
func (v Verdict) String() string {
	return fmt.Sprintf("drill: seed=%d events=%d lost=%d doubled=%d crossed=%d disordered=%d merged=%d harmed=%d crashed=%d looped=%d unexplained=%d "+
		"unconfirmed=%d", v.Seed, v.Events, v.Lost, v.Doubled, v.Crossed, v.Disordered, v.Merged, v.Harmed, v.Crashed, v.Looped, v.Unexplained, v.Unconfirmed)
}

// Counts are the counts by their names.
func (v Verdict) Counts() map[string]int {
	return map[string]int{"lost": v.Lost, "doubled": v.Doubled, "crossed": v.Crossed, "disordered": v.Disordered, "merged": v.Merged, "harmed": v.Harmed,
		"crashed": v.Crashed, "looped": v.Looped, "unexplained": v.Unexplained, "unconfirmed": v.Unconfirmed}
}

// Worst is the name of the count that is not zero and can be undone least; what still waits counts as lost, so that comes late. It is empty when
// nothing went wrong.
func (v Verdict) Worst() string {
	for _, name := range []string{"doubled", "crossed", "merged", "harmed", "crashed", "disordered", "looped", "unexplained", "lost", "unconfirmed"} {
		if v.Counts()[name] > 0 {
			return name
		}
	}
	return ""
}

// Clean reports whether nothing went wrong.
func (v Verdict) Clean() bool {
	for _, n := range v.Counts() {
		if n > 0 {
			return false
		}
	}
	return true
}

func (v *Verdict) find(count *int, format string, args ...any) {
	*count++
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

var (
	begins = regexp.MustCompile(`drill-event-(\d+)-(\d+)-begins`)
	mark   = regexp.MustCompile(`\[muxpost ([^\s\]]+)\]`)
)

// Bounds of what goes on: tries that an event may spend, and how often it may be asked about. An event that waits for a person is asked about at
// each change of its session, and once a minute.
const (
	maxTries = 3
	maxAsked = 400
)

// received is one event where an agent recorded it.
type received struct {
	item, step int
	at         time.Time
}

// judge weighs the evidence.
func judge(e evidence) (v Verdict) {
	v.Events = len(e.told)
	got := v.transcripts(e)
	v.arrivals(e, got)
	v.order(e, got)
	v.lives(e)
	v.tables(e, got)
	return v
}

// transcripts judges what each agent recorded, and returns the events in it.
func (v *Verdict) transcripts(e evidence) (got []received) {
	marks := map[string]string{}
	for _, c := range e.conversations {
		for _, choice := range c.approved {
			v.find(&v.Harmed, "%s: %s was approved", c.target, choice)
		}
		for i, l := range c.lines {
			if l.Type == "interrupted" && i > 0 && c.lines[i-1].Type == "approval" {
				continue // a person said no, and that ends a turn
			}
			switch l.Type {
			case "shell", "interrupted", "forked":
				v.find(&v.Harmed, "%s: the agent recorded %s %q", c.target, l.Type, l.Text)
			case "user":
				got = append(got, v.message(c, l.Text, l.Time, marks)...)
			}
		}
	}
	for file, text := range e.guests {
		v.find(&v.Crossed, "%s: a person's own pane was typed into: %q", file, text)
	}
	return got
}

// message judges one message to an agent.
func (v *Verdict) message(c conversation, text string, at time.Time, marks map[string]string) (got []received) {
	found := mark.FindAllStringSubmatchIndex(text, -1)
	if len(found) != 1 || found[0][0] != 0 {
		v.find(&v.Merged, "%s: a message is not one delivery: %q", c.target, text)
	}
	for _, m := range found {
		id := text[m[2]:m[3]]
		if before, twice := marks[id]; twice {
			v.find(&v.Doubled, "%s: delivery %s is in %s and in %s", c.target, id, before, c.id)
		}
		marks[id] = c.id
	}
	events := begins.FindAllStringSubmatch(text, -1)
	for _, m := range events {
		item, _ := strconv.Atoi(m[1])
		step, _ := strconv.Atoi(m[2])
		got = append(got, received{item, step, at})
		if targetOf(item) != c.target {
			v.find(&v.Crossed, "%s is with the agent of %s", m[0], c.target)
		}
		if last := end(item, step); len(events) == 1 && strings.Count(text, last) != 1 {
			v.find(&v.Merged, "%s: %s did not come whole: %q", c.target, m[0], text)
		}
	}
	if len(events) > 0 && !ending.MatchString(text) {
		v.find(&v.Merged, "%s: more stands behind a delivery than its own: %q", c.target, text)
	}
	return got
}

// ending is how a delivery ends: with its own last word, or with the line that ends the frame around what others wrote.
var ending = regexp.MustCompile(`(drill-event-\d+-\d+-ends|\n-----[A-Z0-9]+-----)$`)

// arrivals judges whether each event arrived, once.
func (v *Verdict) arrivals(e evidence, got []received) {
	times, byWord := map[[2]int]int{}, words(e)
	for _, r := range got {
		times[[2]int{r.item, r.step}]++
	}
	for _, t := range e.told {
		word, n := Word(t.Item, t.Step), times[[2]int{t.Item, t.Step}]
		r, known := byWord[word]
		switch {
		case n > 1:
			v.find(&v.Doubled, "%s arrived %d times", word, n)
		case n == 1:
		case !known:
			v.find(&v.Lost, "%s was told %s, and is neither with an agent nor in the ledger", word, t.How)
		case r.State == "delivered" || r.State == "settled" && r.Reason == "coalesced":
			v.find(&v.Lost, "%s: the ledger says %s %s, and no agent has it", word, r.State, r.Reason)
		case r.waits():
			v.find(&v.Lost, "%s still waits: %s %s %s", word, r.State, r.Reason, r.Detail)
		}
	}
}

// words finds the row of each event: that whose own words begin with it.
func words(e evidence) map[string]row {
	out := map[string]row{}
	for _, r := range e.rows {
		for _, text := range []string{r.Excerpt, r.Text} {
			if m := begins.FindString(text); m != "" {
				if _, known := out[m]; !known {
					out[m] = r
				}
				break
			}
		}
	}
	return out
}

// claimTime is how long the commit of an event may take after it was noted.
const claimTime = 500 * time.Millisecond

// order finds events that were handed over after a later one of their item, although they were in the ledger before that was first claimed.
func (v *Verdict) order(e evidence, got []received) {
	byWord, tolds := words(e), map[[2]int]told{}
	for _, t := range e.told {
		tolds[[2]int{t.Item, t.Step}] = t
	}
	slices.SortStableFunc(got, func(a, b received) int { return a.at.Compare(b.at) })
	for i, late := range got {
		for _, early := range got[:i] {
			if early.item != late.item {
				continue
			}
			a, b := tolds[[2]int{late.item, late.step}], tolds[[2]int{early.item, early.step}]
			rowA, rowB := byWord[Word(a.Item, a.Step)], byWord[Word(b.Item, b.Step)]
			if later(a, b) && rowA.Known.Before(rowB.Claimed.Add(-claimTime)) {
				v.find(&v.Disordered, "%s came after %s, although it was in the ledger at %s and that was first claimed at %s", Word(a.Item, a.Step),
					Word(b.Item, b.Step), rowA.Known.Format(time.StampMilli), rowB.Claimed.Format(time.StampMilli))
				break
			}
		}
	}
}

// later reports whether b was certainly told after a: upstream's times have one second, and not everything is told in one way.
func later(a, b told) bool {
	if a.How == b.How {
		return a.Step < b.Step
	}
	return b.At.Sub(a.Done) > 2*time.Second
}

// lives judges what became of the agents and of the processes around them.
func (v *Verdict) lives(e evidence) {
	exits := map[string]int{}
	starts := map[string]int{}
	deaths := maps.Clone(e.deaths)
	for _, c := range e.conversations {
		for _, l := range c.lines {
			switch l.Type {
			case "exit":
				if l.Code != nil && *l.Code == exitCode {
					exits[c.id]++
				}
				if !e.seen[life{l.PID, c.id}] {
					deaths[c.target]++ // it began and ended between two looks
				}
			case "session_start", "resumed":
				starts[c.target]++
			}
		}
	}
	for _, a := range e.gone {
		if id := a.conversation(); exits[id] > 0 {
			exits[id]--
			continue
		}
		if e.refused[life{a.pid, a.conversation()}] {
			continue // it was to go on with what an agent that ended at once had never begun, and says that it ended for that
		}
		v.find(&v.Harmed, "the agent of %s on %s (process %d, conversation %s) ended, and nobody but the product can have ended it", a.target, a.host,
			a.pid, a.conversation())
		if server, ok := e.lost[a.id()]; ok {
			v.find(&v.Crashed, "the tmux server of %s (process %d) ended with it", a.target, server)
		}
	}
	for target, both := range e.twins {
		v.find(&v.Harmed, "%s had two agents at once: %s", target, both)
	}
	for _, what := range e.crashes {
		v.find(&v.Crashed, "%s", what)
	}
	for target, n := range starts {
		if n > deaths[target]+1 {
			v.find(&v.Looped, "the agent of %s was started %d times, and died %d times", target, n, deaths[target])
		}
	}
}

// tables judges whether the product's own accounts agree with each other and with the transcripts.
func (v *Verdict) tables(e evidence, got []received) {
	arrived := map[string]bool{}
	for _, r := range got {
		arrived[Word(r.item, r.step)] = true
	}
	for _, r := range e.rows {
		word := begins.FindString(r.Excerpt + "\n" + r.Text)
		name := fmt.Sprintf("%s (%s %s)", r.DeliveryID, r.Kind, word)
		switch {
		case r.State == "delivered":
			if r.Outcome != "delivered" {
				v.find(&v.Unexplained, "%s: the ledger says delivered, the dispatcher %q", name, r.Outcome)
			} else if how := e.contradict(r); how != "" {
				v.find(&v.Unexplained, "%s: the ledger says delivered, and %s", name, how)
			}
		case r.Reason == "unconfirmed" || r.Outcome == "unconfirmed":
			v.find(&v.Unconfirmed, "%s: %s %s %s", name, r.State, r.Reason, r.Detail)
		case r.State == "settled" && r.Reason == "coalesced":
		case r.waits() && word != "": // it was counted as lost
		default:
			v.find(&v.Unexplained, "%s: %s %s %s (the dispatcher says %q %s); it arrived: %v", name, r.State, r.Reason, r.Detail, r.Outcome, r.OutcomeReason, arrived[word])
		}
		if r.Tries > maxTries || r.Asked > maxAsked {
			v.find(&v.Looped, "%s: %d tries, asked about %d times", name, r.Tries, r.Asked)
		}
	}
}
