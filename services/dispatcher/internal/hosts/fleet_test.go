package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// machine is a tmuxd of its own, under a name.
func machine(name string, change func(*tmuxd)) *tmuxd {
	d := newTmuxd()
	d.stop = make(chan struct{})
	d.info = &tmuxdv1.InfoResponse{Host: name, InstanceId: "instance-of-" + name, Capacity: 10,
		Harnesses: []*tmuxdv1.HarnessInfo{{Name: "claude", Binary: "/bin/claude", RunsSessions: true}}}
	d.steps = []*tmuxdv1.WatchSessionsResponse{{Step: &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}}}
	if change != nil {
		change(d)
	}
	return d
}

// has has the machine tell of a session.
func has(item string, state tmuxdv1.State, stamp string) func(*tmuxd) {
	return func(d *tmuxd) {
		d.steps = append([]*tmuxdv1.WatchSessionsResponse{told(item, state, stamp)}, d.steps...)
		d.state = &tmuxdv1.SessionStateResponse{State: state, Incarnation: &tmuxdv1.Incarnation{Stamp: stamp}}
	}
}

// fleetRig is a fleet on machines in this process.
type fleetRig struct {
	*Fleet
	t        *testing.T
	registry *registry
	machines map[string]*tmuxd
	address  map[string]string
	stops    map[string]func()
}

func newFleetRig(t *testing.T, labels map[string]string, machines ...*tmuxd) *fleetRig {
	t.Helper()
	r := &fleetRig{t: t, registry: &registry{}, machines: map[string]*tmuxd{}, address: map[string]string{}, stops: map[string]func(){}}
	config := FleetConfig{Registry: r.registry, Tokens: &tokens{}, Logger: slog.New(slog.DiscardHandler),
		Labels: func(string) map[string]string { return labels }}
	for _, d := range machines {
		name := d.info.GetHost()
		addr, stop := serve(t, d)
		t.Cleanup(stop)
		r.machines[name], r.address[name], r.stops[name] = d, addr, stop
		config.Hosts = append(config.Hosts, Address{Name: name, Address: addr})
	}
	var err error
	if r.Fleet, err = NewFleet(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r.Meet(ctx)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	})
	for _, m := range r.all() {
		until(t, m.Name()+" has told of all its sessions", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.complete })
	}
	return r
}

func (r *fleetRig) asked(name string) int {
	d := r.machines[name]
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked)
}

// seeks checks where an item is found, and what is seen there.
func (r *fleetRig) seeks(w deliver.Want, want string, probe dispatch.Probe) deliver.Sight {
	r.t.Helper()
	w.WorkItem, w.Harness = item, "claude"
	host, sight := r.Seek(r.t.Context(), w)
	name := ""
	if host != nil {
		name = host.Name()
	}
	if name != want || sight.Probe != probe {
		r.t.Errorf("found on %q (%+v), want %q", name, sight, want)
	}
	return sight
}

func TestSeek_FindsTheHostThatHasTheSession(t *testing.T) {
	for _, tt := range []struct {
		name  string
		b     func(*tmuxd)
		want  string
		probe dispatch.Probe
	}{
		{"alive", has(item, tmuxdv1.State_STATE_LIVE, "s"), "b", dispatch.ProbeLive},
		{"dead", has(item, tmuxdv1.State_STATE_DEAD, "s"), "b", dispatch.ProbeDead},
		{"told of, and silent now: nothing is started elsewhere", has(item, tmuxdv1.State_STATE_UNKNOWN, "s"), "b", dispatch.ProbeUnknown},
		{"nowhere: the first by name", nil, "a", dispatch.ProbeAbsent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newFleetRig(t, nil, machine("a", nil), machine("b", tt.b), machine("c", nil))
			r.seeks(deliver.Want{}, tt.want, tt.probe)
			// Hosts that told of all their sessions are not asked for one that they do not have.
			if n := r.asked("c"); n != 0 {
				t.Errorf("c was asked %d times", n)
			}
		})
	}
}

func TestSeek_LeavesOutWhereTheItemWasMovedAwayFrom(t *testing.T) {
	r := newFleetRig(t, nil, machine("a", has(item, tmuxdv1.State_STATE_LIVE, "s")), machine("b", nil))
	r.seeks(deliver.Want{}, "a", dispatch.ProbeLive)
	r.seeks(deliver.Want{Left: []string{"a"}}, "b", dispatch.ProbeAbsent)
}

