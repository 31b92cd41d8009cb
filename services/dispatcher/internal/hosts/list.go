package hosts

import (
	"context"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

const (
	// listTime bounds the list of one host, and listPage is how much of it is asked for at once.
	listTime = 5 * time.Second
	listPage = 1000
)

// Listed returns the sessions of work items that hosts have, as they saw them last, and the names of the hosts that answered and of those
// that did not. All are asked at once.
func (f *Fleet) Listed(ctx context.Context) (found []deliver.Found, answered, silent []string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, m := range f.all() {
		group.Go(func() {
			has, err := m.list(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.Name())
				return
			}
			found, answered = append(found, has...), append(answered, m.Name())
		})
	}
	group.Wait()
	slices.Sort(answered)
	slices.Sort(silent)
	return found, answered, silent
}

// list reads all sessions of the host that are of work items.
func (h *Host) list(ctx context.Context) (found []deliver.Found, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for token := ""; ; {
		end, err := h.begin(ctx)
		if err != nil {
			return nil, err
		}
		page, err := h.client.ListSessions(ctx, &tmuxdv1.ListSessionsRequest{PageSize: listPage, PageToken: token})
		if err = end(err); err != nil {
			return nil, err
		}
		for _, s := range page.GetSessions() {
			if s.GetWorkItem() == "" {
				continue // not ours
			}
			found = append(found, deliver.Found{
				WorkItem: plain(s.GetWorkItem()), Host: h.Name(), Target: plain(s.GetTarget()),
				Probe: dispatch.ProbeOf(stateOf(s.GetState()), flagsOf(s.GetFlags())), Stamp: plain(s.GetIncarnation().GetStamp()),
				Harness: plain(s.GetHarness()), ConversationID: plain(s.GetConversationId()), SocketPath: plain(s.GetSocketPath()),
				Detail: plain(s.GetDetail()),
			})
		}
		if token = page.GetNextPageToken(); token == "" {
			return found, nil
		}
	}
}
