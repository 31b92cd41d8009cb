package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/lease"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver/delivertest"
)

func absent() delivertest.World { return delivertest.World{State: session.Absent} }

func TestDeliver_ReplaysWhatEnded(t *testing.T) {
	b := newBench(absent(), nil)
	first := b.ask(t, id)
	again := b.ask(t, id)
	if again.Delivery.Outcome != dispatch.Delivered || again.Delivery.How != dispatch.HowSpawned || again.Delivery.Asked != 2 ||
		again.LookAgain != 0 || !again.Delivery.UpdatedAt.Equal(first.Delivery.UpdatedAt) {
		t.Errorf("asked again: %+v", again)
	}
	if w := b.host.World(); w.Fresh != 1 || len(w.Typed) != 0 {
		t.Errorf("the world after the replay: %+v", w)
	}
}

func TestDeliver_DecidesAgainWhatDidNotEnd(t *testing.T) {
	b := newBench(delivertest.World{Unreachable: true}, nil)
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Waiting {
		t.Fatalf("%+v", got)
	}
	b.host.Change(func(w *delivertest.World) { w.Unreachable, w.State = false, session.Absent })
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered || got.Delivery.Asked != 2 {
		t.Errorf("%+v", got)
	}
}

func TestDeliver_RefusesAnIDOfAnotherEvent(t *testing.T) {
	b := newBench(absent(), nil)
	b.ask(t, id)
	for name, change := range map[string]func(*deliver.Request){
		"text": func(r *deliver.Request) { r.Text += "!" },
		"kind": func(r *deliver.Request) { r.Kind = deliver.Message },
		"item": func(r *deliver.Request) { r.WorkItem = "github:octo/widget#8" },
	} {
		r := request(id)
		change(&r)
		if _, err := b.deliverer.Deliver(t.Context(), r); fault.ReasonOf(err) != fault.ReasonDeliveryMismatch {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

func TestDeliver_RefusesBadRequests(t *testing.T) {
	b := newBench(absent(), nil)
	for name, row := range map[string]struct {
		change func(*deliver.Request)
		want   fault.Reason
	}{
		"item":         {func(r *deliver.Request) { r.WorkItem = "octo/widget" }, fault.ReasonBadWorkItem},
		"id":           {func(r *deliver.Request) { r.DeliveryID = "short" }, fault.ReasonBadDeliveryID},
		"no kind":      {func(r *deliver.Request) { r.Kind = "" }, fault.ReasonBadArgument},
		"other kind":   {func(r *deliver.Request) { r.Kind = "closed" }, fault.ReasonBadArgument},
		"empty text":   {func(r *deliver.Request) { r.Text = " \n" }, fault.ReasonTextEmpty},
		"not UTF-8":    {func(r *deliver.Request) { r.Text = "a\xff" }, fault.ReasonBadText},
		"5 MiB":        {func(r *deliver.Request) { r.Text = strings.Repeat("x", 5<<20) }, fault.ReasonTextTooLarge},
		"node id":      {func(r *deliver.Request) { r.NodeID = "a\x00b" }, fault.ReasonBadArgument},
		"long node id": {func(r *deliver.Request) { r.NodeID = strings.Repeat("x", 201) }, fault.ReasonBadArgument},
		"harness":      {func(r *deliver.Request) { r.Harness = "a b" }, fault.ReasonUnknownHarness},
	} {
		r := request(id)
		row.change(&r)
		if _, err := b.deliverer.Deliver(t.Context(), r); !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != row.want {
			t.Errorf("%s: %v, want %s", name, err, row.want)
		}
	}
	if d := b.store.Stored(id); d.ID != "" {
		t.Errorf("a refused request was stored: %+v", d)
	}
}

// TestDeliver_CrashAfterAnAct has the database go away right after an act took effect, in each of the acts: asking again must end
// as delivered, with nothing typed or started twice.
func TestDeliver_CrashAfterAnAct(t *testing.T) {
	for name, row := range map[string]struct {
		world  delivertest.World
		record *deliver.Session
		act    string
	}{
		"first spawn":              {absent(), nil, "spawn"},
		"first spawn, no evidence": {delivertest.World{State: session.Absent, NoEvidence: true}, nil, "spawn"},
		"resume":                   {dead(delivertest.World{}), recorded("c1"), "spawn"},
		"paste":                    {live(delivertest.World{}), recorded("c1"), "paste"},
		"paste, no evidence":       {live(delivertest.World{NoEvidence: true}), recorded("c1"), "paste"},
		"paste after adoption":     {live(delivertest.World{}), nil, "paste"},
		"probe":                    {live(delivertest.World{}), recorded("c1"), "probe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(row.world, nil)
				if row.record != nil {
					b.store.Put(*row.record)
				}
				b.host.After = func(act string) {
					if act == row.act {
						b.store.SetDown(true)
					}
				}
				if _, err := b.deliverer.Deliver(t.Context(), request(id)); !errors.Is(err, fault.Unavailable) {
					t.Fatalf("without a database: %v", err)
				}
				b.host.After = nil
				b.store.SetDown(false)
				if got := b.ask(t, id); got.Delivery.Outcome != dispatch.InProgress || got.Delivery.Reason != dispatch.ReasonLeaseHeld {
					t.Errorf("before the lease ended: %+v", got)
				}
				time.Sleep(lease.Time)
				b.ask(t, id)
				b.host.Change(func(w *delivertest.World) { w.NoEvidence = false })
				if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Delivered {
					t.Errorf("in the end: %+v", got)
				}
				w := b.host.World()
				if len(w.Typed)+len(w.Prompts) != 1 || w.Fresh+w.Resumed > 1 {
					t.Errorf("typed %v, prompts %v, fresh %d, resumed %d", w.Typed, w.Prompts, w.Fresh, w.Resumed)
				}
			})
		})
	}
}

