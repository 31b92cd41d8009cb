package rearm

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/ledger"
)

// fakeLedger re-arms everything, and notes what it was asked about.
type fakeLedger struct {
	asked [][]string
	err   error
}

func (l *fakeLedger) Rearm(_ context.Context, items []string, _ ledger.Version) ([]Done, error) {
	l.asked = append(l.asked, items)
	var done []Done
	for _, item := range items {
		done = append(done, Done{WorkItem: item, Source: "gh", Comments: []string{"d1"}, RecordedVersions: []string{"poller v1"}})
	}
	return done, l.err
}

// running is the version that runs.
type running ledger.Version

func (v *running) Version(context.Context) ledger.Version { return ledger.Version(*v) }

func TestSee_AnItemIsAskedAboutOnceUnderEachVersionUnlessThatFailed(t *testing.T) {
	var log bytes.Buffer
	l := &fakeLedger{err: errors.New("away")}
	v := &running{Name: "v1"}
	r := New(l, v, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if _, err := r.See(t.Context(), []string{"a", "b"}); err == nil {
		t.Error("the failure is not told")
	}
	l.err = nil
	for _, items := range [][]string{{"a", "b"}, {"a"}, {"b", "c"}, {}, nil} {
		if _, err := r.See(t.Context(), items); err != nil {
			t.Error(err)
		}
	}
	v.Name = "v2" // the dispatcher was upgraded
	if _, err := r.See(t.Context(), []string{"a"}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"a", "b"}, {"c"}, {"a"}}, l.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "event=poll.rearmed"); n != 4 || !strings.Contains(log.String(), "recorded_versions") {
		t.Errorf("%d records: %s", n, log.String())
	}
}
