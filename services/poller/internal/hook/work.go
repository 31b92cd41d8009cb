package hook

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// workers is how many messages are handled at once.
	workers = 4
	// lookTime is how often the inbox is looked into when nothing wakes us.
	lookTime = time.Second
	// takeTime bounds the work at a message, endTime what is written down after it; both end well within the lease.
	takeTime  = 40 * time.Second
	endTime   = 5 * time.Second
	leaseTime = time.Minute
	// firstWait is how long a message waits that could not be handled now; doubled each time, up to the longest.
	firstWait, maxWait = time.Second, 5 * time.Minute
	// limitWait is how long one waits at least whose source named a limit without a time.
	limitWait = time.Minute
	// giveUpAfter is when a message is no longer tried: a look has long found what it would have told.
	giveUpAfter = 24 * time.Hour
	// gapTime is how often it is asked whether something was found that no webhook told, and grace how late after a look a webhook may be:
	// one that is only slow is no gap.
	gapTime = 15 * time.Second
	grace   = time.Minute
)

// Config is what a Handler is made from; every field but Wake and Metrics is required.
type Config struct {
	Inbox Inbox
	Taker Taker
	// Readers are the sources whose webhooks are taken, by name, with who reads their payloads; Off are the sources whose webhooks are not.
	Readers map[string]Reader
	Off     []string
	// Wake gets a value when messages came in. It may be nil; it is only a hint.
	Wake   <-chan struct{}
	Logger *slog.Logger
	Tracer obs.Tracer
	// Metrics count what became of messages; nil counts nothing.
	Metrics *metrics.Metrics
}

// Handler handles messages. It is safe for use by many goroutines, and many processes may handle those of one inbox.
type Handler struct {
	config  Config
	sources []string

	mu   sync.Mutex
	down bool // the inbox could not be read at the last look
}

// NewHandler returns a handler.
func NewHandler(config Config) *Handler {
	if config.Metrics == nil {
		config.Metrics = metrics.New(nil)
	}
	h := &Handler{config: config}
	for name := range config.Readers {
		h.sources = append(h.sources, name)
	}
	return h
}

