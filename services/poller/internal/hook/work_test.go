package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace/noop"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// inbox is one in memory, by the same rules; that the real one keeps them is shown where that is.
type inbox struct {
	mu      sync.Mutex
	hooks   []Hook
	ends    map[int64]End
	claimed map[int64]bool
	puts    [][]string
	hold    chan struct{} // a put waits for it
	err     error
	watched []string
	gaps    map[string]Gap
}

func (i *inbox) Put(_ context.Context, arrivals []Arrival) ([]bool, error) {
	if i.hold != nil {
		<-i.hold
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var guids []string
	for _, a := range arrivals {
		guids = append(guids, a.GUID)
	}
	i.puts = append(i.puts, guids)
	return make([]bool, len(arrivals)), i.err
}

func (i *inbox) Watch(_ context.Context, on, off []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = append(append(i.watched, on...), off...)
	return nil
}

func (i *inbox) ClaimHooks(_ context.Context, _ []string, n int, _ time.Duration) (out []Hook, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, h := range i.hooks {
		if len(out) < n && !i.claimed[h.ID] {
			i.claimed[h.ID] = true
			out = append(out, h)
		}
	}
	return out, i.err
}

func (i *inbox) EndHook(ctx context.Context, h Hook, end End) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ends[h.ID] = end
	return ctx.Err()
}

func (i *inbox) FindGap(_ context.Context, source string, _ time.Duration) (Gap, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer delete(i.gaps, source)
	return i.gaps[source], nil
}

type takerFunc func(ctx context.Context, source string, c poll.Change) error

func (f takerFunc) Take(ctx context.Context, source string, c poll.Change) error {
	return f(ctx, source, c)
}

type readerFunc func(Arrival) (poll.Change, error)

func (f readerFunc) Read(a Arrival) (poll.Change, error) { return f(a) }

func newHandler(i *inbox, wake <-chan struct{}, take takerFunc) (*Handler, *strings.Builder) {
	i.ends, i.claimed = map[int64]End{}, map[int64]bool{}
	log := &strings.Builder{}
	return NewHandler(Config{
		Inbox: i, Taker: take, Readers: map[string]Reader{"gh": readerFunc(func(a Arrival) (poll.Change, error) {
			if a.Action == "unreadable" {
				return poll.Change{}, fault.New(fault.Invalid, fault.ReasonSourceRefused, "cannot be read")
			}
			return poll.Change{Number: a.Number}, nil
		})}, Off: []string{"off"}, Wake: wake, Logger: slog.New(slog.NewTextHandler(log, nil)), Tracer: noop.NewTracerProvider().Tracer(""),
	}), log
}

func message(id int64, action string) Hook {
	return Hook{ID: id, Tries: 1, Arrival: Arrival{Source: "gh", GUID: fmt.Sprint("g", id), Envelope: Envelope{Event: "issues", Action: action, Number: 7}}}
}

func TestHandle_WhatBecomesOfAMessageIsWrittenDown(t *testing.T) {
	i := &inbox{hooks: []Hook{message(1, "fine"), message(2, "silent"), message(3, "limited"), message(4, "odd"), message(5, "unreadable"),
		message(6, "panics"), message(7, "busy")}}
	h, log := newHandler(i, nil, func(_ context.Context, source string, c poll.Change) error {
		if source != "gh" || c.ID == "" || c.Event != "issues" || c.Number != 7 {
			t.Errorf("%s %+v", source, c)
		}
		return map[string]error{
			"silent":  fault.New(fault.Unavailable, fault.ReasonSourceUnreachable, "no answer"),
			"limited": fault.New(fault.Throttled, fault.ReasonRateLimited, "later").WithRetryAfter(7 * time.Minute),
			"busy":    fault.New(fault.Conflict, fault.ReasonLeaseHeld, "somebody looks"),
			"odd":     fault.New(fault.Denied, fault.ReasonSourceRefused, "not you"),
			"panics": func() error {
				if c.Action == "panics" {
					panic("the words")
				}
				return nil
			}(),
		}[c.Action]
	})
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := map[int64]State{}
	for id, end := range i.ends {
		states[id] = end.State
	}
	equal(t, "states", states, map[int64]State{1: Done, 2: Waiting, 3: Waiting, 4: Failed, 5: Failed, 6: Failed, 7: Waiting})
	equal(t, "the limit", i.ends[3].Wait, 7*time.Minute)
	if w := i.ends[2].Wait; w < firstWait/2 || w > firstWait {
		t.Errorf("the first wait is %v", w)
	}
	equal(t, "the problem", i.ends[4].Problem, "not you")
	if n := strings.Count(log.String(), "cannot be handled"); n != 3 || strings.Contains(log.String(), "the words") {
		t.Errorf("the log is %s", log)
	}
	equal(t, "watched", i.watched, []string{"gh", "off"})
}

func TestOutcome_WaitsLongerEachTimeAndNotForEver(t *testing.T) {
	silent := fault.New(fault.Unavailable, "", "no answer")
	for tries := 1; tries < 40; tries++ {
		end := outcome(Hook{Tries: tries, Age: time.Hour}, silent)
		most := min(maxWait, firstWait<<min(tries-1, 12))
		if end.State != Waiting || end.Wait < most/2 || end.Wait > most {
			t.Errorf("try %d waits %v", tries, end.Wait)
		}
	}
	equal(t, "after a day", outcome(Hook{Tries: 3, Age: giveUpAfter}, silent), End{State: Failed, Problem: "no answer"})
	equal(t, "out of time", outcome(Hook{Tries: 1}, context.DeadlineExceeded).State, Waiting)
	equal(t, "an error of nobody's", outcome(Hook{Tries: 1}, errors.New("x")).State, Failed)
}

