package drill

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. What each does is in nemesis.go and person.go.
const (
	KillTmuxd       Kind = "kill-tmuxd"
	KillDispatcher  Kind = "kill-dispatcher"
	KillPoller      Kind = "kill-poller"
	KillAgent       Kind = "kill-agent"
	KillWrapper     Kind = "kill-wrapper"
	KillServer      Kind = "kill-tmux-server"
	KillPostgres    Kind = "kill-postgres"
	StopTmuxd       Kind = "stop-tmuxd"
	StopDispatcher  Kind = "stop-dispatcher"
	StopPoller      Kind = "stop-poller"
	StopAgent       Kind = "stop-agent"
	StopServer      Kind = "stop-tmux-server"
	StopPostgres    Kind = "stop-postgres"
	RestartPostgres Kind = "restart-postgres"
	EndBackends     Kind = "end-backends"
	Cut             Kind = "cut"
	CutAll          Kind = "cut-all"
	Deaf            Kind = "deaf"
	Mute            Kind = "mute"
	Flap            Kind = "flap"
	Refuse          Kind = "refuse"
	FullDisk        Kind = "full-disk"
	LoseSocket      Kind = "lose-socket"
	StepClock       Kind = "step-clock"
	StepTmuxClock   Kind = "step-tmux-clock"
	ExitAtOnce      Kind = "exit-at-once"
	Split           Kind = "split"
	Scroll          Kind = "scroll"
	Draft           Kind = "draft"
	Watch           Kind = "watch"
	Dialog          Kind = "dialog"
	Rename          Kind = "rename"
	HoldHooks       Kind = "hold-hooks"
	LoseHooks       Kind = "lose-hooks"
	Redeliver       Kind = "redeliver"
	FailGitHub      Kind = "fail-github"
	Upgrade         Kind = "upgrade"
	Rollback        Kind = "rollback"
)

type weight struct {
	kind         Kind
	weight, last int
}

// weights say how often each kind is chosen, and for how many steps at most it lasts.
var weights = []weight{
	{KillTmuxd, 6, 12}, {KillDispatcher, 5, 12}, {KillPoller, 5, 12}, {KillAgent, 6, 1}, {KillWrapper, 3, 1}, {KillServer, 3, 1}, {KillPostgres, 1, 12},
	{StopTmuxd, 4, 24}, {StopDispatcher, 3, 24}, {StopPoller, 3, 24}, {StopAgent, 4, 24}, {StopServer, 5, 24}, {StopPostgres, 2, 18},
	{RestartPostgres, 1, 1}, {EndBackends, 3, 1},
	{Cut, 4, 30}, {CutAll, 3, 30}, {Deaf, 3, 24}, {Mute, 3, 24}, {Flap, 3, 24}, {Refuse, 3, 24},
	{FullDisk, 3, 24}, {LoseSocket, 3, 1}, {StepClock, 2, 40}, {StepTmuxClock, 2, 40}, {ExitAtOnce, 2, 6},
	{Split, 3, 60}, {Scroll, 3, 24}, {Draft, 5, 24}, {Watch, 3, 40}, {Dialog, 5, 24}, {Rename, 1, 40},
	{HoldHooks, 3, 24}, {LoseHooks, 2, 12}, {Redeliver, 3, 1}, {FailGitHub, 2, 1},
}

// Kinds are all kinds that a plan chooses from, and the two of a rolling upgrade.
func Kinds() []Kind {
	out := make([]Kind, 0, len(weights)+2)
	for _, w := range weights {
		out = append(out, w.kind)
	}
	return append(out, Upgrade, Rollback)
}

// Fault is something that breaks at one step of the load, and is mended at another.
type Fault struct {
	// Index is its place in the plan, by which it is named.
	Index int
	Kind  Kind
	// Step is when it happens; Until when it is mended, which may be after the last step.
	Step, Until int
	// Host, Replica and Item are whom it befalls, where the kind befalls such. Dice decides everything else.
	Host, Replica, Item int
	Dice                uint32
}

func (f Fault) String() string {
	return fmt.Sprintf("%d:%s@%d-%d host=%c replica=%d item=%d dice=%08x", f.Index, f.Kind, f.Step, f.Until, 'a'+f.Host, f.Replica, f.Item, f.Dice)
}

