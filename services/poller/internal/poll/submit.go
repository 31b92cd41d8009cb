package poll

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	maxIdempotencyKey = 200
	maxHarness        = 64
)

// Message is an event by hand.
type Message struct {
	// WorkItem in any spelling that workitem.Parse reads.
	WorkItem string
	// Text is the operator's own: it is cleaned and passed on as it is, not framed as somebody else's.
	Text string
	// IdempotencyKey makes the call repeatable; empty means a new event each time.
	IdempotencyKey string
	// Harness is for a first spawn; empty means the configured one.
	Harness string
	// DryRun checks everything and writes nothing.
	DryRun bool
}

// Submit puts an event by hand into the ledger, and returns its row and whether the idempotency key was known. A message that
// can never be delivered is fault.Invalid; a key that was used for another message is fault.Conflict.
func (p *Poller) Submit(ctx context.Context, m Message) (row Entry, existed bool, err error) {
	e, err := m.event(p.config.Budget)
	if err != nil {
		return Entry{}, false, err
	}
	ctx, end := obs.Start(ctx, p.config.Tracer, "poll.Submit", slog.String(obs.KeyDeliveryID, e.DeliveryID),
		slog.String(obs.KeyWorkItem, e.WorkItem), slog.String(obs.KeySource, e.Source), slog.String(obs.KeyEvent, e.Kind))
	defer func() { end(err) }()
	row, existed, err = p.config.Ledger.Submit(ctx, e, m.DryRun)
	if err == nil && !existed && !m.DryRun {
		p.config.Logger.InfoContext(ctx, "event by hand", obs.KeyDeliveryID, row.DeliveryID, obs.KeyWorkItem, row.WorkItem)
	}
	return row, existed, err
}

func (m Message) event(budget int) (Event, error) {
	ref, err := workitem.Parse(m.WorkItem)
	if err != nil {
		return Event{}, err
	}
	text, _, err := prompt.Clean(m.Text)
	if err != nil {
		return Event{}, err
	}
	if err := plainWord("the idempotency key", m.IdempotencyKey, maxIdempotencyKey); err != nil {
		return Event{}, err
	}
	if err := plainWord("the harness", m.Harness, maxHarness); err != nil {
		return Event{}, err
	}
	key := ledger.Key{Provider: ledger.SourceManual, Kind: KindMessage, ObjectID: m.IdempotencyKey, Revision: onlyRevision}
	if m.IdempotencyKey == "" {
		// No key that a person chooses can meet one of these: they stand in another field.
		key.Host = rand.Text()
	}
	if headed := "Message from your operator about " + ref.String() + ":\n\n" + text; len(headed) <= prompt.MaxText {
		text = headed
	}
	return Event{
		DeliveryID: ledger.DeliveryID(key, ref.String()), Key: key, WorkItem: ref.String(), Source: ledger.SourceManual, Kind: KindMessage,
		Text: text, Harness: m.Harness, State: ledger.Pending, Budget: budget,
	}, nil
}

// plainWord refuses what would not fit a column or a log line.
func plainWord(what, s string, most int) error {
	bad := func(how string) error {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, what+" "+how)
	}
	switch {
	case !utf8.ValidString(s):
		return bad("is not valid UTF-8")
	case len(s) > most:
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s has %d bytes and the limit is %d", what, len(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return bad("holds a character that does not show")
	}
	return nil
}
