package ledger

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// queue reads a queue: c is a comment, A one that was asked about, m a message or an opening, 1 and 2 results of CI at two commits.
func queue(s string) (out []Queued) {
	for _, r := range s {
		out = append(out, map[rune]Queued{
			'c': {Framed: true}, 'A': {Framed: true, Asked: true}, 'm': {}, '1': {Framed: true, Together: "1"}, '2': {Framed: true, Together: "2"},
			'B': {Framed: true, Asked: true, Together: "1"},
		}[r])
	}
	return out
}

func TestCoalesce_TakesTheRunBehindTheFirstOrWhatBelongsTogether(t *testing.T) {
	usual := Coalescing{After: 3, Together: true, Most: 5}
	for name, row := range map[string]struct {
		queue string
		how   Coalescing
		want  []int
	}{
		"one alone":                          {"c", usual, nil},
		"not enough":                         {"cccc", usual, nil},
		"enough":                             {"ccccc", usual, []int{0, 1, 2, 3}},
		"results and comments in one":        {"c1c2c", usual, []int{0, 1, 2, 3}},
		"no more than there may be":          {"cccccccccc", usual, []int{0, 1, 2, 3, 4}},
		"switched off":                       {"cccccccccc", Coalescing{Together: true, Most: 5}, nil},
		"up to what was asked about":         {"cccccAcccc", usual, []int{0, 1, 2, 3}},
		"too few up to what was asked about": {"cccAccccccc", usual, nil},
		"up to a message":                    {"cccccmcccc", usual, []int{0, 1, 2, 3}},
		"a first one that was asked about":   {"Accccccc", usual, nil},
		"a message first":                    {"mccccccc", usual, nil},
		"two results of one commit":          {"11", usual, []int{0}},
		"with others between them":           {"1c2m1A1B", usual, []int{3, 5}},
		"results, switched off":              {"11", Coalescing{After: 3, Most: 5}, nil},
		"results behind a comment":           {"c11", usual, nil},
		"a result that was asked about":      {"B1", usual, nil},
	} {
		q := queue(row.queue)
		if got := Coalesce(q[0], q[1:], row.how); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestCoalesce_NeverTakesWhatWasAskedAboutNorWhatAnOperatorWroteNorPassesAnythingOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue(strings.Join(rapid.SliceOfN(rapid.SampledFrom(strings.Split("cccA112mB", "")), 1, 30).Draw(t, "queue"), ""))
		how := Coalescing{After: rapid.IntRange(0, 4).Draw(t, "after"), Together: rapid.Bool().Draw(t, "together"), Most: rapid.IntRange(0, 9).Draw(t, "most")}
		taken := Coalesce(q[0], q[1:], how)
		if len(taken) > how.Most || !slices.IsSorted(taken) || len(slices.Compact(slices.Clone(taken))) != len(taken) {
			t.Fatalf("%v", taken)
		}
		for n, i := range taken {
			if e := q[1+i]; !e.Framed || e.Asked || i != n && e.Together != q[0].Together {
				t.Fatalf("took %d of %v: %v", i, q, taken)
			}
		}
		if len(taken) > 0 && (!q[0].Framed || q[0].Asked) {
			t.Fatalf("%v took %v", q[0], taken)
		}
	})
}