func TestOutcome_ALimitIsTheSourcesAndOneWithoutATimeIsAMinute(t *testing.T) {
	limit := fault.New(fault.Throttled, fault.ReasonRateLimited, "later")
	for name, tt := range map[string]struct {
		hook Hook
		err  error
		want End
	}{
		"it says for how long":           {Hook{Tries: 1}, limit.WithRetryAfter(7 * time.Second), End{State: Waiting, Wait: 7 * time.Second, Limited: true, Limit: 7 * time.Second}},
		"it does not":                    {Hook{Tries: 1}, limit, End{State: Waiting, Wait: time.Minute, Limited: true}},
		"it was not asked, for its sake": {Hook{Tries: 9, Limited: time.Hour}, limit.WithRetryAfter(time.Hour), End{State: Waiting, Wait: time.Hour}},
		"too late for the message":       {Hook{Tries: 9, Age: giveUpAfter}, limit, End{State: Failed, Limited: true}},
	} {
		got := outcome(tt.hook, tt.err)
		got.Problem = ""
		equal(t, name, got, tt.want)
	}
}

func TestHandle_WhileItsSourceIsLeftAloneAMessageSaysSo(t *testing.T) {
	limited := message(2, "fine")
	limited.Limited = time.Minute
	i := &inbox{hooks: []Hook{message(1, "fine"), limited}}
	var mu sync.Mutex
	left := map[string]time.Duration{}
	h, _ := newHandler(i, nil, func(ctx context.Context, _ string, c poll.Change) error {
		mu.Lock()
		defer mu.Unlock()
		left[c.ID] = poll.LeftAlone(ctx)
		return nil
	})
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "left alone", left, map[string]time.Duration{"g1": 0, "g2": time.Minute})
}

func TestRun_AHintIsEnoughAndNoneIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		i := &inbox{gaps: map[string]Gap{"gh": {Count: 2}}}
		h, log := newHandler(i, wake, func(ctx context.Context, _ string, c poll.Change) error {
			if c.Action == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		add := func(m Hook) {
			i.mu.Lock()
			i.hooks = append(i.hooks, m)
			i.mu.Unlock()
		}
		state := func(id int64) State {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.ends[id].State
		}
		add(message(1, "fine"))
		began := time.Now()
		wake <- struct{}{}
		synctest.Wait()
		equal(t, "at once", []any{state(1), time.Since(began)}, []any{Done, time.Duration(0)})
		add(message(2, "fine"))
		time.Sleep(lookTime)
		synctest.Wait()
		equal(t, "without a hint", state(2), Done)
		add(message(3, "slow"))
		wake <- struct{}{}
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		equal(t, "what was under way at the stop waits for who is next", i.ends[3], End{State: Waiting})
		if n := strings.Count(log.String(), "no webhook had told"); n != 1 {
			t.Errorf("the gap was said %d times", n)
		}
	})
}

func TestRun_WithoutWebhooksNothingIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		i := &inbox{hooks: []Hook{message(1, "fine")}, ends: map[int64]End{}, claimed: map[int64]bool{}}
		h := NewHandler(Config{Inbox: i, Off: []string{"off"}, Logger: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer("")})
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		equal(t, "claimed, watched", []any{len(i.claimed), i.watched}, []any{0, []string{"off"}})
	})
}

func TestIntake_WhatComesInMeanwhileGoesInTogetherAndEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &inbox{hold: make(chan struct{})}
		wake := make(chan struct{}, 1)
		in := NewIntake(i, wake)
		var wait sync.WaitGroup
		put := func(guid string, size int) {
			wait.Go(func() {
				if _, err := in.Put(t.Context(), Arrival{Source: "gh", GUID: guid, Payload: make([]byte, size)}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for n := range maxWriters {
			put(fmt.Sprint("first", n), 1)
		}
		put("a", 1)
		put("b", 1)
		put("a", 1)
		put("large", maxBatchBytes)
		close(i.hold)
		wait.Wait()
		var together bool
		for _, guids := range i.puts {
			seen := map[string]bool{}
			for _, guid := range guids {
				if seen[guid] {
					t.Errorf("%v in one transaction", guids)
				}
				seen[guid] = true
			}
			together = together || seen["a"] && seen["b"] && !seen["large"]
		}
		if !together {
			t.Errorf("written as %v", i.puts)
		}
		select {
		case <-wake:
		default:
			t.Error("nobody was woken")
		}
		synctest.Wait()
		equal(t, "writers left", in.writers, 0)
	})
}

func TestIntake_NobodyIsToldOfASuccessThatWasNone(t *testing.T) {
	i := &inbox{err: fault.New(fault.Unavailable, fault.ReasonDatabase, "no answer")}
	in := NewIntake(i, nil)
	if _, err := in.Put(t.Context(), Arrival{GUID: "a"}); !errors.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	i.hold = make(chan struct{})
	if _, err := in.Put(gone, Arrival{GUID: "b"}); !errors.Is(err, fault.Unavailable) {
		t.Errorf("of one who is gone: %v", err)
	}
	close(i.hold)
}

func TestWanted_OnlyWhatIsListed(t *testing.T) {
	for name, want := range map[string]bool{
		"issue_comment.created": true, "issue_comment.deleted": true, "issue_comment.": false, "issue_comment.pinned": false, "issues.pinned": false,
		"check_run.completed": true, "check_run.created": false, "status.": true, "status.x": false, "star.created": false, ".": false,
		"pull_request.synchronize": true, "pull_request_review.submitted": true, "deployment.created": false,
	} {
		event, action, _ := strings.Cut(name, ".")
		equal(t, name, Wanted(event, action), want)
	}
}
