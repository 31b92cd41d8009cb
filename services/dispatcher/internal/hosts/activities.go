package hosts

import (
	"context"
	"time"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	// keepEvery is how often at most it is stored what agents do: as many as changed meanwhile go in one statement.
	keepEvery = time.Second
	// keepTime bounds one statement.
	keepTime = 10 * time.Second
)

// keeper stores what is told of what agents do, in the background: what is told is read on meanwhile.
type keeper struct {
	told  chan deliver.Told
	whole chan bool
	ended chan bool
}

// keeper begins to keep what one stream tells. It is to be stopped.
func (h *Host) keeper(ctx context.Context) *keeper {
	k := &keeper{told: make(chan deliver.Told), whole: make(chan bool), ended: make(chan bool)}
	go func() {
		defer close(k.ended)
		h.keep(ctx, k)
	}()
	return k
}

func (k *keeper) add(t deliver.Told) { k.told <- t }

// begun says that everything was told that there is.
func (k *keeper) begun() { k.whole <- true }

func (k *keeper) stop() {
	close(k.told)
	<-k.ended
}

// keep stores at the beginning everything that there is, and then, once in a while, what has changed. What could not be stored is tried again with
// what comes next.
func (h *Host) keep(ctx context.Context, k *keeper) {
	changed, whole := map[string]deliver.Told{}, false
	timer := time.NewTimer(keepEvery)
	defer timer.Stop()
	waits := true // for the timer
	begun := false
	for {
		var due <-chan time.Time
		if waits {
			due = timer.C
		}
		select {
		case t, more := <-k.told:
			if !more {
				return // what is told of it next begins with everything again
			}
			changed[t.WorkItem] = t
		case <-k.whole:
			begun, whole = true, true
		case <-due:
			waits = false
		}
		if waits || !begun || len(changed) == 0 && !whole {
			continue
		}
		timer.Reset(keepEvery)
		if waits = true; h.config.Activities == nil {
			clear(changed)
			whole = false
			continue
		}
		told := make([]deliver.Told, 0, len(changed))
		for _, t := range changed {
			told = append(told, t)
		}
		storing, cancel := context.WithTimeout(ctx, keepTime)
		err := h.config.Activities.KeepActivities(storing, h.Name(), told, whole)
		if cancel(); err != nil {
			h.config.Logger.DebugContext(ctx, "what agents do could not be stored, and is tried again", obs.KeyHost, h.Name(), obs.KeyError, err)
			continue
		}
		clear(changed)
		whole = false
	}
}

// Followed reports whether every change of the host is heard of now, and until when it was last; zero when that is not known.
func (h *Host) Followed() (now bool, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.complete, h.followed
}
