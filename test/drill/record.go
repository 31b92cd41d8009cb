package drill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

// conversation is what an agent recorded of one conversation.
type conversation struct {
	id, host, target string
	lines            []agenttest.Line
	approved         []string
}

// conversations reads what the agents of all hosts recorded.
func conversations(f *fleet) (out []conversation, err error) {
	for _, h := range f.hosts {
		home := filepath.Join(h.dir, "tmuxd", "harness", "fakeagent")
		files, err := filepath.Glob(filepath.Join(h.kept, "sessions", "*.jsonl"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			c := conversation{id: strings.TrimSuffix(filepath.Base(file), ".jsonl"), host: h.name}
			record := agenttest.Conversation{Home: home, Session: c.id}
			if c.lines, err = record.Lines(); err != nil {
				return nil, err
			}
			if c.approved, err = record.Approvals(); err != nil {
				return nil, err
			}
			for _, l := range c.lines {
				if l.CWD != "" {
					c.target = filepath.Base(l.CWD)
				}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// refusals reads which agents of all hosts ended because there was no conversation to resume.
func refusals(f *fleet) (map[life]bool, error) {
	out := map[life]bool{}
	for _, h := range f.hosts {
		data, err := os.ReadFile(filepath.Join(h.kept, "sessions", "refused"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			var l life
			if _, err := fmt.Sscan(line, &l.pid, &l.conversation); err != nil {
				return nil, err
			}
			out[l] = true
		}
	}
	return out, nil
}

// row is an event as the ledger has it, beside the delivery as the dispatcher has it.
type row struct {
	DeliveryID, WorkItem, Kind, State, Reason, Detail, Text, Excerpt, TraceID string
	Tries                                                                     int
	// Known is just before it could be read by everybody, and Claimed when the claim began by which a poller first had it; both by the database's clock,
	// zero if never.
	Known, Claimed time.Time
	// The dispatcher's; Outcome is empty where it was never asked.
	Outcome, OutcomeReason, Host, Conversation string
	Asked                                      int
}

// waits reports whether the event has not ended.
func (r row) waits() bool { return r.State == "pending" || r.State == "leased" || r.State == "held" }

// rows reads the product's tables.
func rows(ctx context.Context, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) ([]row, error) {
	found, err := db.Query(ctx, `select e.delivery_id, e.work_item, e.kind, e.state, e.reason, e.detail, e.text, e.excerpt, e.trace_id, e.tries,
		coalesce(m.known, 'epoch') as known, coalesce(m.claimed, 'epoch') as claimed, coalesce(d.outcome, '') as outcome, coalesce(d.reason, '') as outcome_reason, coalesce(d.host, '') as host,
		coalesce(d.conversation_id, '') as conversation, coalesce(d.asked, 0) as asked
		from poller.events e left join dispatcher.deliveries d using (delivery_id)
		left join drill.moments m using (delivery_id) order by e.id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByName[row])
}
