package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

// Follow tells of each work item whose session changed on the host, until ctx ends, and hints.Any when the host came back. Nothing depends
// on it: what it misses is found by asking. It returns nil.
func (h *Host) Follow(ctx context.Context, tell func(workItem string)) error {
	rpc.Follow(ctx, h.config.Logger, func(ctx context.Context) error { return h.follow(ctx, tell) })
	return nil
}

// known is a session as the host told of it last.
type known struct {
	// looks is what it looked like: its state and its incarnation.
	looks string
	live  bool
	// idle is true while its agent waits for a message.
	idle bool
}

// follow reads one stream to its end. It begins with all sessions that there are.
func (h *Host) follow(ctx context.Context, tell func(workItem string)) error {
	told := map[string]bool{}
	defer h.unsure()
	stream, err := h.client.WatchSessions(ctx, &tmuxdv1.WatchSessionsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	keeper := h.keeper(ctx)
	defer keeper.stop()
	for {
		step, err := stream.Recv()
		if err != nil {
			return err
		}
		if _, err := h.greet(ctx); err != nil {
			return err // it may be another host than the one that is meant
		}
		switch s := step.GetStep().(type) {
		case *tmuxdv1.WatchSessionsResponse_Session:
			item := s.Session.GetWorkItem()
			if item == "" {
				continue
			}
			told[item] = true
			if h.heard(item, s.Session) {
				tell(item)
			}
			keeper.add(deliver.Told{WorkItem: item, Stamp: plain(s.Session.GetIncarnation().GetStamp()), Doing: doingOf(s.Session)})
		case *tmuxdv1.WatchSessionsResponse_CaughtUp:
			h.sure(told)
			keeper.begun()
			tell(hints.Any)
		case *tmuxdv1.WatchSessionsResponse_Missed:
			tell(hints.Any) // whatever changed meanwhile follows as it is now
		case *tmuxdv1.WatchSessionsResponse_MassDeath:
			h.config.Logger.LogAttrs(ctx, slog.LevelError, "many sessions of the host ended within moments", slog.String(obs.KeyHost, h.Name()),
				slog.Int(obs.KeyCount, int(s.MassDeath.GetSessions())))
		}
	}
}

// heard keeps what the host tells of a session, and reports whether it is another than when it was last told of: in its state or its
// incarnation, or because its agent waits for a message by now. What else may be told, such as its conversation, changes nothing for what waits.
func (h *Host) heard(item string, s *tmuxdv1.SessionSummary) bool {
	now := known{looks: fmt.Sprint(s.GetState(), s.GetFlags(), s.GetIncarnation().GetStamp()), live: s.GetState() == tmuxdv1.State_STATE_LIVE,
		idle: s.GetActivity() == tmuxdv1.Activity_ACTIVITY_IDLE}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := h.sessions[item]
	if s.GetState() == tmuxdv1.State_STATE_ABSENT {
		h.drop(item) // there may be any number of them over time
		return was
	}
	h.drop(item)
	h.sessions[item] = now
	h.count(item, now, 1)
	if now.live && !before.live && len(h.placed) > 0 {
		h.placed = h.placed[1:] // it counts by itself from now on
	}
	return now.looks != before.looks || now.idle && !before.idle
}

// sure says that the host has told of all its sessions.
func (h *Host) sure(told map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for item := range h.sessions {
		if !told[item] {
			h.drop(item)
		}
	}
	h.complete = true
}

// drop forgets a session. The lock is held.
func (h *Host) drop(item string) {
	h.count(item, h.sessions[item], -1)
	delete(h.sessions, item)
}

// count adds a session to the living ones, or takes it off. The lock is held.
func (h *Host) count(item string, s known, by int) {
	if !s.live {
		return
	}
	h.live += by
	repository := repositoryOf(item)
	if h.near[repository] += by; h.near[repository] == 0 {
		delete(h.near, repository)
	}
}

// repositoryOf is what the work items of one repository have in common.
func repositoryOf(item string) string {
	repository, _, _ := strings.Cut(item, "#")
	return repository
}

// unsure says that the host may have other sessions than it told of.
func (h *Host) unsure() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.complete {
		h.followed = time.Now()
	}
	h.complete = false
}

// mayHave says whether the host has told of a session of the item, and whether it may have one without having told.
func (h *Host) mayHave(item string) (has, may bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, has = h.sessions[item]
	return has, has || !h.complete
}
