package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hints"
)

func TestListEvents_PassesItsQuestionOn(t *testing.T) {
	r := &records{page: deliver.EventPage{Last: 9, Forgotten: 3, Events: []deliver.Event{{Sequence: 8}}}}
	s := New(Config{Records: r})
	got, err := s.ListEvents(t.Context(), &dispatcherv1.ListEventsRequest{
		AfterSequence: 7, WorkItem: "github:Octo/Widget#7", DeliveryId: "delivery-1", Latest: true, Types: []string{"session.spawned"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := deliver.EventQuery{After: 7, WorkItem: "github:octo/widget#7", DeliveryID: "delivery-1", Limit: 100, Latest: true,
		Types: []dispatch.EventType{dispatch.SessionSpawned}}
	if diff := cmp.Diff(want, r.events); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got.GetLastSequence() != 9 || got.GetForgottenSequence() != 3 || len(got.GetEvents()) != 1 {
		t.Errorf("%v", got)
	}
}

func TestEvents_RefuseWhatTheyCannotRead(t *testing.T) {
	s := New(Config{Records: &records{}, News: hints.New()})
	for name, bad := range map[string]*dispatcherv1.WatchEventsRequest{
		"must not be negative":              {AfterSequence: -1},
		"8 to 64 characters":                {DeliveryId: "x"},
		"provider":                          {WorkItem: "octo#7"},
		`"session.spwaned" is no type`:      {Types: []string{"session.spawned", "session.spwaned"}},
		"dispatch.dropped, dispatch.failed": {Types: []string{""}},
	} {
		_, listed := s.ListEvents(t.Context(), &dispatcherv1.ListEventsRequest{
			AfterSequence: bad.GetAfterSequence(), DeliveryId: bad.GetDeliveryId(), WorkItem: bad.GetWorkItem(), Types: bad.GetTypes(),
		})
		_, watched := eventQuery(bad, 0)
		for _, err := range []error{listed, watched} {
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%v: %v", bad, err)
			}
		}
	}
}

// told is a table of events in memory, as the store reads it.
type told struct {
	Records
	mu        sync.Mutex
	events    []deliver.Event
	forgotten int64
	asked     []int64
	err       error
}

func (r *told) Events(_ context.Context, q deliver.EventQuery) (deliver.EventPage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q.After)
	page := deliver.EventPage{Last: r.forgotten, Forgotten: r.forgotten}
	for _, e := range r.events {
		page.Last = max(page.Last, e.Sequence)
		if e.Sequence > q.After && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && len(page.Events) < q.Limit {
			page.Events = append(page.Events, e)
		}
	}
	return page, r.err
}

func (r *told) add(kind dispatch.EventType, sequences ...int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range sequences {
		r.events = append(r.events, deliver.Event{Sequence: n, Type: kind})
	}
}

// watch is one watcher in a bubble; what it was sent is in words.
type watch struct {
	*told
	news *hints.Hub
	sent []string
	err  error
}

func (w *watch) words() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.sent, " ")
	w.sent = nil
	return out
}

// ended returns why it ended.
func (w *watch) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// begin watches until the test's bubble ends.
func begin(t *testing.T, r *told, q deliver.EventQuery) *watch {
	t.Helper()
	w := &watch{told: r, news: hints.New()}
	ctx, cancel := context.WithCancel(t.Context())
	s := New(Config{Records: r, News: w.news})
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := s.watch(ctx, q, func(step *dispatcherv1.WatchEventsResponse) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch s := step.GetStep().(type) {
			case *dispatcherv1.WatchEventsResponse_Event:
				w.sent = append(w.sent, fmt.Sprint(s.Event.GetSequence()))
			case *dispatcherv1.WatchEventsResponse_CaughtUp:
				w.sent = append(w.sent, fmt.Sprintf("end:%d", s.CaughtUp.GetSequence()))
			case *dispatcherv1.WatchEventsResponse_Missed:
				w.sent = append(w.sent, fmt.Sprintf("missed:%d", s.Missed.GetForgottenSequence()))
			}
			return nil
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return w
}

func TestWatch_SendsWhatComesAndSaysWhenThatIsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &told{}
		r.add(dispatch.DispatchQueued, 1, 2, 4)
		w := begin(t, r, deliver.EventQuery{After: 1, Limit: 2})
		if got := w.words(); got != "2 4 end:4" {
			t.Errorf("at the beginning: %s", got)
		}
		time.Sleep(beat - time.Second)
		r.add(dispatch.DispatchFailed, 5)
		synctest.Wait()
		if got := w.words(); got != "" {
			t.Errorf("before it was woken: %s", got)
		}
		w.news.Tell(hints.Any)
		synctest.Wait()
		if got := w.words(); got != "5 end:5" {
			t.Errorf("woken: %s", got)
		}
		time.Sleep(beat - time.Second)
		synctest.Wait()
		if got := w.words(); got != "" {
			t.Errorf("too early: %s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.words(); got != "end:5" {
			t.Errorf("after a while without anything: %s", got)
		}
	})
}

// TestWatch_ItsNumberGrowsThoughNothingIsForIt holds that a reader of what is rare has a number that retention does not overtake, however often
// it is woken for nothing.
func TestWatch_ItsNumberGrowsThoughNothingIsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &told{}
		w := begin(t, r, deliver.EventQuery{Limit: 100, Types: []dispatch.EventType{dispatch.SessionStopped}})
		if got := w.words(); got != "end:0" {
			t.Errorf("of nothing: %s", got)
		}
		for n := range int64(30) {
			r.add(dispatch.DispatchQueued, n+1)
			w.news.Tell(hints.Any)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := w.words(); got != "end:15 end:30" && got != "end:16 end:30" {
			t.Errorf("woken for nothing: %s", got)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if last := r.asked[len(r.asked)-1]; last < 29 {
			t.Errorf("it reads again after %d what was not for it", last)
		}
	})
}

func TestWatch_SaysOnceWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &told{forgotten: 7}
		r.add(dispatch.DispatchQueued, 5, 6, 9) // 5 and 6 are of a delivery that is still known
		w := begin(t, r, deliver.EventQuery{After: 3, Limit: 1})
		if got := w.words(); got != "missed:7 5 6 9 end:9" {
			t.Errorf("at the beginning: %s", got)
		}
		r.mu.Lock()
		r.forgotten = 9
		r.mu.Unlock()
		r.add(dispatch.DispatchQueued, 10)
		w.news.Tell(hints.Any)
		synctest.Wait()
		if got := w.words(); got != "10 end:10" {
			t.Errorf("what it has had is gone: %s", got)
		}
		if got := begin(t, r, deliver.EventQuery{After: 9, Limit: 1}).words(); got != "10 end:10" {
			t.Errorf("one that has had all that is gone: %s", got)
		}
	})
}

func TestWatch_ANumberFromElsewhereIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &told{}
		r.add(dispatch.DispatchQueued, 1, 2)
		w := begin(t, r, deliver.EventQuery{After: 3, Limit: 10})
		if got, err := w.words(), w.ended(); got != "" || !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "restored") {
			t.Errorf("%s, %v", got, err)
		}
	})
}

func TestWatch_EndsWithTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &told{}
		w := begin(t, r, deliver.EventQuery{Limit: 10})
		r.mu.Lock()
		r.err = fault.New(fault.Unavailable, fault.ReasonDatabase, "gone")
		r.mu.Unlock()
		time.Sleep(beat)
		synctest.Wait()
		if err := w.ended(); !errors.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
	})
}
