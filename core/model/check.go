package model

import (
	"fmt"
	"strings"

	"muxpost.dev/muxpost/core/ledger"
)

// Result is what a search found.
type Result struct {
	// States and Transitions count what was explored. Depth is the length of the longest shortest way.
	States, Transitions, Depth int
	// Complete is true when there is nothing more to explore.
	Complete bool
	// Ended counts the states in which both events have ended.
	Ended int
	// Broken is the promise that was found broken, and Trace a shortest way there; both empty when all are kept.
	Broken string
	Trace  []string
	// Struck counts the steps in which each fault struck, and Ends the ended states by what became of an event.
	Struck [floorKinds]int
	Ends   [events]map[ledger.State]int
	// Refused is how often one delivery was refused at most, in the model of the floor.
	Refused int
}

// String is the result in a line, and the trace where there is one.
func (r Result) String() string {
	out := fmt.Sprintf("%d states, %d transitions, depth %d, complete %v, %d with both events ended", r.States, r.Transitions, r.Depth,
		r.Complete, r.Ended)
	if r.Broken != "" {
		out += "\nbroken: " + r.Broken + "\n  " + strings.Join(r.Trace, "\n  ")
	}
	return out
}

// system is what can be searched: states, and the steps between them.
type system[S comparable] interface {
	first() S
	// steps yields every step out of a state.
	steps(from *S, yield func(*step[S]))
	// over reports whether everything has ended in a state; quiet, whether nothing is under way either, so that no step out of it
	// matters.
	over(*S) bool
	quiet(*S) bool
	// tally counts a state that is over, and ended says in words what has ended in a state.
	tally(*S, *Result)
	ended(*S) string
}

// step is one possible step out of a state.
type step[S comparable] struct {
	what  string
	event int   // the event that it is about, from 0; -1 for none
	fault Fault // what goes wrong in it; none for a step that needs nothing to
	to    *S    // valid until the next step is yielded
	// broken is the promise that the step broke; empty for none.
	broken string
}

// search is one exploration, breadth first.
type search[S comparable] struct {
	system system[S]
	states store[S]
	// most ends a search that grew out of hand; zero is no limit.
	most   int
	parent []uint32
	// calm are the steps that need no fault, by state: edges[calm[i]:calm[i+1]].
	calm  []int
	edges []uint32
	// result is what was found so far; bad is the step that broke a promise, out of state at.
	result Result
	at     uint32
	bad    string
}

// Check explores every state that can be reached and checks the promises in each; then, that from each of them the events come to
// an end once faults have stopped.
func Check(c Config) Result {
	return check(New(c), c.MaxStates)
}

func check[S comparable](sys system[S], most int) Result {
	s := &search[S]{system: sys, states: newStore[S](), most: most}
	for e := range s.result.Ends {
		s.result.Ends[e] = map[ledger.State]int{}
	}
	first := sys.first()
	s.states.add(&first)
	s.parent = append(s.parent, 0)
	s.explore()
	r := &s.result
	r.States = s.states.count
	switch {
	case r.Broken != "":
		r.Trace = append(s.way(s.at), s.bad)
	case r.Complete:
		s.ends()
	}
	return *r
}

// explore finds every state, level by level.
func (s *search[S]) explore() {
	next := 1
	for i := 0; i < s.states.count; i++ {
		if i == next {
			s.result.Depth++
			next = s.states.count
		}
		s.calm = append(s.calm, len(s.edges))
		from := *s.states.at(uint32(i))
		if s.system.over(&from) {
			s.result.Ended++
			s.system.tally(&from, &s.result)
			if s.system.quiet(&from) {
				continue
			}
		}
		s.system.steps(&from, func(st *step[S]) {
			s.result.Transitions++
			s.result.Struck[st.fault]++
			if st.broken != "" && s.result.Broken == "" {
				s.result.Broken, s.at, s.bad = st.broken, uint32(i), s.words(st)
			}
			n, isNew := s.states.add(st.to)
			if isNew {
				s.parent = append(s.parent, uint32(i))
			}
			if st.fault == none {
				s.edges = append(s.edges, n)
			}
		})
		if s.result.Broken != "" || s.most > 0 && s.states.count > s.most {
			return
		}
	}
	s.calm = append(s.calm, len(s.edges))
	s.result.Complete = true
}

func (m *Model) over(s *State) bool { return !s.ledger[0].state.Waits() && !s.ledger[1].state.Waits() }

// quiet reports whether nothing is under way any more that could change the session.
func (m *Model) quiet(s *State) bool {
	return s.op.stage == idle && s.flight.what == noDeed && s.late.kind == nothing && !s.runs[0].active && !s.runs[1].active &&
		s.backup == backup{}
}

func (m *Model) tally(s *State, r *Result) {
	for e := range r.Ends {
		r.Ends[e][s.ledger[e].state]++
	}
}

func (m *Model) ended(s *State) (out string) {
	for e, row := range s.ledger {
		if !row.state.Waits() {
			out += fmt.Sprintf(" [%d %s]", e+1, row.state)
		}
	}
	return out
}

// ends checks, backwards from the states in which both events have ended, that each state leads to one of them by steps that need
// no fault. Every choice is a fair one: what is possible again and again happens at last.
func (s *search[S]) ends() {
	// The steps turned around, as one list by their ends.
	first := make([]int, s.states.count+1)
	for _, to := range s.edges {
		first[to+1]++
	}
	for i := range s.states.count {
		first[i+1] += first[i]
	}
	back, fill := make([]uint32, len(s.edges)), append([]int(nil), first...)
	for from := range s.states.count {
		for _, to := range s.edges[s.calm[from]:s.calm[from+1]] {
			back[fill[to]] = uint32(from)
			fill[to]++
		}
	}
	good := make([]bool, s.states.count)
	var todo []uint32
	for i := range s.states.count {
		if s.system.over(s.states.at(uint32(i))) {
			good[i], todo = true, append(todo, uint32(i))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[first[at]:first[at+1]] {
			if !good[from] {
				good[from], todo = true, append(todo, from)
			}
		}
	}
	for i := range good {
		if !good[i] {
			s.result.Broken, s.result.Trace = stuck, s.way(uint32(i))
			return
		}
	}
}

// way returns the steps that lead to a state, in words.
func (s *search[S]) way(to uint32) []string {
	var numbers []uint32
	for at := to; at != 0; at = s.parent[at] {
		numbers = append(numbers, at)
	}
	var out []string
	from := uint32(0)
	for i := len(numbers) - 1; i >= 0; i-- {
		var words string
		s.system.steps(s.states.at(from), func(st *step[S]) {
			if words == "" && *st.to == *s.states.at(numbers[i]) {
				words = s.words(st)
			}
		})
		out = append(out, words)
		from = numbers[i]
	}
	return out
}

// words is a step in words.
func (s *search[S]) words(st *step[S]) string {
	out := st.what
	if st.event >= 0 {
		out += fmt.Sprintf(" (event %d)", st.event+1)
	}
	if st.fault != none {
		out = "! " + out
	}
	return out + s.system.ended(st.to)
}
