package store

import (
	"testing"
	"time"

	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func TestRepositories_AreWhatTheLooksLeft(t *testing.T) {
	w := newWorld(t)
	begin := func() map[string]poll.RepositoryLook {
		t.Helper()
		look, err := w.BeginLook(t.Context(), "gh", "me", time.Minute, 0)
		must(t, err)
		return look.Repositories
	}
	end := func(ends ...poll.RepositoryEnd) {
		t.Helper()
		must(t, w.EndLook(t.Context(), "gh", "me", poll.LookEnd{Repositories: ends}))
	}
	equal(t, "at first", len(begin()), 0)
	end(poll.RepositoryEnd{Name: "Octo/Widget", Full: true, Quiet: 3}, poll.RepositoryEnd{Name: "octo/slow", Problem: "no\x00 such thing", Wait: time.Hour})
	known := begin()
	widget, slow := known["octo/widget"], known["octo/slow"]
	equal(t, "quiet", []int{widget.Quiet, slow.Quiet}, []int{3, 0})
	if widget.Since < 0 || widget.Since > time.Minute || widget.SinceFull < 0 || widget.Wait != 0 || slow.SinceFull >= 0 ||
		slow.Wait < 59*time.Minute || slow.Wait > time.Hour || slow.Problem != "no such thing" {
		t.Errorf("%+v, %+v", widget, slow)
	}
	states, err := w.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	all := states["gh"].Repositories
	if len(all) != 2 || all[0].Name != "octo/slow" || all[0].LastError == "" || all[0].LastErrorAt.IsZero() || all[0].NextLook.IsZero() ||
		!all[0].LastSuccess.IsZero() || all[1].LastSuccess.IsZero() || !all[1].NextLook.IsZero() || all[1].LastFull.IsZero() {
		t.Errorf("%+v", all)
	}
	first := all[1]
	end(poll.RepositoryEnd{Name: "octo/widget", Problem: "gone"}, poll.RepositoryEnd{Name: "octo/slow"})
	states, err = w.SourceStates(t.Context(), []string{"gh"})
	must(t, err)
	all = states["gh"].Repositories
	equal(t, "the last success and the last full read stay", []bool{all[1].LastSuccess.Equal(first.LastSuccess), all[1].LastFull.Equal(first.LastFull)},
		[]bool{true, true})
	equal(t, "problems", []string{all[0].LastError, all[1].LastError}, []string{"", "gone"})
	// Who lost the lease records nothing.
	begin()
	w.sql(t, `update poller.sources set lease_holder = 'somebody else'`)
	end(poll.RepositoryEnd{Name: "octo/widget", Quiet: 9})
	w.sql(t, `update poller.sources set lease_until = now() - interval '1 second'`)
	equal(t, "of a lease that was lost", begin()["octo/widget"].Quiet, 0)
}