func TestDeliver_ALostAnswerIsSettledByAskingAgain(t *testing.T) {
	b := newBench(live(delivertest.World{LosesAnswers: true}), nil)
	b.store.Put(*recorded("c1"))
	if got := b.ask(t, id); got.Delivery.Outcome != dispatch.Waiting {
		t.Fatalf("%+v", got)
	}
	b.host.Change(func(w *delivertest.World) { w.LosesAnswers = false })
	got := b.ask(t, id)
	if w := b.host.World(); got.Delivery.How != dispatch.HowAlready || len(w.Typed) != 1 {
		t.Errorf("%+v, typed %v", got, w.Typed)
	}
}

func TestDeliver_FinishesAnActWhoseCallerWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(live(delivertest.World{}), nil)
		ctx, cancel := context.WithCancel(t.Context())
		b.host.Before = func(act string) {
			if act == "paste" {
				cancel()
			}
		}
		result, err := b.deliverer.Deliver(ctx, request(id))
		if err != nil || result.Delivery.Outcome != dispatch.Delivered {
			t.Errorf("%+v, %v", result, err)
		}
		if d := b.store.Stored(id); d.Outcome != dispatch.Delivered {
			t.Errorf("stored %+v", d)
		}
	})
}

func TestDeliver_DoesNothingForACallerWhoIsGone(t *testing.T) {
	b := newBench(live(delivertest.World{}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.deliverer.Deliver(ctx, request(id)); err == nil {
		t.Error("no error")
	}
	if w := b.host.World(); len(w.Typed) != 0 {
		t.Errorf("typed %v", w.Typed)
	}
}

// TestDeliver_OneRunAtATime holds one delivery in its paste and asks for the same one and for another of the same item meanwhile.
func TestDeliver_OneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(live(delivertest.World{}), nil)
		gate := make(chan struct{})
		b.host.Before = func(act string) {
			if act == "paste" {
				<-gate
			}
		}
		first := make(chan deliver.Result, 1)
		go func() {
			result, err := b.deliverer.Deliver(t.Context(), request(id))
			if err != nil {
				t.Error(err)
			}
			first <- result
		}()
		synctest.Wait()
		for _, other := range []string{id, "delivery-2"} {
			got := b.ask(t, other)
			if got.Delivery.Outcome != dispatch.InProgress || got.Delivery.Reason != dispatch.ReasonLeaseHeld || got.LookAgain != time.Second {
				t.Errorf("%s meanwhile: %+v", other, got)
			}
		}
		if d := b.store.Stored("delivery-2"); d.Reason != dispatch.ReasonStart {
			t.Errorf("the waiting one was stored as %s", d.Reason)
		}
		close(gate)
		if got := <-first; got.Delivery.Outcome != dispatch.Delivered {
			t.Errorf("%+v", got)
		}
		if got := b.ask(t, "delivery-2"); got.Delivery.Outcome != dispatch.Delivered {
			t.Errorf("%+v", got)
		}
		if w := b.host.World(); strings.Join(w.Typed, " ") != "delivery-1 delivery-2" {
			t.Errorf("typed %v", w.Typed)
		}
	})
}

func TestDeliver_ManyAskersTypeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(delivertest.World{State: session.Absent, Slow: 10 * time.Millisecond}, nil)
		var wait sync.WaitGroup
		for i := range 12 {
			wait.Go(func() {
				for {
					got, err := b.deliverer.Deliver(t.Context(), request(fmt.Sprintf("delivery-%d", i%3)))
					if err != nil {
						t.Error(err)
						return
					}
					if got.Delivery.Outcome == dispatch.Delivered {
						return
					}
					time.Sleep(got.LookAgain)
				}
			})
		}
		wait.Wait()
		if w := b.host.World(); len(w.Typed)+len(w.Prompts) != 3 || w.Fresh != 1 {
			t.Errorf("typed %v, prompts %v, fresh %d", w.Typed, w.Prompts, w.Fresh)
		}
	})
}

