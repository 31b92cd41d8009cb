package notify

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/failpoint"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

const (
	// LeaseTime is how long one process may be at a post.
	LeaseTime = time.Minute
	// postTime bounds the work at a post. It ends well within the lease: a write that was sent late is seen by whoever looks next.
	postTime = 40 * time.Second
	// endTime bounds what is written down after it.
	endTime = 5 * time.Second
	// kindLabelled is the kind of an order by a label, as the ledger names it.
	kindLabelled = "labelled"
	// leastLimit is how long a source is left alone that named a limit and no time.
	leastLimit = time.Minute
)

// Post is something to be written upstream that is ours to write, until its lease ends.
type Post struct {
	ID    int64
	Lease string
	What  ledger.Post

	DeliveryID string
	WorkItem   string
	Source     string
	// Kind is the event's, URL its link, State its state now, and Tries how many it spent.
	Kind  string
	URL   string
	State ledger.State
	Tries int
	// Repository, as owner/repo, and Number are where the ticket is today.
	Repository string
	Number     uint64
	// Comment is the provider's number of the comment that the event is about; 0 when it is about the item itself.
	Comment int64
	// Command is the order that a PostCommand carries out, and Author who gave it.
	Command string
	Author  string
	Words   Words
	Posting ledger.Posting
	// Now is the database's time.
	Now time.Time
}

// Words are what a post needs beyond its event.
type Words struct {
	// Host and Harness are of a NoticeStarted.
	Host, Harness string
	// Text is a PostAnswer's comment; where it has none, Reaction is its reaction.
	Text, Reaction string
}

// End is how the work at a post ended.
type End struct {
	// Answer is what an order is answered with; nothing for any other post.
	Answer Words
	// State is one of the names below.
	State State
	// Problem is for a person; empty when there was none.
	Problem string
	// Posting replaces the post's own, and Wait is how long it waits, for one that is tried again.
	Posting ledger.Posting
	Wait    time.Duration
	// Limit is how long nothing may be written to the source; zero when it may.
	Limit time.Duration
}

// State is the state of a post.
type State string

// The states, as they are stored.
const (
	Waiting State = "waiting"
	Done    State = "done"
	// Skipped was no longer true when its turn came.
	Skipped State = "skipped"
	Failed  State = "failed"
)

// Outbox keeps posts. Its errors are faults.
type Outbox interface {
	// ClaimPost leases a post of one of the sources that is due, or returns false.
	ClaimPost(ctx context.Context, sources []string, lease time.Duration) (Post, bool, error)
	// EndPost writes down how the work at a post ended. A lease that was lost changes nothing.
	EndPost(ctx context.Context, p Post, end End) error
}

// Tickets are the tickets of a source. Their errors are faults: Throttled for a limit, Unavailable for silence, and others for
// refusals.
type Tickets interface {
	// Noticed reports whether a comment of the ticket has a mark.
	Noticed(ctx context.Context, repository string, number uint64, mark string) (bool, error)
	// Notice writes a comment.
	Notice(ctx context.Context, repository string, number uint64, text string) error
	// React puts a reaction on what an event of a kind is about: a comment, or the ticket itself for comment 0. Doing so again changes
	// nothing.
	React(ctx context.Context, repository string, number uint64, kind string, comment int64, content string) error
}

// Commands carries out orders to muxpost itself. Doing so again changes nothing. Its errors are faults: one that is no refusal is tried again.
type Commands interface {
	// Command carries out what somebody who may steer ordered about a work item, and returns what it is answered with: a comment, or where that is
	// empty a reaction. id names the order.
	Command(ctx context.Context, id, workItem, who string, c ledger.Command) (text, reaction string, err error)
}

// Notifier carries out posts. It is safe for use by many goroutines.
type Notifier struct {
	outbox  Outbox
	tickets map[string]Tickets
	sources []string
	orders  Commands
	log     *slog.Logger
	metrics *metrics.Metrics
}

// New returns a notifier for the sources whose tickets may be written to, and for the orders that stand at any source; m counts what became of
// posts, and may be nil.
func New(outbox Outbox, tickets map[string]Tickets, orders Commands, log *slog.Logger, m *metrics.Metrics) *Notifier {
	if m == nil {
		m = metrics.New(nil)
	}
	n := &Notifier{outbox: outbox, tickets: tickets, orders: orders, log: log, metrics: m, sources: []string{}}
	for name := range tickets {
		n.sources = append(n.sources, name)
	}
	return n
}

// Carry carries out what is due, one post after another, until nothing is or ctx ends. An error is the outbox's.
func (n *Notifier) Carry(ctx context.Context) error {
	for ctx.Err() == nil {
		p, ok, err := n.outbox.ClaimPost(ctx, n.sources, LeaseTime)
		if err != nil || !ok {
			return err
		}
		answer, err := n.carry(ctx, p)
		end := n.end(p, answer, err)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		err = n.outbox.EndPost(ending, p, end)
		cancel()
		if err != nil {
			return err
		}
		n.report(ctx, p, end)
	}
	return nil
}

