package task

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
)

var update = flag.Bool("update", false, "write the golden file")

type named[T any] struct {
	name string
	set  func(*Facts)
}

func markers() []named[Marker] {
	plain := func(name string, m Marker) named[Marker] {
		return named[Marker]{name, func(f *Facts) { f.Marker = m }}
	}
	with := func(name string, e End, c Cause) named[Marker] {
		return named[Marker]{name, func(f *Facts) { f.Marker, f.End, f.Cause = Ended, e, c }}
	}
	return []named[Marker]{
		plain("absent", Absent), plain("empty", Empty), plain("begun", Open),
		with("exited 0", End{ByCode, 0}, NoCause), with("exited 7", End{ByCode, 7}, NoCause), with("exited 126", End{ByCode, 126}, NoCause),
		with("exited 127", End{ByCode, 127}, NoCause), with("exited 137", End{ByCode, 137}, NoCause),
		with("signal 2", End{BySignal, 2}, NoCause), with("signal 9", End{BySignal, 9}, NoCause), with("ended somehow", End{}, NoCause),
		with("exited 0 at its limit", End{ByCode, 0}, LimitOver), with("signal 9 at its limit", End{BySignal, 9}, LimitOver),
		with("exited 0 hung up", End{ByCode, 0}, HungUp), with("signal 1 hung up", End{BySignal, 1}, HungUp),
		plain("not launched", NotLaunched), plain("malformed", Malformed), plain("unreadable", Unreadable),
	}
}

func panes() []named[Pane] {
	plain := func(name string, p Pane) named[Pane] {
		return named[Pane]{name, func(f *Facts) { f.Pane = p }}
	}
	dead := func(name string, e End) named[Pane] {
		return named[Pane]{name, func(f *Facts) { f.Pane, f.PaneEnd = Dead, e }}
	}
	return []named[Pane]{
		plain("alive", Alive), dead("dead 0", End{ByCode, 0}), dead("dead 7", End{ByCode, 7}), dead("dead 123", End{ByCode, 123}),
		dead("dead 127", End{ByCode, 127}), dead("dead signal 9", End{BySignal, 9}), dead("dead signal 15", End{BySignal, 15}),
		dead("dead, unsaid", End{}), plain("gone", Gone), plain("server lost", ServerLost), plain("no answer", NoAnswer),
	}
}

var wrappers = []session.Process{session.ProcessUnclear, session.ProcessNone, session.ProcessGone, session.ProcessAlive}

// every calls visit with every set of facts there is.
func every(visit func(name string, f Facts)) {
	for _, m := range markers() {
		for _, p := range panes() {
			for _, w := range wrappers {
				for order := NoOrder; order <= OrderStall; order++ {
					for bits := range 4 {
						f := Facts{Wrapper: w, Order: order, Again: bits&1 != 0, Overdue: bits&2 != 0}
						m.set(&f)
						p.set(&f)
						visit(fmt.Sprintf("%s, %s: %+v", m.name, p.name, f), f)
					}
				}
			}
		}
	}
}

func TestJudge_TheTableIsTheReviewedOne(t *testing.T) {
	var b strings.Builder
	b.WriteString("# marker × pane, with the wrapper's process gone, nothing ordered, the marker read again, and all grace over.\n")
	for _, m := range markers() {
		for _, p := range panes() {
			f := Facts{Wrapper: session.ProcessGone, Again: true, Overdue: true}
			m.set(&f)
			p.set(&f)
			j := Judge(f)
			line := fmt.Sprintf("%-22s %-15s %-7s %-14s %s", m.name, p.name, j.Action, j.State, j.Reason)
			if j.Action == Settle && j.End.How != Unsaid {
				line += ", " + j.End.String()
			}
			if j.SecondHand {
				line += ", second-hand"
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	const golden = "testdata/judge.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d is not as reviewed (run with -update and read the difference):\n want %s\n", i+1, line)
		}
	}
	if len(got) != strings.Count(string(want), "\n")+1 {
		t.Error("there are more rows than were reviewed")
	}
}