func TestSeek_TwoLivingSessionsAreNotChosenFrom(t *testing.T) {
	r := newFleetRig(t, nil, machine("a", has(item, tmuxdv1.State_STATE_LIVE, "1")), machine("b", has(item, tmuxdv1.State_STATE_LIVE, "2")))
	if s := r.seeks(deliver.Want{}, "a", dispatch.ProbeUnknown); !strings.Contains(s.Detail, "a and b") {
		t.Errorf("%q", s.Detail)
	}
}

func TestSeek_ANameThatIsTakenOnOneHostIsFreeOnAnother(t *testing.T) {
	foreign := func(d *tmuxd) {
		has(item, tmuxdv1.State_STATE_LIVE, "")(d)
		d.state.Flags = []tmuxdv1.Flag{tmuxdv1.Flag_FLAG_FOREIGN}
	}
	r := newFleetRig(t, nil, machine("a", foreign), machine("b", nil))
	r.seeks(deliver.Want{}, "b", dispatch.ProbeAbsent)
	alone := newFleetRig(t, nil, machine("a", foreign))
	alone.seeks(deliver.Want{}, "a", dispatch.ProbeForeign)
}

func TestSeek_PlacesByLabelDrainAndWhatIsNear(t *testing.T) {
	gpu := func(d *tmuxd) { d.info.Labels = map[string]string{"gpu": "yes"} }
	r := newFleetRig(t, map[string]string{"gpu": "yes"}, machine("a", nil), machine("b", gpu), machine("c", func(d *tmuxd) {
		gpu(d)
		has("github:octo/widget#1", tmuxdv1.State_STATE_LIVE, "s")(d)
		d.state = newTmuxd().state
	}))
	r.seeks(deliver.Want{}, "c", dispatch.ProbeAbsent)
	r.registry.put(deliver.HostRecord{Name: "c", Draining: true})
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.seeks(deliver.Want{}, "b", dispatch.ProbeAbsent)
	r.registry.put(deliver.HostRecord{Name: "b", Draining: true})
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := r.seeks(deliver.Want{}, "", dispatch.ProbeNowhere); s.Detail != "a: other labels, b: draining, c: draining" {
		t.Errorf("%q", s.Detail)
	}
}

func TestSeek_WhatIsBeingStartedCounts(t *testing.T) {
	r := newFleetRig(t, nil, machine("a", nil), machine("b", nil))
	got := map[string]int{}
	for range 6 {
		host, _ := r.Seek(t.Context(), deliver.Want{WorkItem: item, Harness: "claude"})
		got[host.Name()]++
	}
	if got["a"] != 3 || got["b"] != 3 {
		t.Errorf("%v", got)
	}
}

func TestSeek_ASilentHostIsWaitedForWhereNoOtherWouldDo(t *testing.T) {
	gone := machine("b", func(d *tmuxd) { d.info.Labels = map[string]string{"gpu": "yes"} })
	r := newFleetRig(t, map[string]string{"gpu": "yes"}, machine("a", nil), gone)
	r.stops["b"]()
	until(t, "b is away", func() bool { return !r.Statuses()[1].Reached })
	r.seeks(deliver.Want{}, "", dispatch.ProbeUnreachable)
}

// A host that hangs holds whoever asks for seconds a few times, and then nobody, until it answers again.
func TestHost_ThatHangsIsLeftAlone(t *testing.T) {
	d := machine("a", nil)
	r := newFleetRig(t, nil, d)
	h, _ := r.on("a")
	probe := func() deliver.Sight {
		ctx, cancel := context.WithTimeout(t.Context(), patience+100*time.Millisecond)
		defer cancel()
		return h.Probe(ctx, item, "")
	}
	d.set(func(d *tmuxd) { d.hang = true })
	for range tolerated {
		if s := probe(); s.Probe != dispatch.ProbeUnreachable {
			t.Fatalf("%+v", s)
		}
	}
	asked := r.asked("a")
	for range 20 {
		if s := probe(); s.Probe != dispatch.ProbeUnreachable || !strings.Contains(s.Detail, "is asked again in") {
			t.Fatalf("%+v", s)
		}
	}
	if n := r.asked("a"); n != asked {
		t.Errorf("it was asked %d times more", n-asked)
	}
	if s := r.Statuses()[0]; s.KeptAway.IsZero() {
		t.Errorf("%+v", s)
	}
	d.set(func(d *tmuxd) { d.hang = false })
	until(t, "it is asked again, by itself", func() bool { return r.Statuses()[0].KeptAway.IsZero() })
	if s := probe(); s.Probe != dispatch.ProbeAbsent {
		t.Errorf("%+v", s)
	}
	if s := r.Statuses()[0]; !s.KeptAway.IsZero() {
		t.Errorf("%+v", s)
	}
}

