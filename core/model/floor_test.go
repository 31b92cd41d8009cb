package model

import (
	"fmt"
	"testing"
)

// floorFaults is how many faults may strike in one search of the floor.
func floorFaults() int {
	if testing.Short() || raceEnabled {
		return 1
	}
	return 2
}

// floorKept checks a configuration of the floor in which every promise has to hold.
func floorKept(t *testing.T, c FloorConfig) Result {
	t.Helper()
	r := CheckFloor(c)
	t.Logf("%d faults: %v", c.Faults, r)
	if r.Broken != "" || !r.Complete {
		t.Error("a promise was broken, or the search has no end")
	}
	return r
}

// floorFound checks that a change to a configuration breaks a promise which it keeps as it is; the latter is left out where it takes more
// faults than may strike here.
func floorFound(t *testing.T, c FloorConfig, want string, change func(*FloorConfig)) {
	t.Helper()
	if c.Faults <= floorFaults() {
		floorKept(t, c)
	}
	change(&c)
	r := CheckFloor(c)
	if r.Broken != want || len(r.Trace) == 0 {
		t.Fatalf("want %q, got %v", want, r)
	}
	t.Logf("found after %d states: %v", r.States, r)
}

func TestFloor_NoOlderLeaseTypesAfterANewerOneWhateverFails(t *testing.T) {
	for name, limits := range map[string]map[Fault]int{
		"of orders": {NoAnswer: 1, LeaseLost: 1, RunCrash: 1, HostCrash: 1},
		"of floors": {NoAnswer: 1, Reconnect: 1, FloorUnheard: 1, FilesLost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := floorKept(t, FloorConfig{Rules: AllFloorRules(), Limits: limits, Faults: floorFaults()})
			documented(t, floorFaults(), r)
			for f := range limits {
				if r.Struck[f] == 0 {
					t.Errorf("fault %d never strikes", f)
				}
			}
		})
	}
}

func TestFloor_NoOlderLeaseTypesAfterANewerOneWhenTheDatabaseIsRestored(t *testing.T) {
	r := floorKept(t, FloorConfig{Rules: AllFloorRules(), Limits: map[Fault]int{Restore: 1, NoAnswer: 1, FloorUnheard: 1}, Faults: floorFaults()})
	documented(t, floorFaults(), r)
}

// What two deliveries to two sessions can do to each other is to refuse each other by the floors of their dispatchers.
func TestFloor_BothDeliveriesEndAtTwoSessions(t *testing.T) {
	limits := map[Fault]int{NoAnswer: 1, LeaseLost: 1, RunCrash: 1, HostCrash: 1, Reconnect: 1, FloorUnheard: 1}
	if raceEnabled || testing.Short() {
		limits = map[Fault]int{FloorUnheard: 1}
	}
	floorKept(t, FloorConfig{Rules: AllFloorRules(), Limits: limits, Faults: 1, Apart: true, Refusals: 4})
}

// A delivery is refused once at most for each floor that is given while it is under way. Two dispatchers give two, with their first
// connections; whatever has one of them connect again adds one. Only a restored database adds more: each dispatcher learns of it by being
// refused, and a lease that it took before it greeted the host again is refused as well.
func TestFloor_ADeliveryIsRefusedABoundedNumberOfTimes(t *testing.T) {
	for _, c := range []struct {
		name string
		kind Fault
		most int
	}{
		{"nothing fails", none, 2},
		{"an order gets no answer", NoAnswer, 2},
		{"a lease ends under its run", LeaseLost, 3}, // the older run is refused beside the newer
		{"a connection breaks", Reconnect, 3},
		{"a floor gets no answer", FloorUnheard, 3},
		{"a dispatcher is killed", RunCrash, 3},
		{"tmuxd is killed", HostCrash, 4},
		{"tmuxd loses its files", FilesLost, 5}, // the dispatcher that did not notice gives it one before it does
		{"the database is restored", Restore, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := FloorConfig{Rules: AllFloorRules(), Refusals: c.most}
			if c.kind != none {
				config.Limits, config.Faults = map[Fault]int{c.kind: 1}, 1
			}
			if r := floorKept(t, config); r.Refused != c.most {
				t.Errorf("a delivery is refused %d times at most", r.Refused)
			}
		})
	}
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprint("a floor with every greeting, apart ", apart), func(t *testing.T) {
			config := FloorConfig{Rules: AllFloorRules(), Refusals: 2, Apart: apart}
			floorFound(t, config, refusedAgain, func(c *FloorConfig) { c.Rules.Once, c.Refusals = false, 5 })
		})
	}
}

func TestFloor_FindsRulesThatAreLeftOut(t *testing.T) {
	rules := AllFloorRules()
	for _, c := range []struct {
		name   string
		config FloorConfig
		want   string
		change func(*FloorConfig)
	}{
		{"no floor, and a restored database", FloorConfig{Limits: map[Fault]int{Restore: 1}, Faults: 1}, crossed,
			func(c *FloorConfig) { c.Rules.Floor = false }},
		{"no token that a session has seen", FloorConfig{Limits: map[Fault]int{NoAnswer: 1}, Faults: 1}, crossed,
			func(c *FloorConfig) { c.Rules.Seen = false }},
		{"no floor again for a host that lost it", FloorConfig{Limits: map[Fault]int{FilesLost: 1, NoAnswer: 1}, Faults: 2}, belowFloor,
			func(c *FloorConfig) { c.Rules.Again = false }},
		{"a sequence that is not raised", FloorConfig{Limits: map[Fault]int{Restore: 1}, Faults: 1, Refusals: 5}, refusedAgain,
			func(c *FloorConfig) { c.Rules.Raise = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Rules = rules
			floorFound(t, c.config, c.want, c.change)
		})
	}
}

// A floor is above what the host has seen and what the database remembers. A lease that was taken since the last floor, and that a
// restored database has forgotten, is above it, and the tokens that come next are as low as its own: when its order is still on its way
// then, nothing tells it from a newer one, but tokens that never repeat: the database draws them from its clock.
func TestFloor_AForgottenLeaseWhoseOrderIsStillOnItsWayIsToldByTheClock(t *testing.T) {
	config := FloorConfig{Rules: AllFloorRules(), Limits: map[Fault]int{Restore: 1}, Faults: 1, Forgotten: true}
	config.Rules.Clock = true
	floorFound(t, config, crossed, func(c *FloorConfig) { c.Rules.Clock = false })
}
