package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

// TestHooks_ALimitIsKeptByWhoeverHearsOfIt is R68: GitHub makes a limit longer for those who go on.
func TestHooks_ALimitIsKeptByWhoeverHearsOfIt(t *testing.T) {
	w, r, n := hooked(t)
	r.handled(t)
	const pulls = "/repos/acme/widgets/pulls"
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindStatus, Status: 403, Path: pulls, Times: -1,
		Body: `{"message":"You have exceeded a secondary rate limit."}`}))
	w.ResetCounts()
	title := "Bluer paint"
	must(t, w.EditIssue("acme", "widgets", n, "alice", fakegithub.IssueEdit{Title: &title})) // what a pull request is now has to be asked
	p := w.open(t)
	limit := func() time.Duration {
		states, err := p.store.SourceStates(t.Context(), []string{"gh"})
		must(t, err)
		return max(0, time.Until(states["gh"].NotBefore))
	}
	eventually(t, "the limit is the source's", func() bool { return limit() > 0 })
	if left := limit(); left < 50*time.Second || left > 61*time.Second {
		t.Errorf("it is left alone for %v", left)
	}
	// Another message that would have to ask waits, and one that need not is delivered.
	w.pull(t, fakegithub.Issue{Body: "about nothing"})
	w.comment(t, 1, "alice", "meanwhile")
	eventually(t, "the comment arrives", func() bool { return strings.Contains(strings.Join(w.askedTexts(), "\n"), "meanwhile") })
	eventually(t, "the other one waits for the limit", func() bool {
		return value[int](t, p.pool, `select count(*) from poller.hooks where state = 'waiting' and tries > 0 and next_look > now() + interval '40 seconds'`) >= 2
	})
	if result := tryLook(t, p); !errors.Is(result.Err, fault.Throttled) {
		t.Errorf("a look: %v", result.Err)
	}
	asked := 0
	for path, count := range w.Counts() {
		if strings.Contains(path, pulls) {
			asked += count.Requests
		}
	}
	equal(t, "requests while it lasts", asked, 1)
	// Once it is over, nothing is lost.
	w.ClearFaults()
	sql(t, p, `update poller.sources set not_before = now()`)
	sql(t, p, `update poller.hooks set next_look = now() where state = 'waiting'`)
	r.handled(t)
}