// Plan returns what breaks during so many steps, of all kinds or of those that are named: a function of its arguments alone. Between two faults
// there are gap steps on average. In the middle of it every process is replaced by one of another build, one after the other, and later taken back.
func Plan(seed uint64, steps, items, gap int, kinds ...Kind) []Fault {
	dice := rand.New(rand.NewPCG(seed, 0xfa0175))
	if len(kinds) == 0 {
		kinds = Kinds()
	}
	sum, choice := 0, slices.Clone(weights)
	choice = slices.DeleteFunc(choice, func(w weight) bool { return !slices.Contains(kinds, w.kind) })
	for _, w := range choice {
		sum += w.weight
	}
	var plan []Fault
	for step := 1 + dice.IntN(2*gap); step < steps && sum > 0; step += 1 + dice.IntN(2*gap) {
		f := Fault{Step: step, Host: dice.IntN(hostCount), Replica: dice.IntN(replicaCount), Item: dice.IntN(items), Dice: dice.Uint32()}
		last, at := dice.IntN(1<<20), dice.IntN(sum)
		for _, w := range choice {
			if at -= w.weight; at < 0 {
				f.Kind, f.Until = w.kind, step+1+last%w.last
				break
			}
		}
		plan = append(plan, f)
	}
	for i := range hostCount + 2*replicaCount {
		plan = append(plan, Fault{Kind: Upgrade, Step: steps*2/5 + 2*i, Until: steps*2/5 + 2*i, Replica: i},
			Fault{Kind: Rollback, Step: steps*7/10 + 2*i, Until: steps*7/10 + 2*i, Replica: i})
	}
	plan = slices.DeleteFunc(plan, func(f Fault) bool { return !slices.Contains(kinds, f.Kind) })
	slices.SortStableFunc(plan, func(a, b Fault) int { return a.Step - b.Step })
	for i := range plan {
		plan[i].Index = i
	}
	return plan
}

// Only keeps the faults of these indexes.
func Only(plan []Fault, indexes []int) (out []Fault) {
	for _, f := range plan {
		if slices.Contains(indexes, f.Index) {
			out = append(out, f)
		}
	}
	return out
}

// How something is told.
const (
	byComment = "comment"
	byReview  = "review"
	byInline  = "inline"
	byHand    = "hand"
)

// Telling is what is told to the agent of an item at one step.
type Telling struct {
	Step, Item int
	How        string
	Text       string
}

// exitCode is the status of an agent that ends because it was told to.
const exitCode = 3

// Word names an event in the text that is told: it begins the text, and end ends it.
func Word(item, step int) string { return fmt.Sprintf("drill-event-%d-%d-begins", item, step) }

func end(item, step int) string { return fmt.Sprintf("drill-event-%d-%d-ends", item, step) }

// Tell returns what is told at a step: a function of its arguments alone.
func Tell(seed uint64, step, items int) Telling {
	dice := rand.New(rand.NewPCG(seed, 0x7e11<<32|uint64(step)))
	t := Telling{Step: step, Item: dice.IntN(items), How: byComment}
	switch n := dice.IntN(20); {
	case n < 4:
		t.How = byHand
	case n < 6:
		t.How = byReview
	case n < 7:
		t.How = byInline
	}
	middle := "please look at this"
	switch dice.IntN(40) {
	case 0:
		middle = strings.Repeat("A long text is folded in the composer, and is one delivery all the same. ", 20)
	case 1:
		middle = "several\n\nlines, and\n/quit\n!date\nwhat looks like commands"
	case 2:
		middle = "wörter, 文字 and 👩‍👩‍👧"
	case 3:
		middle = "a turn that takes a while zz:dur=2s"
	case 4:
		middle = "a turn during which the screen looks idle zz:dur=1s zz:stream"
	case 5:
		middle = "the program ends after this turn " + fmt.Sprintf("zz:exit=%d", exitCode)
	case 6:
		middle = "the turn fails zz:fail=model"
	}
	t.Text = Word(t.Item, step) + " " + middle + " " + end(t.Item, step)
	return t
}