func TestDeliver_ReplaysWhatAnotherRunEndedBeforeItHadTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(live(delivertest.World{}), nil)
		slow := &slowLease{Store: b.store, gate: make(chan struct{})}
		config := deliver.Config{
			Store: slow, Hosts: delivertest.Hosts{b.host}, Logger: slog.New(slog.DiscardHandler), Tracer: tracer(t, nil), Process: "p2", Harness: "claude",
		}
		late := make(chan deliver.Result, 1)
		go func() {
			result, err := deliver.New(config).Deliver(t.Context(), request(id))
			if err != nil {
				t.Error(err)
			}
			late <- result
		}()
		synctest.Wait()
		b.ask(t, id)
		close(slow.gate)
		if got := <-late; got.Delivery.How != dispatch.HowPasted || got.Delivery.Asked != 2 {
			t.Errorf("%+v", got.Delivery)
		}
		if got := strings.Count(b.events(), succeeded); got != 1 {
			t.Errorf("%d times %s", got, succeeded)
		}
		b.ask(t, "delivery-2") // the lease was given back
	})
}

// slowLease takes no lease before its gate opens.
type slowLease struct {
	*delivertest.Store
	gate chan struct{}
}

func (s *slowLease) TakeLease(ctx context.Context, workItem, holder string) (lease.Lease, bool, error) {
	<-s.gate
	return s.Store.TakeLease(ctx, workItem, holder)
}

func TestDeliver_KeepsThePromptOutOfLogsAndSpans(t *testing.T) {
	var log bytes.Buffer
	spans := tracetest.NewInMemoryExporter()
	b := newBench(delivertest.World{State: session.Absent, FreshEnds: dispatch.SpawnDied, LastLines: []string{"> please look at delivery-1"}},
		func(c *deliver.Config) {
			c.Logger, c.Tracer = slog.New(slog.NewJSONHandler(&log, nil)), tracer(t, spans)
		})
	d := b.ask(t, id).Delivery
	text := log.String() + fmt.Sprintf("%+v", spans.GetSpans().Snapshots()) + fmt.Sprintf("%+v", d)
	if strings.Contains(text, "please look") {
		t.Errorf("the prompt is told: %s", text)
	}
	for _, key := range []string{`"action":"finish"`, `"reason":"harness_exited"`, `"work_item":"` + item, `"delivery_id":"` + id, `"token":1`,
		`"state":"absent"`, `"target":"` + target, `"host":"a"`, `"outcome":"failed"`} {
		if !strings.Contains(log.String(), key) {
			t.Errorf("the log lacks %s:\n%s", key, log.String())
		}
	}
	if got := spans.GetSpans(); len(got) != 1 || got[0].Name != "deliver.Deliver" || len(got[0].Events) != 5 {
		t.Errorf("spans %+v", got)
	}
	if d.TraceID == "" || d.Traceparent == "" || b.store.Events()[0].TraceID != d.TraceID {
		t.Errorf("the trace is not stored: %+v", d)
	}
}

func tracer(t *testing.T, spans *tracetest.InMemoryExporter) obs.Tracer {
	provider := sdktrace.NewTracerProvider()
	if spans != nil {
		provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	}
	return provider.Tracer(t.Name())
}

// A kind of event that may not start a session is dropped where there is none, and goes into one that lives, or that comes back.
func TestDeliver_AForbiddenFirstSpawnStartsNothing(t *testing.T) {
	forbid := func(c *deliver.Config) { c.Forbids = func(k deliver.Kind) bool { return k == request(id).Kind } }
	b := newBench(absent(), forbid)
	d := b.ask(t, id).Delivery
	if d.Outcome != dispatch.Dropped || d.Reason != dispatch.ReasonSpawnForbidden || b.host.World().Fresh != 0 || !strings.Contains(d.Remedy, "first_spawn") {
		t.Errorf("%+v", d)
	}
	for name, w := range map[string]delivertest.World{"live": live(delivertest.World{}), "dead": dead(delivertest.World{})} {
		b := newBench(w, forbid)
		b.store.Put(*recorded("c1"))
		if d := b.ask(t, id).Delivery; d.Outcome != dispatch.Delivered {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestRequest_TakesEveryKindAndNoOther(t *testing.T) {
	for _, k := range deliver.Kinds() {
		if !k.Valid() {
			t.Errorf("%q is listed and refused", k)
		}
	}
	for _, k := range []deliver.Kind{"", "other"} {
		if k.Valid() {
			t.Errorf("%q is taken", k)
		}
	}
}