// errSkipped means that there is nothing to tell any more.
var errSkipped = errors.New("no longer true")

func (n *Notifier) carry(ctx context.Context, p Post) (Words, error) {
	if !p.stands() {
		return Words{}, errSkipped
	}
	if p.Now.Sub(p.Posting.CreatedAt) >= p.Posting.Limit() {
		return Words{}, errOld
	}
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	if p.What == ledger.PostCommand {
		command, _ := ledger.ParseCommand(p.Command)
		text, reaction, err := n.orders.Command(ctx, p.DeliveryID, p.WorkItem, p.orderedBy(), command)
		failpoint.Hit("poller.order.carried")
		return Words{Text: text, Reaction: reaction}, err
	}
	tickets := n.tickets[p.Source]
	content, reacts := p.What.Reaction()
	if p.What == ledger.PostAnswer && p.Words.Text == "" {
		content, reacts = p.Words.Reaction, true
	}
	if reacts {
		return Words{}, tickets.React(ctx, p.Repository, p.Number, p.Kind, p.Comment, content)
	}
	there, err := tickets.Noticed(ctx, p.Repository, p.Number, mark(p))
	if err != nil || there {
		return Words{}, err
	}
	return Words{}, tickets.Notice(ctx, p.Repository, p.Number, text(p))
}

// orderedBy says who gave an order, and how.
func (p Post) orderedBy() string {
	if p.Kind == kindLabelled {
		return p.Author + " (by a label)"
	}
	return p.Author + " (in a comment)"
}

// errOld means that it is too late for the post.
var errOld = fault.New(fault.Invalid, "", "nothing could be written to the ticket in time, and now it is no news any more")

// stands reports whether what the post tells still holds.
func (p Post) stands() bool {
	switch p.What {
	case ledger.NoticeGaveUp:
		return p.State == ledger.GaveUp
	case ledger.NoticeUnconfirmed:
		return p.State == ledger.Settled
	case ledger.NoticeHeld:
		return p.State == ledger.Held || p.State == ledger.Leased
	case ledger.ReactionEyes:
		return p.State.Waits()
	case ledger.ReactionHooray:
		return p.State == ledger.Delivered
	case ledger.ReactionConfused:
		return p.State == ledger.GaveUp || p.State == ledger.Dropped
	case ledger.NoticeStarted, ledger.PostCommand, ledger.PostAnswer:
		return true
	}
	return false
}

// end says what becomes of a post.
func (n *Notifier) end(p Post, answer Words, err error) End {
	switch {
	case err == nil:
		return End{State: Done, Posting: p.Posting, Answer: answer}
	case errors.Is(err, errSkipped):
		return End{State: Skipped, Posting: p.Posting}
	}
	kind, after := fault.KindOf(err), time.Duration(0)
	var f *fault.Error
	if errors.As(err, &f) {
		after = f.RetryAfter
	}
	silent := kind == fault.Throttled || kind == fault.Unavailable || kind == fault.Internal
	end := End{State: Failed, Problem: err.Error()}
	var again bool
	if end.Posting, end.Wait, again = ledger.Repost(p.Posting, !silent, after, p.Now); again {
		end.State = Waiting
	}
	switch {
	case p.What == ledger.PostCommand && !again:
		end.Answer.Text = late
	case p.What != ledger.PostCommand && kind == fault.Throttled:
		end.Limit = max(after, leastLimit)
	}
	return end
}

func (n *Notifier) report(ctx context.Context, p Post, end End) {
	n.metrics.Posts.Add(ctx, 1, p.Source, string(end.State))
	log := n.log.With(obs.KeySource, p.Source, obs.KeyWorkItem, p.WorkItem, obs.KeyDeliveryID, p.DeliveryID, "post", string(p.What))
	switch end.State {
	case Done:
		if p.What == ledger.PostCommand {
			c, _ := ledger.ParseCommand(p.Command)
			log.InfoContext(ctx, "an order was carried out or refused", "order", c.Name(), "who", p.Author)
			return
		}
		log.InfoContext(ctx, "told on the ticket", obs.KeyEvent, string(ledger.NoticePosted))
	case Failed:
		log.WarnContext(ctx, "not told on the ticket, and not tried again", obs.KeyEvent, string(ledger.NoticeFailed), obs.KeyError, end.Problem)
	case Waiting:
		log.WarnContext(ctx, "not told on the ticket yet", obs.KeyError, end.Problem, obs.KeyDuration, end.Wait)
	case Skipped:
		log.DebugContext(ctx, "nothing to tell on the ticket any more")
	}
}
