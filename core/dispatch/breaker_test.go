package dispatch

import (
	"testing"
	"time"
)

func TestBreaker_ByTheTable(t *testing.T) {
	five, hour := Breaker{Deaths: 5, Within: 10 * time.Minute}, Breaker{Deaths: 5, Within: 10 * time.Minute, Parked: time.Hour}
	one, two := Version{"one", true}, Version{"two", true}
	parked := Record{Parked: true, Since: 30 * 24 * time.Hour, Versions: []string{"one"}}
	for name, row := range map[string]struct {
		breaker Breaker
		record  Record
		running Version
		want    Starts
		lift    Lift
	}{
		"nothing died":                      {five, Record{}, one, StartsAllowed, ""},
		"one less than too many":            {five, Record{Deaths: 4}, one, StartsAllowed, ""},
		"too many":                          {five, Record{Deaths: 5}, one, StartsSpent, ""},
		"more than too many":                {five, Record{Deaths: 9}, one, StartsSpent, ""},
		"no breaker":                        {Breaker{}, Record{Deaths: 99}, one, StartsAllowed, ""},
		"parked for a month":                {five, parked, one, StartsParked, ""},
		"parked, and nothing died since":    {five, Record{Parked: true, Versions: []string{"one"}}, one, StartsParked, ""},
		"parked, another version":           {five, parked, two, StartsDue, LiftVersion},
		"parked, a version that says no":    {five, parked, Version{Name: "two+dirty"}, StartsParked, ""},
		"parked again under the other one":  {five, Record{Parked: true, Versions: []string{"one", "two"}}, one, StartsParked, ""},
		"parked for as long as it is to be": {hour, Record{Parked: true, Since: time.Hour, Versions: []string{"one"}}, one, StartsDue, LiftTime},
		"parked for less":                   {hour, Record{Parked: true, Since: time.Hour - 1, Versions: []string{"one"}}, one, StartsParked, ""},
		"parked, and no breaker any more":   {Breaker{}, parked, one, StartsDue, LiftConfiguration},
	} {
		if got := row.breaker.Judge(row.record, row.running); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
		if row.record.Parked && row.breaker.Lifts(row.record, row.running) != row.lift {
			t.Errorf("%s: lifted by %q", name, row.breaker.Lifts(row.record, row.running))
		}
	}
}

// TestDecide_NothingIsStartedThatIsParked holds that every start is asked for first, and that a parked item waits and spends nothing.
func TestDecide_NothingIsStartedThatIsParked(t *testing.T) {
	parked := 0
	walk(func(path []Facts, d Decision) {
		f := path[len(path)-1]
		starts := d.Action == SpawnResume || d.Action == SpawnFresh
		if starts && f.Starts != StartsAllowed {
			t.Fatalf("%v for %+v", d.Action, f)
		}
		if d.Action != Finish || f.Starts != StartsParked {
			return
		}
		if parked++; d.Outcome != Waiting || d.Reason != ReasonSessionParked {
			t.Fatalf("%+v ends as %v (%s)", f, d.Outcome, d.Reason)
		}
	})
	if parked == 0 {
		t.Error("nothing is ever parked")
	}
	if d := Decide(Facts{Registry: Recorded, Probe: ProbeLive, SameIncarnation: true, Starts: StartsParked}); d.Action != PasteText {
		t.Errorf("a living agent of a parked item gets %v", d.Action)
	}
}