// Run handles messages until ctx ends, and says where there are gaps.
func (h *Handler) Run(ctx context.Context) error {
	if len(h.sources) == 0 {
		h.watchGaps(ctx) // which writes down that there are none
		return nil
	}
	var wait sync.WaitGroup
	wait.Go(func() { h.watchGaps(ctx) })
	free := make(chan struct{}, workers)
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for range workers {
		free <- struct{}{}
	}
	for ctx.Err() == nil {
		// As many as there are free hands; one at least, or we wait.
		select {
		case <-free:
		case <-ctx.Done():
			continue
		}
		hands := 1
		for more := true; more && hands < workers; {
			select {
			case <-free:
				hands++
			default:
				more = false
			}
		}
		claims, err := h.claim(ctx, hands)
		for _, c := range claims {
			wait.Go(func() {
				h.handle(ctx, c)
				free <- struct{}{}
			})
		}
		for range hands - len(claims) {
			free <- struct{}{}
		}
		if err == nil && len(claims) > 0 {
			continue
		}
		select {
		case <-h.config.Wake:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	wait.Wait()
	return nil
}

// Drain handles what is due, until nothing is, and says where there is a gap. An error is the inbox's.
func (h *Handler) Drain(ctx context.Context) error {
	if err := h.config.Inbox.Watch(ctx, h.sources, h.config.Off); err != nil {
		return err
	}
	for ctx.Err() == nil {
		claims, err := h.claim(ctx, workers)
		if err != nil {
			return err
		}
		if len(claims) == 0 {
			break
		}
		var wait sync.WaitGroup
		for _, c := range claims {
			wait.Go(func() { h.handle(ctx, c) })
		}
		wait.Wait()
	}
	return h.FindGaps(ctx)
}

// claim reads the inbox, and logs the first of a row of failures.
func (h *Handler) claim(ctx context.Context, n int) ([]Hook, error) {
	claims, err := h.config.Inbox.ClaimHooks(ctx, h.sources, n, leaseTime)
	h.mu.Lock()
	before := h.down
	h.down = err != nil
	h.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil && !before:
		h.config.Logger.WarnContext(ctx, "cannot read the inbox of webhooks", obs.KeyError, err)
	case err == nil && before:
		h.config.Logger.InfoContext(ctx, "the inbox of webhooks can be read again")
	}
	return claims, err
}

// handle takes one message in hand, and writes down what became of it.
func (h *Handler) handle(ctx context.Context, m Hook) {
	working, cancel := context.WithTimeout(ctx, takeTime)
	working, end := obs.Start(working, h.config.Tracer, "hook.Take", slog.String(obs.KeySource, m.Source),
		slog.String(obs.KeyEvent, m.Event+"."+m.Action), slog.String("guid", m.GUID))
	err := h.take(working, m)
	out := outcome(m, err)
	if err != nil && ctx.Err() != nil {
		out = End{State: Waiting, Limited: out.Limited, Limit: out.Limit} // we are told to stop; whoever is next goes on with it
	}
	h.config.Metrics.Hooks.Add(working, 1, m.Source, string(out.State))
	end(err)
	cancel()
	log := h.config.Logger.With(obs.KeySource, m.Source, obs.KeyEvent, m.Event+"."+m.Action, "guid", m.GUID)
	if out.State == Failed {
		log.WarnContext(ctx, "a webhook cannot be handled; the next look at its source finds what it would have told",
			obs.KeyReason, string(fault.ReasonOf(err)), obs.KeyError, err)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := h.config.Inbox.EndHook(ending, m, out); err != nil {
		// Its lease runs out, and it is handled again, which changes nothing.
		log.DebugContext(ctx, "what became of a webhook could not be written down", obs.KeyError, err)
	}
}

// take reads a message and has it taken. One over which the code falls is kept from ending the process again and again.
func (h *Handler) take(ctx context.Context, m Hook) (err error) {
	defer func() {
		if recover() != nil { // its text may hold what somebody wrote
			err = fault.New(fault.Internal, fault.ReasonPanic, "the handling of the webhook failed within")
		}
	}()
	change, err := h.config.Readers[m.Source].Read(m.Arrival)
	if err != nil {
		return err
	}
	change.Event, change.Action, change.ID, change.ReceivedAt = m.Event, m.Action, m.GUID, m.ReceivedAt
	if m.Limited > 0 {
		// What needs no answer of the source goes on all the same.
		ctx = poll.LeaveAlone(ctx, m.Limited)
	}
	return h.config.Taker.Take(ctx, m.Source, change)
}

// outcome says what becomes of a message.
func outcome(m Hook, err error) End {
	if err == nil {
		return End{State: Done}
	}
	end := End{State: Failed, Problem: err.Error()}
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Throttled && m.Limited == 0 {
		// While it was to be left alone nobody asked it, and it said nothing new.
		end.Limited, end.Limit = true, f.RetryAfter
	}
	again := errors.Is(err, fault.Unavailable) || errors.Is(err, fault.Throttled) || fault.ReasonOf(err) == fault.ReasonLeaseHeld ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fault.Fenced)
	if again && m.Age < giveUpAfter {
		end.State = Waiting
		if f != nil {
			end.Wait = f.RetryAfter
		}
		switch {
		case end.Wait > 0:
		case end.Limited:
			end.Wait = limitWait
		default:
			longest := min(maxWait, firstWait<<min(m.Tries-1, 20))
			end.Wait = longest/2 + rand.N(longest/2+1) //nolint:gosec // jitter is no secret
		}
	}
	return end
}

// watchGaps looks for gaps until ctx ends.
func (h *Handler) watchGaps(ctx context.Context) {
	tick := time.NewTicker(gapTime)
	defer tick.Stop()
	watched, down := false, false
	for {
		var err error
		if !watched {
			err = h.config.Inbox.Watch(ctx, h.sources, h.config.Off)
			watched = err == nil
		}
		if watched {
			err = h.FindGaps(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !down {
			h.config.Logger.WarnContext(ctx, "cannot tell whether webhooks were missed", obs.KeyError, err)
		}
		down = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// FindGaps says of each source what looks found that no webhook had told.
func (h *Handler) FindGaps(ctx context.Context) error {
	for _, source := range h.sources {
		gap, err := h.config.Inbox.FindGap(ctx, source, grace)
		if err != nil {
			return err
		}
		if gap.Count > 0 {
			h.config.Metrics.Gaps.Add(ctx, int64(gap.Count), source)
			h.config.Logger.WarnContext(ctx, "a look found events that no webhook had told", obs.KeySource, source, obs.KeyCount, gap.Count,
				"from", gap.From, "to", gap.To)
		}
	}
	return nil
}
