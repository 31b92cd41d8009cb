package poll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/obs"
)

// AsCommand returns an event of somebody who may steer as the order to muxpost itself that its text is, or false when it is none. An order is
// settled at once and never delivered; the store has it carried out, once, unless it came about by an edit.
func AsCommand(e Event, body string) (Event, bool) {
	c, ok := ledger.ParseCommand(body)
	if !ok {
		return e, false
	}
	e.Command = c.String()
	e.State, e.Reason, e.Detail = ledger.Settled, ledger.ReasonCommand, "an order to muxpost: "+e.Command
	e.Text, e.EditedText, e.Excerpt = "", "", ""
	return e, true
}

// Agent is how the session of an item stands, in words that anybody may read: no path, no screen.
type Agent struct {
	// State is live, dead, absent or unknown; empty where the item has no session. Activity is what a living agent does.
	State, Activity string
	Host, Harness   string
	// Ending is true while an order to end it waits for its host.
	Ending bool
	// Paused says that the item's events, or all, are held back; PausedBy who said so.
	Paused   bool
	PausedBy string
}

// Agents is what an order needs of the dispatcher. Its errors are faults.
type Agents interface {
	// Pause holds the events of an item back, and reports whether they were already.
	Pause(ctx context.Context, workItem, who, reason string) (existed bool, err error)
	// Unpause ends that, and reports whether there was anything to end.
	Unpause(ctx context.Context, workItem, who string) (ended bool, err error)
	// Stop ends the agent of an item: already says that none lived, waits that its host is away and the order stands.
	Stop(ctx context.Context, workItem, who, reason string) (already, waits bool, err error)
	// Agent returns how the session of an item stands.
	Agent(ctx context.Context, workItem string) (Agent, error)
	// Clean removes the working tree of an item; kept says why it stays, and is empty when it is gone.
	Clean(ctx context.Context, workItem, who string) (kept string, err error)
	// Team begins the run of the team that is configured for an item, and returns how many tasks it has. The same order again returns the same run.
	Team(ctx context.Context, workItem, who, order string) (run string, tasks int, err error)
}

// Commander carries out orders in comments. Each of them may be carried out again and then changes nothing more.
type Commander struct {
	ledger  Ended
	retrier *Retrier
	agents  Agents
	log     *slog.Logger
}

// NewCommander returns a commander.
func NewCommander(l Ended, r *Retrier, a Agents, log *slog.Logger) *Commander {
	return &Commander{ledger: l, retrier: r, agents: a, log: log}
}

// The reactions that say whether an order was carried out.
const (
	done    = "+1"
	refused = "confused"
)

// commandRows is how many events of an item an order looks at.
const commandRows = 500

// Command carries out what somebody who may steer wrote about a work item, in the event id, and returns what it is answered with: a comment, or where that is
// empty a reaction. An error means that it is not known what came of it, or that nobody answered: it is asked again. A refusal is an answer.
func (c *Commander) Command(ctx context.Context, id, workItem, login string, order ledger.Command) (text, reaction string, err error) {
	text, reaction, err = c.carry(ctx, id, workItem, login, order)
	switch kind := fault.KindOf(err); {
	case err == nil:
		return text, reaction, nil
	case kind == fault.Unavailable, kind == fault.Throttled, kind == fault.Internal, errors.Is(err, context.DeadlineExceeded):
		return "", "", err
	}
	c.log.InfoContext(ctx, "an order in a comment was refused", obs.KeyWorkItem, workItem, "order", order.Name(), obs.KeyError, err)
	return refusal(err), refused, nil
}

func (c *Commander) carry(ctx context.Context, id, workItem, login string, order ledger.Command) (text, reaction string, err error) {
	who, why := login+" (in a comment)", strings.Join(order.Args, " ")
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "")
	}
	switch order.Verb {
	case ledger.VerbPause:
		_, err = c.agents.Pause(ctx, workItem, who, why)
	case ledger.VerbResume:
		_, err = c.agents.Unpause(ctx, workItem, who)
	case ledger.VerbStop:
		var already, waits bool
		already, waits, err = c.agents.Stop(ctx, workItem, who, why)
		switch {
		case err == nil && waits:
			text = "**muxpost**: its host does not answer. The order stands, and the agent that is recorded now is ended once the host is there; " +
				"nothing is begun for the item until then. `muxpost stop --cancel " + workItem + "` takes it back."
		case err == nil && already:
			text = "**muxpost**: no agent of this lives."
		}
	case ledger.VerbRetry:
		text, err = c.retry(ctx, workItem, who, why)
	case ledger.VerbStatus:
		text, err = c.status(ctx, workItem)
	case ledger.VerbCleanup:
		var kept string
		if kept, err = c.agents.Clean(ctx, workItem, who); err == nil && kept != "" {
			text = "**muxpost** keeps its working tree: " + withoutPaths(kept) + "."
		}
	case ledger.VerbTeam:
		var run string
		var tasks int
		if run, tasks, err = c.agents.Team(ctx, workItem, who, id); err == nil {
			text = fmt.Sprintf("**muxpost** runs its team: %d tasks, and a verification. `muxpost team watch %s` follows it.", tasks, run)
		}
	default:
		text, reaction = Commands(order), refused
	}
	return text, cmp.Or(reaction, done), err
}

