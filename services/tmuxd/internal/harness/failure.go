package harness

import (
	"regexp"
	"strings"
)

// Failure is why a program cannot go on: a class of the entry's failures, and the line that says so. The zero value is none.
type Failure struct{ Class, Line string }

// String says it in a line for a person.
func (f Failure) String() string { return strings.ReplaceAll(f.Class, "_", " ") + ": " + f.Line }

// failure is a class with its patterns; either may be nil.
type failure struct {
	class         string
	pattern, told *regexp.Regexp
}

const (
	// endRows is how many of the last rows of a program that ended can say why, and liveRows how many above the composer of one that lives: what is
	// further up was written to since.
	endRows  = 10
	liveRows = 2
	// maxLine bounds a line.
	maxLine = 300
)

// Failed returns why a program ended, by the last rows that it showed.
func (h *Harness) Failed(rows []string) Failure { return h.among(rows, endRows) }

// among returns the failure that the last of some rows say.
func (h *Harness) among(rows []string, most int) Failure {
	seen := 0
	for y := len(rows) - 1; y >= 0 && seen < most; y-- {
		if strings.TrimSpace(rows[y]) == "" {
			continue
		}
		seen++
		if f := h.classify(rows[y], func(f failure) *regexp.Regexp { return f.pattern }); f != (Failure{}) {
			return f
		}
	}
	return Failure{}
}

// EndsTurn reports whether a line of the transcript ends a turn.
func (h *Harness) EndsTurn(line []byte) bool { return h.turnEnds != nil && h.turnEnds.Match(line) }

// FailedTurn returns why a turn ended as it did, by what the program told of it.
func (h *Harness) FailedTurn(told string) Failure {
	return h.classify(told, func(f failure) *regexp.Regexp { return f.told })
}

func (h *Harness) classify(line string, of func(failure) *regexp.Regexp) Failure {
	for _, f := range h.failures {
		re := of(f)
		if re == nil {
			continue
		}
		if m := re.FindStringSubmatch(line); m != nil {
			if len(m) > 1 {
				line = m[1] // what is worth saying of it
			}
			return Failure{f.class, strings.ToValidUTF8(strings.TrimSpace(line[:min(len(line), maxLine)]), "")}
		}
	}
	return Failure{}
}
