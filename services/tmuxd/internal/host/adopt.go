package host

import (
	"cmp"
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// Adopt learns from the disk which sessions there are, and watches their processes. It asks nothing of tmux: a session whose server and agent
// live is taken for live until somebody looks. It is called once, before anybody is answered.
func (h *Host) Adopt(ctx context.Context) error {
	targets, err := h.Disk.Targets()
	if err != nil {
		return storage(err)
	}
	for _, target := range targets {
		h.adopt(target)
	}
	h.Logger.InfoContext(ctx, "sessions were adopted", obs.KeyCount, len(targets))
	return nil
}

// adopt takes up a session that the disk remembers.
func (h *Host) adopt(target string) {
	s := sight{target: target}
	var err error
	if s.memory, s.known, err = h.Disk.Recall(target); err == nil && s.known {
		s.item, err = workitem.Parse(s.memory.WorkItem)
	}
	switch {
	case err != nil || s.known && s.item.Target() != target:
		h.Logger.Warn("the memory of a session cannot be used", obs.KeyTarget, target, obs.KeyError, err)
		h.tell(Summary{Status: Status{Target: target, Detail: "its memory on this host's disk cannot be read"}, SeenAt: h.Now()})
		return
	case s.memory.Stamp == "":
		return // a fencing token is all that is remembered
	}
	m := h.snapshot.begin(target)
	h.track(&s)
	s.why = "it was not looked at since tmuxd started"
	if h.lives(target) {
		s.state, s.why = session.Live, "its tmux server and its agent's process live; tmux was not asked since tmuxd started"
	}
	h.tell(s.summary(m.began))
}

// lives reports whether both processes of a session are watched.
func (h *Host) lives(target string) bool {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.of[target]
	return t != nil && t.whole(session.Live)
}

// Watch follows every session until ctx ends: it looks at those to which something happens, and raises the alarm when many end at once.
func (h *Host) Watch(ctx context.Context) error {
	w := h.watcher
	w.mu.Lock()
	w.run = ctx
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.run = nil
		w.mu.Unlock()
		w.looking.Wait()
	}()
	sweep := time.NewTicker(cmp.Or(h.cfg.Sweep, sweepTime))
	defer sweep.Stop()
	judge := time.NewTimer(0)
	defer judge.Stop()
	h.NotedAny()
	h.sweep(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			h.sweep(ctx)
		case <-w.died:
			w.mu.Lock()
			due := w.burst.due()
			w.mu.Unlock()
			judge.Reset(due.Sub(h.Now()))
		case <-judge.C:
			h.judge(ctx)
		}
	}
}

// sweep looks at what cannot be waited for: sessions that did not answer, and live ones of which not every process is watched. The others cost
// it nothing but a glance at what is known.
func (h *Host) sweep(ctx context.Context) {
	h.wonder(ctx)
	for _, target := range h.feed.among(session.Unknown) {
		h.attend(target)
	}
	for _, target := range h.feed.among(session.Live) {
		if !h.lives(target) {
			h.attend(target)
		}
	}
}

// judge raises the alarm when many sessions ended within moments.
func (h *Host) judge(ctx context.Context) {
	w, live := h.watcher, h.Counts().Live
	w.mu.Lock()
	deaths := w.burst.judge(live)
	w.mu.Unlock()
	if deaths == nil {
		return
	}
	d := massDeath(deaths)
	h.Logger.ErrorContext(ctx, "many sessions ended within moments", obs.KeyCount, d.Sessions, obs.KeyDuration, d.Within,
		obs.KeyReason, common(deaths), obs.KeyTarget, deaths[0].target)
	h.Metrics.MassDeaths.Add(ctx, 1)
	h.feed.raise(d)
}
