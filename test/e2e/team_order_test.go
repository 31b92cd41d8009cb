package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/test/stack"
)

// A poller that dies between beginning a run and telling so begins no other when it comes back, also where the run is over by then, and tells of
// the one that it began.
func TestTeamOrder_ThePollerDiesBeforeItTellsOfTheRunThatItBegan(t *testing.T) {
	t.Parallel()
	c := crashStack(t, 3*time.Minute, func(w *world) {
		work, file := filepath.Join(w.Dir, "work"), filepath.Join(w.Dir, "team.yaml")
		if err := os.MkdirAll(work, 0o755); err != nil {
			t.Fatal(err)
		}
		team := fmt.Sprintf("harness: sh\ndirectory: %s\nmax_fix_loops: 0\nverify: {check: always}\ntasks: [{id: a, prompt: 'echo {number} >> ran'}]\n", work)
		if err := os.WriteFile(file, []byte(team), 0o600); err != nil {
			t.Fatal(err)
		}
		w.configure("  host: laptop\n", "  host: laptop\n  harnesses:\n    sh: {binary: /bin/sh, task: ['-s']}\n    always: {binary: /bin/true, task: [--], check: true}\n")
		w.configure("  harness: fakeagent\n", "  harness: fakeagent\n  teams: [{match: "+stack.Owner+"/*, file: "+file+"}]\n")
		w.configure("      interval: 1s\n", "      interval: 1s\n      notices: true\n")
	})
	number := c.open()
	c.ended(number, 1)
	marker := c.arm("poller.order.carried=kill")
	c.say(number, "/muxpost team")
	c.died(marker, "poller")
	runs := func() (ids []string, phase string) {
		rows, err := c.pool.Query(c.ctx, "select run_id, phase from dispatcher.team_runs order by created_at")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id, &phase); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids, phase
	}
	c.soon("the run is over", func() bool { _, phase := runs(); return phase == "complete" })
	first, _ := runs()
	// As time would: its lease ends, and the round in which it died is made again.
	for _, statement := range []string{"update poller.outbox set lease_until = clock_timestamp() where lease_until is not null",
		"delete from river.river_job where kind = 'poller.notify' and state = 'running'"} {
		if _, err := c.pool.Exec(c.ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	c.up()
	answer := ""
	c.soon("it is told", func() bool { answer = c.comments(number); return strings.Contains(answer, "runs its team") })
	if all, _ := runs(); len(all) != 1 || len(first) != 1 || !strings.Contains(answer, "muxpost team watch "+first[0]) || strings.Count(answer, "runs its team") != 1 {
		t.Errorf("the runs are %v after %v, and what was told is\n%s", all, first, answer)
	}
	if data, err := os.ReadFile(filepath.Join(c.Dir, "work", "ran")); err != nil || string(data) != fmt.Sprintln(number) {
		t.Errorf("it ran %q, %v", data, err)
	}
}

// comments are what stands on a ticket, as it is read upstream.
func (c *crashing) comments(number int) string {
	c.t.Helper()
	url := fmt.Sprintf("%s/repos/%s/%s/issues/%d/comments", c.GitHub, stack.Owner, stack.Repo, number)
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-"+stack.Author)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		c.t.Fatalf("%v %v: %s", err, res.Status, data)
	}
	return string(data)
}
