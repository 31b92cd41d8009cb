package host

import (
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

// fullTime is after how long a start may be asked for again that found no place.
const fullTime = 10 * time.Second

// Living returns how many agents live, those among them that are just being started, and how many may: zero is any number. It asks nobody: the
// end of an agent's process is heard of, whatever its tmux server knows of it, and a session that does not answer has its place as long as its
// agent lives.
func (h *Host) Living() (living, capacity int) {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.living(""), h.cfg.Capacity
}

// living counts the agents that live or are being started, that of one target excepted. The lock is held.
func (w *watcher) living(but string) (n int) {
	for target, t := range w.of {
		if target != but && !w.starting[target] && t.agent.life != (Life{}) {
			n++
		}
	}
	for target := range w.starting {
		if target != but {
			n++
		}
	}
	return n
}

// reserve takes a place for the agent of an item that is to be started, before anything is touched for it. taken is to be called when the start
// is over: then the agent has the place as long as it lives.
func (h *Host) reserve(item workitem.Ref) (taken func(), err error) {
	w, target := h.watcher, item.Target()
	w.mu.Lock()
	defer w.mu.Unlock()
	if living := w.living(target); h.cfg.Capacity > 0 && living >= h.cfg.Capacity {
		return nil, fault.Newf(fault.Throttled, fault.ReasonNoCapacity, "%d agents live on this host, as many as it may have, so none was started", living).
			WithRemedy("end one that nobody needs, or raise tmuxd.capacity; it is asked again by itself").WithRetryAfter(fullTime)
	}
	w.starting[target] = true
	return func() { h.started(item) }, nil
}

// started has the place of an item's agent go with its process, if that lives.
func (h *Host) started(item workitem.Ref) {
	m, known, err := h.Disk.Recall(item.Target())
	if err != nil {
		h.Logger.Warn("the memory of a session cannot be used", obs.KeyTarget, item.Target(), obs.KeyError, err)
	}
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.starting, item.Target())
	if h.Processes == nil || !known || m.Stamp == "" {
		return
	}
	t := w.of[m.Target]
	if t == nil {
		t = &watched{}
		w.of[m.Target] = t
	}
	t.item = item
	h.rewatch(t, m)
}
