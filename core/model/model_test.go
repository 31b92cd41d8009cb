package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/ledger"
)

var (
	deeper = flag.Int("faults", 3, "how many faults of every kind may strike in one search; 4 takes minutes and gigabytes")
)

// faults is how many faults may strike in one search: fewer where a search would take minutes.
func faults(n int) int {
	if testing.Short() || raceEnabled {
		return min(n, 2)
	}
	return n
}

// documented checks that docs/model.md has the size of a search, unless fewer faults struck in this one than are usual, or more.
func documented(t *testing.T, faults int, r Result) {
	t.Helper()
	text, err := os.ReadFile("../../docs/model.md")
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| `%s` | %d |", t.Name(), faults)
	if want := fmt.Sprintf("%s %d | %d |\n", row, r.States, r.Transitions); strings.Contains(string(text), row) && !strings.Contains(string(text), want) {
		t.Errorf("docs/model.md does not say %s", want)
	}
	if !strings.Contains(string(text), "| `"+t.Name()+"` |") {
		t.Errorf("docs/model.md does not know this search")
	}
}

// kept checks a configuration in which every promise has to hold.
func kept(t *testing.T, limits map[Fault]int, n int) Result {
	t.Helper()
	r := Check(Config{Core: RealCore(), Rules: AllRules(), Limits: limits, Faults: faults(n)})
	t.Logf("%d faults: %v; %v", faults(n), r, r.Ends)
	if r.Broken != "" || !r.Complete {
		t.Error("a promise was broken, or the search has no end")
	}
	documented(t, faults(n), r)
	return r
}

func TestProtocol_WithoutFaultsBothEventsEnd(t *testing.T) {
	r := kept(t, nil, 0)
	for e := range r.Ends {
		if r.Ends[e][ledger.Delivered] == 0 || r.Ends[e][ledger.Dropped]+r.Ends[e][ledger.GaveUp] > 0 {
			t.Errorf("event %d ends as %v", e+1, r.Ends[e])
		}
	}
}

func TestProtocol_KeepsItsPromisesUnderEveryFault(t *testing.T) {
	r := kept(t, EveryFault(), *deeper)
	for f := none + 1; f < Restore; f++ {
		if r.Struck[f] == 0 {
			t.Errorf("fault %d never strikes", f)
		}
	}
}

func TestProtocol_KeepsItsPromisesUnderRepeatedCrashes(t *testing.T) {
	kept(t, map[Fault]int{HostCrash: 2, NoAnswer: 1, AgentDeath: 1}, 4)
}

func TestProtocol_KeepsItsPromisesWhenRunsOverlap(t *testing.T) {
	kept(t, map[Fault]int{RunCrash: 1, PollerGone: 1, LeaseLost: 1, Twice: 1, NoAnswer: 1}, 4)
}

func TestProtocol_KeepsItsPromisesWhenActsAreLate(t *testing.T) {
	kept(t, map[Fault]int{HostCrash: 1, ActLate: 1, ActUnheard: 1, Silence: 1, AgentDeath: 1}, 4)
}

func TestProtocol_KeepsItsPromisesAtTheScreen(t *testing.T) {
	kept(t, map[Fault]int{Dialog: 2, Swallow: 2, Person: 2, AgentDeath: 1, HostCrash: 1}, 4)
}

func TestProtocol_KeepsItsPromisesWhenTheDatabaseIsRestored(t *testing.T) {
	kept(t, map[Fault]int{Restore: 1, HostCrash: 1, AgentDeath: 1, Twice: 1}, 2)
}

func TestProtocol_KeepsItsPromisesWithoutATranscript(t *testing.T) {
	r := Check(Config{Core: RealCore(), Rules: AllRules(), Limits: EveryFault(), Faults: faults(3), NoTranscript: true})
	t.Logf("%d faults: %v; %v", faults(3), r, r.Ends)
	if r.Broken != "" || !r.Complete {
		t.Error("a promise was broken, or the search has no end")
	}
	documented(t, faults(3), r)
}
