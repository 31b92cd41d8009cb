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
	Struck [kinds]int
	Ends   [events]map[ledger.State]int
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

// search is one exploration, breadth first.
type search struct {
	m      *Model
	states store
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
	s := &search{m: New(c), states: newStore()}
	for e := range s.result.Ends {
		s.result.Ends[e] = map[ledger.State]int{}
	}
	first := s.m.first()
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
func (s *search) explore() {
	next := 1
	for i := 0; i < s.states.count; i++ {
		if i == next {
			s.result.Depth++
			next = s.states.count
		}
		s.calm = append(s.calm, len(s.edges))
		from := *s.states.at(uint32(i))
		if from.over() {
			s.result.Ended++
			for e := range s.result.Ends {
				s.result.Ends[e][from.ledger[e].state]++
			}
			if from.quiet() {
				continue
			}
		}
		s.m.steps(&from, func(st *step) {
			s.result.Transitions++
			s.result.Struck[st.fault]++
			if st.broken != "" && s.result.Broken == "" {
				s.result.Broken, s.at, s.bad = st.broken, uint32(i), st.String()
			}
			n, isNew := s.states.add(st.to)
			if isNew {
				s.parent = append(s.parent, uint32(i))
			}
			if st.fault == none {
				s.edges = append(s.edges, n)
			}
		})
		if s.result.Broken != "" || s.m.config.MaxStates > 0 && s.states.count > s.m.config.MaxStates {
			return
		}
	}
	s.calm = append(s.calm, len(s.edges))
	s.result.Complete = true
}

// over reports whether both events have ended.
func (s *State) over() bool { return !s.ledger[0].state.Waits() && !s.ledger[1].state.Waits() }

// quiet reports whether nothing is under way any more that could change the session.
func (s *State) quiet() bool {
	return s.op.stage == idle && s.flight.what == noDeed && s.late.kind == nothing && !s.runs[0].active && !s.runs[1].active &&
		s.backup == backup{}
}

// ends checks, backwards from the states in which both events have ended, that each state leads to one of them by steps that need
// no fault. Every choice is a fair one: what is possible again and again happens at last.
func (s *search) ends() {
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
		if s.states.at(uint32(i)).over() {
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
func (s *search) way(to uint32) []string {
	var numbers []uint32
	for at := to; at != 0; at = s.parent[at] {
		numbers = append(numbers, at)
	}
	var out []string
	from := uint32(0)
	for i := len(numbers) - 1; i >= 0; i-- {
		var words string
		s.m.steps(s.states.at(from), func(st *step) {
			if words == "" && *st.to == *s.states.at(numbers[i]) {
				words = st.String()
			}
		})
		out = append(out, words)
		from = numbers[i]
	}
	return out
}

// String is a step in words.
func (st *step) String() string {
	out := st.what
	if st.event >= 0 {
		out += fmt.Sprintf(" (event %d)", st.event+1)
	}
	if st.fault != none {
		out = "! " + out
	}
	for e, row := range st.to.ledger {
		if !row.state.Waits() {
			out += fmt.Sprintf(" [%d %s]", e+1, row.state)
		}
	}
	return out
}
