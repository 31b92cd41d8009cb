package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

func TestEvents_TypesAndANumberChooseWhoIsAsked(t *testing.T) {
	for _, row := range []struct {
		name, line, want string
		dispatcher       bool
		err              fault.Kind
	}{
		{"types of the dispatcher", "events --type session.spawned,dispatch.queued", "session.spawned", true, 0},
		{"types of the poller", "events --type poll.rearmed", "poll.rearmed", false, 0},
		{"after a number", "events --after 4", "session.spawned", true, 0},
		{"a type of nobody", "events --type session.spwaned", "session.spawned", true, fault.Invalid},
		{"a number of the other", "events --type poll.rearmed --after 4", "none of them", true, fault.Invalid},
		{"a number below", "events --after -1", "negative", true, fault.Invalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			// The one that is not to be asked is away.
			d := newDesk(t)
			if row.dispatcher {
				d.serve(t, "d", func(s *rpc.Server) {
					dispatcherv1.RegisterDispatcherServiceServer(s, &fakeDispatcher{events: []*dispatcherv1.Event{
						{Sequence: 4, Type: "dispatch.queued", Time: at(time.Minute)}, {Sequence: 5, Type: "session.spawned", Time: at(time.Minute)},
					}})
				})
			} else {
				d.serve(t, "p", func(s *rpc.Server) {
					pollerv1.RegisterPollerServiceServer(s, &fakePoller{events: []*pollerv1.PollEvent{{Sequence: 1, Type: "poll.rearmed", Time: at(time.Minute)}}})
				})
			}
			err := d.run(t, strings.Fields(row.line)...)
			switch {
			case row.err != 0 && (!errors.Is(err, row.err) || !strings.Contains(err.Error(), row.want)):
				t.Errorf("%v", err)
			case row.err == 0 && (err != nil || !strings.Contains(d.out.String(), row.want)):
				t.Errorf("%v\n%s", err, d.out)
			}
		})
	}
}
