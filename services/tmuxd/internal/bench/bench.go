package main

import (
	"context"
	"strings"
	"time"
)

// bench measures everything at one number of sessions.
type bench struct {
	host     *theHost
	baseline *baseline
	rounds   int
	sessions int
	report   *report
}

// text has 200 bytes, as a short comment does.
var text = strings.Repeat("please look at this\n", 10)

func (b *bench) step(ctx context.Context) error {
	h, base := b.host, b.baseline
	if err := h.grow(ctx, b.sessions); err != nil {
		return err
	}
	if err := base.grow(ctx, b.sessions); err != nil {
		return err
	}
	last := b.sessions - 1
	agent := min(agents, b.sessions)
	for _, m := range []struct {
		name         string
		rounds       int
		ours, theirs func(i int) error
	}{
		{"sessionstate", b.rounds, func(i int) error { _, err := h.state(ctx, i%b.sessions, 0); return err },
			func(i int) error { return base.state(ctx, i) }},
		{"sessionstate_cached", b.rounds, func(i int) error { _, err := h.state(ctx, i%b.sessions, time.Hour); return err },
			func(i int) error { return base.state(ctx, i) }},
		{"paste", b.rounds / 4, func(i int) error { return h.deliver(ctx, i%agent, text) },
			func(i int) error { return base.paste(ctx, i, text) }},
	} {
		if err := b.measure(m.name, m.rounds, m.ours, m.theirs); err != nil {
			return err
		}
	}
	if err := b.pasteList(ctx, last); err != nil {
		return err
	}
	if err := b.startAndEnd(ctx); err != nil {
		return err
	}
	b.weigh(ctx)
	return nil
}

// A turn of one way has turnCalls at least and lasts turnTime at least, before the other way has its turn: what a busy host is asked comes one upon
// another, and a way that is quick is not measured in the moments in which the machine turns to it.
const (
	turnCalls = 10
	turnTime  = 50 * time.Millisecond
)

// measure alternates between both ways, in turns. The first of each way is not counted: it opens connections.
func (b *bench) measure(name string, rounds int, ours, theirs func(i int) error) error {
	p := pair{name: name, sessions: b.sessions}
	for _, do := range []func(i int) error{ours, theirs} {
		if err := do(0); err != nil {
			return err
		}
	}
	for first := 0; first < rounds; first += turnCalls {
		for _, way := range []struct {
			do   func(i int) error
			into *[]time.Duration
		}{{ours, &p.ours}, {theirs, &p.baseline}} {
			for i, began := first, time.Now(); i < first+turnCalls || time.Since(began) < turnTime; i++ {
				d, err := timed(i, way.do)
				if err != nil {
					return err
				}
				*way.into = append(*way.into, d)
			}
		}
	}
	b.report.add(p)
	return nil
}

func timed(i int, do func(i int) error) (time.Duration, error) {
	start := time.Now()
	err := do(i)
	return time.Since(start), err
}

// pasteList is the list that puts a text into a pane, without the looks before and after it. With one session that session is an agent,
// whose cursor moves: then a sink is started for it.
func (b *bench) pasteList(ctx context.Context, last int) error {
	h := b.host
	if last < agents {
		for h.count <= agents {
			if err := h.spawn(ctx); err != nil {
				return err
			}
		}
		last = h.count - 1
	}
	target, g, err := h.aim(ctx, last)
	if err != nil {
		return err
	}
	return b.measure("paste_list", b.rounds, func(int) error { return h.list(ctx, target, g, text) },
		func(i int) error { return b.baseline.paste(ctx, i, text) })
}

// startAndEnd starts and ends further sessions.
func (b *bench) startAndEnd(ctx context.Context) error {
	h, base := b.host, b.baseline
	spawn, end := pair{name: "spawn", sessions: b.sessions}, pair{name: "terminate", sessions: b.sessions}
	for range max(b.rounds/10, 5) {
		for _, m := range []struct {
			do   func(context.Context) error
			into *[]time.Duration
		}{{h.spawn, &spawn.ours}, {base.spawn, &spawn.baseline}, {h.terminate, &end.ours}, {base.kill, &end.baseline}} {
			d, err := timed(0, func(int) error { return m.do(ctx) })
			if err != nil {
				return err
			}
			*m.into = append(*m.into, d)
		}
		if err := h.drop(ctx); err != nil {
			return err
		}
	}
	b.report.add(spawn)
	b.report.add(end)
	return nil
}

// idleTime is how long tmuxd is watched while nobody asks it anything.
const idleTime = 10 * time.Second

func (b *bench) weigh(ctx context.Context) {
	h := b.host
	pid := h.cmd.Process.Pid
	c := cost{sessions: b.sessions}
	for i := range h.stamps {
		if st, err := h.state(ctx, i, time.Hour); err == nil {
			c.wrappers = c.wrappers.plus(memory(int(st.GetIncarnation().GetPanePid())))
			c.server = c.server.plus(memory(int(st.GetIncarnation().GetServerPid())))
		}
	}
	before := cpu(pid)
	select {
	case <-ctx.Done():
	case <-time.After(idleTime):
	}
	c.idle = float64(cpu(pid)-before) / float64(idleTime)
	c.tmuxd = memory(pid)
	b.report.costs = append(b.report.costs, c)
}
