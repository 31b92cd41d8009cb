package hosts

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// ListSessions gives what the machine has, one a page.
func (d *tmuxd) ListSessions(ctx context.Context, r *tmuxdv1.ListSessionsRequest) (*tmuxdv1.ListSessionsResponse, error) {
	if err := d.answer(ctx, r); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	if token := r.GetPageToken(); token != "" {
		if _, err := fmt.Sscan(token, &n); err != nil {
			return nil, err
		}
	}
	out := &tmuxdv1.ListSessionsResponse{}
	if n < len(d.list) {
		out.Sessions = d.list[n : n+1]
	}
	if n+1 < len(d.list) {
		out.NextPageToken = fmt.Sprint(n + 1)
	}
	return out, nil
}

func TestListed_IsWhatAllHostsThatAnswerHave(t *testing.T) {
	lists := func(items ...string) func(*tmuxd) {
		return func(d *tmuxd) {
			for i, item := range items {
				d.list = append(d.list, &tmuxdv1.SessionSummary{WorkItem: item, Target: fmt.Sprintf("t%d", i), State: tmuxdv1.State_STATE_LIVE,
					Incarnation: &tmuxdv1.Incarnation{Stamp: "s\n"}, ConversationId: "c"})
			}
		}
	}
	r := newFleetRig(t, nil, machine("a", lists("github:o/r#1", "", "github:o/r#2")), machine("b", lists("github:o/r#3")), machine("c", nil), machine("d", nil))
	r.stops["c"]()
	found, answered, silent := r.Listed(t.Context())
	var got []string
	for _, f := range found {
		got = append(got, f.Host+" "+f.WorkItem)
		if f.Probe != dispatch.ProbeLive || f.Stamp != "s" || f.ConversationID != "c" || f.Target == "" {
			t.Errorf("%+v", f)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a github:o/r#1", "a github:o/r#2", "b github:o/r#3"}) || !slices.Equal(answered, []string{"a", "b", "d"}) ||
		!slices.Equal(silent, []string{"c"}) {
		t.Errorf("%v, %v, %v", got, answered, silent)
	}
}