// Commands is the answer to an order that there is not.
func Commands(order ledger.Command) string {
	var b strings.Builder
	if order.Verb == "" {
		b.WriteString("**muxpost** takes these orders, as the first line of a comment:\n\n")
	} else {
		fmt.Fprintf(&b, "**muxpost** has no order `%s`. It takes these, as the first line of a comment:\n\n", order.Verb)
	}
	for _, v := range ledger.Verbs() {
		fmt.Fprintf(&b, "- `/muxpost %s`: %s\n", v.Verb, v.Does)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// retry has what gave up or was dropped of an item tried again. What may have been typed is left to a person who has looked.
func (c *Commander) retry(ctx context.Context, workItem, who, why string) (text string, err error) {
	rows, err := c.ledger.List(ctx, Filter{WorkItem: workItem, Limit: commandRows})
	if err != nil {
		return "", err
	}
	again, unconfirmed := 0, 0
	for _, row := range rows {
		switch {
		case row.State == ledger.Settled && row.Reason == ledger.ReasonUnconfirmed:
			unconfirmed++
			continue
		case row.State != ledger.GaveUp && row.State != ledger.Dropped, retriable(row) != nil:
			continue
		}
		out, err := c.retrier.Retry(ctx, Again{DeliveryID: row.DeliveryID, Who: who, Reason: why})
		if err != nil && fault.KindOf(err) != fault.Conflict {
			return "", err
		}
		if out.Again {
			again++
		}
	}
	switch {
	case unconfirmed > 0:
		text = fmt.Sprintf("**muxpost** tries %s again. Of %s nothing shows whether it arrived: look with `muxpost attach %s`, and then "+
			"`muxpost retry --type-again DELIVERY-ID` or `muxpost done DELIVERY-ID` (`muxpost attention` lists them).", events(again), events(unconfirmed), workItem)
	case again == 0:
		text = "**muxpost**: nothing of this gave up or was dropped, so there is nothing to try again."
	}
	return text, nil
}

func events(n int) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// status says how an item stands, in words that anybody may read.
func (c *Commander) status(ctx context.Context, workItem string) (string, error) {
	agent, err := c.agents.Agent(ctx, workItem)
	if err != nil {
		return "", err
	}
	rows, err := c.ledger.List(ctx, Filter{WorkItem: workItem, Limit: commandRows})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**muxpost** on `%s`\n\n- agent: ", workItem)
	switch {
	case agent.State == "":
		b.WriteString("none yet")
	case agent.Activity != "":
		b.WriteString(agent.State + ", " + agent.Activity)
	default:
		b.WriteString(agent.State)
	}
	if agent.Harness != "" {
		fmt.Fprintf(&b, " (`%s` on the host `%s`)", plainCode(agent.Harness), plainCode(agent.Host))
	}
	b.WriteByte('\n')
	if agent.Ending {
		b.WriteString("- an order to end it waits for its host\n")
	}
	if agent.Paused {
		b.WriteString("- paused")
		if agent.PausedBy != "" {
			fmt.Fprintf(&b, " by `%s`", plainCode(agent.PausedBy))
		}
		b.WriteString("\n")
	}
	b.WriteString("- events: " + tally(rows) + "\n")
	if head := first(rows); head != nil && head.Reason != "" {
		fmt.Fprintf(&b, "- the next one (`%s`) waits: `%s`\n", head.DeliveryID, head.Reason)
	}
	b.WriteString("- look: `muxpost attach " + workItem + "`")
	return b.String(), nil
}

// tally counts events by what has become of them, those first that a person might ask about.
func tally(rows []Entry) string {
	counts, unconfirmed := map[ledger.State]int{}, 0
	for _, row := range rows {
		counts[row.State]++
		if row.State == ledger.Settled && row.Reason == ledger.ReasonUnconfirmed {
			unconfirmed++
		}
	}
	var parts []string
	for _, s := range []ledger.State{ledger.Leased, ledger.Held, ledger.Pending, ledger.GaveUp, ledger.Dropped, ledger.Delivered} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], strings.ReplaceAll(s.String(), "_", " ")))
		}
	}
	if unconfirmed > 0 {
		parts = append(parts, fmt.Sprintf("%d unconfirmed", unconfirmed))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// first returns the event that an item waits for: the one that waits behind none. Nothing when none waits.
func first(rows []Entry) *Entry {
	for i, row := range rows {
		if row.State.Waits() && row.WaitsBehind == nil {
			return &rows[i]
		}
	}
	return nil
}

// refusal says why an order was not carried out, and what to do.
func refusal(err error) string {
	text := "**muxpost** did not do that."
	var f *fault.Error
	if errors.As(err, &f) {
		text = "**muxpost** did not do that: " + withoutPaths(f.Message) + "."
		if f.Remedy != "" {
			text += " What to do: " + withoutPaths(f.Remedy) + "."
		}
	}
	return text
}

var path = regexp.MustCompile(`(^|[\s"'(=:,])/[^\s"'),;]+`)

// withoutPaths takes the paths of a host out of what is said in public.
func withoutPaths(s string) string { return path.ReplaceAllString(line(s), "$1(a path of its host)") }

// plainCode is a word as it can stand between two backquotes.
func plainCode(s string) string { return strings.ReplaceAll(line(s), "`", "") }
