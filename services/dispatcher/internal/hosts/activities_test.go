package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// kept is what was stored.
type kept struct {
	mu    sync.Mutex
	calls []string
	// fails is how many of the next calls fail.
	fails int
}

func (k *kept) KeepActivities(_ context.Context, host string, told []deliver.Told, whole bool) error {
	var rows []string
	for _, t := range told {
		rows = append(rows, fmt.Sprintf("%s %s %s", t.WorkItem, t.Stamp, t.Activity))
	}
	slices.Sort(rows)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails > 0 {
		k.fails--
		return errors.New("the database is away")
	}
	k.calls = append(k.calls, fmt.Sprintf("%s whole=%v: %s", host, whole, strings.Join(rows, ", ")))
	return nil
}

func (k *kept) stored() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.calls)
}

func does(item, stamp string, activity tmuxdv1.Activity) *tmuxdv1.WatchSessionsResponse {
	out := told(item, tmuxdv1.State_STATE_LIVE, stamp)
	out.GetSession().Activity, out.GetSession().ActivitySince = activity, timestamppb.New(time.Unix(5, 0))
	return out
}

func TestFollow_StoresWhatAgentsDoTogetherAndTriesAgain(t *testing.T) {
	caughtUp := &tmuxdv1.WatchSessionsResponse{Step: &tmuxdv1.WatchSessionsResponse_CaughtUp{CaughtUp: &tmuxdv1.CaughtUp{}}}
	idle, working := tmuxdv1.Activity_ACTIVITY_IDLE, tmuxdv1.Activity_ACTIVITY_WORKING
	d := newTmuxd()
	d.stop = make(chan struct{})
	d.steps = []*tmuxdv1.WatchSessionsResponse{does("a", "1", idle), does("b", "2", working), told("c", tmuxdv1.State_STATE_DEAD, "3"), caughtUp,
		does("a", "1", working), does("a", "1", idle), does("a", "1", tmuxdv1.Activity_ACTIVITY_NEEDS_HUMAN)}
	h, k := reach(t, d), &kept{fails: 1}
	h.config.Activities = k
	if now, until := h.Followed(); now || !until.IsZero() {
		t.Errorf("before it was reached it is followed: %v, %v", now, until)
	}
	followed(t, h)
	until(t, "it is stored", func() bool { return len(k.stored()) > 0 })
	if got := k.stored(); len(got) != 1 || got[0] != "a whole=true: a 1 needs_human, b 2 working, c 3 " {
		t.Errorf("%q", got)
	}
	if now, _ := h.Followed(); !now {
		t.Error("it is not followed")
	}
	// The stream breaks, and its next beginning has everything again.
	broke, stop := time.Now(), d.stop
	d.set(func(d *tmuxd) {
		d.steps, d.stop = []*tmuxdv1.WatchSessionsResponse{does("b", "2", idle), caughtUp}, make(chan struct{})
	})
	close(stop)
	until(t, "it is stored again", func() bool { return len(k.stored()) > 1 })
	if got := k.stored()[1]; got != "a whole=true: b 2 idle" {
		t.Errorf("%q", got)
	}
	if _, last := h.Followed(); last.Before(broke) {
		t.Errorf("it was followed until %v", last)
	}
}
