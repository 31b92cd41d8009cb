package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The judge is tried on transcripts that show each fault, or it would prove nothing.
func TestJudge_SeesWhatWentWrong(t *testing.T) {
	var seen transcripts
	seen.add("host-a", "header\\n\\n"+word(0, 0)+" and "+word(0, 1)+word(0, 1)+"\n"+word(1, 0))
	seen.add("host-b", word(1, 1)+word(2, 5))
	got := seen.judge([items]int{3, 2, 0, 1})
	want := verdict{delivered: 4, lost: 2, doubled: 1, wrong: []string{
		"(event 0 of 3) is lost", "(event 1 of 0) came 2 times", "(event 2 of 0) is lost", "(event 5 of 2) was never sent",
		item(1) + " was at 2 hosts", item(3) + " was at 0 hosts",
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(verdict{})); diff != "" {
		t.Error(diff)
	}
	if seen.last(0) != 1 || seen.last(4) != -1 || seen.host(2) != "host-b" || seen.host(4) != "" {
		t.Errorf("last %d and %d, host %q and %q", seen.last(0), seen.last(4), seen.host(2), seen.host(4))
	}
}