func TestJudge_SuccessIsNeverSecondHand(t *testing.T) {
	every(func(name string, f Facts) {
		j := Judge(f)
		marked := f.Marker == Ended && f.End == End{ByCode, 0} && f.Cause != LimitOver && f.Order == NoOrder
		if (j.State == Succeeded) != marked || j.SecondHand && j.State == Succeeded {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_OnlyAFinalStateIsSettled(t *testing.T) {
	every(func(name string, f Facts) {
		if j := Judge(f); (j.Action == Settle) != j.State.Final() {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_WithoutAMarkerNothingEndsWhileSomethingLivesOrIsSilent(t *testing.T) {
	every(func(name string, f Facts) {
		silent := f.Pane == NoAnswer || f.Pane == Alive || f.Wrapper == session.ProcessAlive || f.Wrapper == session.ProcessUnclear
		if j := Judge(f); silent && f.Marker <= Open && j.Action == Settle {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_TheMarkerIsReadAgainBeforeACrash(t *testing.T) {
	every(func(name string, f Facts) {
		if f.Again || f.Marker >= Ended {
			return
		}
		if j := Judge(f); j.Action == Settle {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_AValidMarkerDecidesWhateverThePaneSays(t *testing.T) {
	every(func(name string, f Facts) {
		if f.Marker < Ended {
			return
		}
		alone := Facts{Marker: f.Marker, End: f.End, Cause: f.Cause, Order: f.Order}
		if Judge(f) != Judge(alone) {
			t.Errorf("%s: %+v, and the marker alone %+v", name, Judge(f), Judge(alone))
		}
	})
}

func TestJudge_AnUnreadableMarkerIsNeverAnEnd(t *testing.T) {
	every(func(name string, f Facts) {
		if j := Judge(f); f.Marker == Unreadable && (j.Action != Wait || j.State != Unknown) {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_WhatWasOrderedToEndIsNoFailure(t *testing.T) {
	want := map[Order]State{OrderStop: Stopped, OrderTime: TimedOut, OrderStall: Stalled}
	every(func(name string, f Facts) {
		j := Judge(f)
		if f.Order == NoOrder {
			return
		}
		if j.Action == Settle && j.State != want[f.Order] {
			t.Errorf("%s: %+v", name, j)
		}
		// The order changes what an end is called, and never whether there is one.
		g := f
		g.Order = NoOrder
		if Judge(g).Action != j.Action || Judge(g).End != j.End {
			t.Errorf("%s: %+v, and without an order %+v", name, j, Judge(g))
		}
	})
}

func TestJudge_ASignalIsNotGuessedFromACode(t *testing.T) {
	every(func(name string, f Facts) {
		j := Judge(f)
		bySignal := f.Marker == Ended && f.End.How == BySignal || f.Marker < Ended && f.PaneEnd.How == BySignal
		if j.Action == Settle && (j.End.How == BySignal) != bySignal && j.State != Crashed && f.Order == NoOrder && j.State != LaunchFailed {
			t.Errorf("%s: %+v", name, j)
		}
	})
}

func TestJudge_TheZeroFactsAreUnknown(t *testing.T) {
	if j := Judge(Facts{}); j.Action != Wait || j.State != Unknown {
		t.Errorf("%+v", j)
	}
	if j := Judge(Facts{Marker: Absent, Pane: Gone, Wrapper: session.ProcessNone}); j.Action != ReadAgain {
		t.Errorf("%+v", j)
	}
}

func TestJudge_EveryReasonIsGivenAndListed(t *testing.T) {
	given := map[Reason]bool{}
	every(func(_ string, f Facts) {
		if r := Judge(f).Reason; r != ReasonNone {
			given[r] = true
		}
	})
	for _, r := range Reasons() {
		if !given[r] {
			t.Errorf("%s is listed and never given", r)
		}
		delete(given, r)
	}
	if len(given) > 0 {
		t.Errorf("%v are given and not listed", given)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(runbook), "| `"+string(r)+"` |") {
			t.Errorf("the runbook does not say what %s means", r)
		}
	}
}

func TestFinal_AreAllStatesButTwo(t *testing.T) {
	final := slices.DeleteFunc(States(), func(s State) bool { return !s.Final() })
	if len(final) != 7 || Unknown.Final() || Running.Final() {
		t.Errorf("final are %v", final)
	}
}