func TestHost_AnswersOthersWhileOneHangs(t *testing.T) {
	hung := machine("a", nil)
	r := newFleetRig(t, nil, hung, machine("b", nil))
	hung.set(func(d *tmuxd) { d.hang = true })
	h, _ := r.on("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan deliver.Sight, atOnce)
	for range atOnce {
		go func() { done <- h.Probe(ctx, item, "") }()
	}
	until(t, "all slots are taken", func() bool { return len(h.slots) == atOnce })
	if s := h.Probe(t.Context(), item, ""); s.Probe != dispatch.ProbeUnreachable || !strings.Contains(s.Detail, "calls are under way") {
		t.Errorf("%+v", s)
	}
	other, _ := r.On("b")
	if s := other.Probe(t.Context(), item, ""); s.Probe != dispatch.ProbeAbsent {
		t.Errorf("%+v", s)
	}
	cancel()
	for range atOnce {
		<-done
	}
}

func TestFleet_TakesUpWhatIsAddedAndLetsGoWhatIsForgotten(t *testing.T) {
	r := newFleetRig(t, nil, machine("a", nil))
	addr, stop := serve(t, machine("b", nil))
	t.Cleanup(stop)
	r.registry.put(deliver.HostRecord{Name: "b", Address: addr})
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "b is reached", func() bool { s := r.Statuses(); return len(s) == 2 && s[1].Reached && s[1].Added })
	b, ok := r.On("b")
	if !ok || b.Probe(t.Context(), item, "").Probe != dispatch.ProbeAbsent {
		t.Errorf("%v", ok)
	}
	r.registry.drop("b")
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.On("b"); ok || len(r.Statuses()) != 1 {
		t.Error("b is still there")
	}
	if s := b.Probe(t.Context(), item, ""); s.Probe != dispatch.ProbeUnreachable {
		t.Errorf("whoever has it still: %+v", s)
	}
}

func TestHost_ASecondTmuxdUnderOneNameIsRefused(t *testing.T) {
	first := machine("a", nil)
	addr, stop := serve(t, first)
	t.Cleanup(stop)
	kept := &registry{}
	open := func(addr string) *Host {
		h, err := Dial(Config{Name: "a", Address: addr, Tokens: &tokens{}, Registry: kept, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		return h
	}
	if s := open(addr).Probe(t.Context(), item, ""); s.Probe != dispatch.ProbeAbsent {
		t.Fatalf("%+v", s)
	}
	second := machine("a", func(d *tmuxd) { d.info.InstanceId = "another" })
	addr, stop = serve(t, second)
	t.Cleanup(stop)
	h := open(addr)
	if s := h.Probe(t.Context(), item, ""); s.Probe != dispatch.ProbeUnreachable || !strings.Contains(s.Detail, "another one") {
		t.Errorf("%+v", s)
	}
	if _, err := h.Spawn(t.Context(), deliver.SpawnOrder{}); err != nil || len(second.asked) != 0 {
		t.Errorf("%v, asked %v", err, second.asked)
	}
	kept.put(deliver.HostRecord{Name: "a"}) // an operator accepts it
	until(t, "it is taken", func() bool { return h.Probe(t.Context(), item, "").Probe == dispatch.ProbeAbsent })
}

func TestSpawn_IsPaced(t *testing.T) {
	d := machine("a", nil)
	d.err = fault.New(fault.Invalid, fault.ReasonUnknownHarness, "no")
	r := newFleetRig(t, nil, d)
	h, _ := r.on("a")
	got := map[string]int{}
	done := make(chan deliver.SpawnReport, 100)
	for i := range 100 {
		go func() {
			report, _ := h.Spawn(t.Context(), deliver.SpawnOrder{WorkItem: fmt.Sprint(i)})
			done <- report
		}()
	}
	for range 100 {
		if report := <-done; report.Spawn == dispatch.SpawnSilent {
			got[report.Detail]++
		}
	}
	// As many as start at once, and those of the time that each waits.
	if n := r.asked("a"); n < startsAtOnce || n > startsAtOnce+4*startsPerSecond || len(got) != 1 {
		t.Errorf("%d were let through, %v", n, got)
	}
}
