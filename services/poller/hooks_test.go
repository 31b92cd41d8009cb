package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

const hookSecret = "a secret of more than sixteen bytes"

// hookedWorld is a world whose source takes webhooks, and is looked at every hour only.
func hookedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, strings.Replace(standard, "interval: 1s", "interval: 1h", 1)+"    webhook: true\n")
	must(t, os.WriteFile(filepath.Join(w.dir, "hook-secret"), []byte(hookSecret+"\n"), 0o600))
	text, err := os.ReadFile(w.config)
	must(t, err)
	must(t, os.WriteFile(w.config, []byte(strings.Replace(string(text), "  workers: 4\n",
		"  workers: 4\n  webhook: {listen: '127.0.0.1:0', secret_file: hook-secret}\n", 1)), 0o600))
	return w
}

// hookAddress returns where a poller that runs receives webhooks.
func (r *running) hookAddress(t *testing.T) string {
	t.Helper()
	address := ""
	eventually(t, "webhooks are received", func() bool {
		for line := range strings.Lines(r.log.String()) {
			var record struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "receiving webhooks" {
				address = record.Address
			}
		}
		return address != ""
	})
	return "http://" + address + "/webhooks/gh"
}

// hook has the fake GitHub send its webhooks to a poller that runs.
func (r *running) hook(t *testing.T) {
	t.Helper()
	r.SetURL(r.url)
	_, err := r.AddHook("acme", "widgets", fakegithub.Hook{URL: r.hookAddress(t), Secret: hookSecret})
	must(t, err)
}

// hookedIssue is a poller that runs and is told by webhooks alone, and an issue whose opening it was told and has delivered.
func hookedIssue(t *testing.T) (*world, *running, int) {
	t.Helper()
	w := hookedWorld(t)
	r := start(t, w)
	eventually(t, "it has been looked at once", w.looked)
	r.hook(t)
	n := w.labelled(t, "alice")
	eventually(t, "the opening event arrives", func() bool { return w.asked() == 1 })
	return w, r, n
}

// delivered returns the webhooks that were sent about an event, and fails where one was not taken.
func (r *running) delivered(t *testing.T, event string) []fakegithub.Delivery {
	t.Helper()
	must(t, r.WaitHooks(t.Context()))
	var out []fakegithub.Delivery
	for _, d := range r.Deliveries() {
		if d.Status/100 != 2 {
			t.Errorf("%s.%s: %d %s", d.Event, d.Action, d.Status, d.Error)
		}
		if d.Event == event {
			out = append(out, d)
		}
	}
	return out
}

func TestHooks_WhatIsToldGoesToTheDispatcherWithoutALook(t *testing.T) {
	w, r, n := hookedIssue(t)
	w.clock.advance(time.Second)
	w.comment(t, n, "alice", "the words that nobody may log")
	eventually(t, "the comment arrives", func() bool { return w.asked() == 2 })
	// Sent again, under its GUID and under another one, and found by a look: nothing comes of it.
	d := r.delivered(t, "issue_comment")[0]
	must(t, w.Redeliver(d.GUID))
	_, err := w.RedeliverAs(d.GUID)
	must(t, err)
	r.delivered(t, "issue_comment")
	eventually(t, "all are handled", func() bool { return r.webhook(t).GetWaiting() == 0 })
	_, err = r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{})
	must(t, err)
	equal(t, "asked", w.asked(), 2)
	state := r.webhook(t)
	equal(t, "on record", []any{state.GetLastReceivedTime() != nil, state.GetFailed(), state.GetLastError(), state.GetLastGap() == nil},
		[]any{true, int32(0), "", true})
	if log := r.log.String(); strings.Contains(log, hookSecret) || strings.Contains(log, "nobody may log") {
		t.Error("the log holds what it must not")
	}
	must(t, r.stop())
	traces, err := filepath.Glob(filepath.Join(w.dir, "traces", "*"))
	must(t, err)
	for _, file := range traces {
		data, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(data), hookSecret) || strings.Contains(string(data), "nobody may log") {
			t.Errorf("%s holds what it must not", file)
		}
	}
}

// webhook returns what is on record of the source's webhooks.
func (r *running) webhook(t *testing.T) *pollerv1.WebhookState {
	t.Helper()
	list, err := r.api.ListSources(t.Context(), &pollerv1.ListSourcesRequest{})
	must(t, err)
	if list.GetSources()[0].GetWebhook() == nil {
		t.Fatal("the source is without webhooks")
	}
	return list.GetSources()[0].GetWebhook()
}

func TestHooks_InAnyOrderTheyComeToTheSame(t *testing.T) {
	w, r, n := hookedIssue(t)
	for seed := range uint64(4) {
		asked := w.asked()
		w.HoldHooks(true)
		w.clock.advance(time.Minute)
		id := w.comment(t, n, "alice", "one")
		w.clock.advance(time.Second)
		w.edit(t, id, "two")
		w.clock.advance(time.Second)
		w.edit(t, id, "three")
		w.ShuffleHeld(seed)
		w.HoldHooks(false)
		r.delivered(t, "issue_comment")
		eventually(t, "all are handled", func() bool { return r.webhook(t).GetWaiting() == 0 })
		eventually(t, "it arrives", func() bool { return w.asked() > asked })
		_, err := r.api.PollNow(t.Context(), &pollerv1.PollNowRequest{})
		must(t, err)
		texts := w.askedTexts()
		if last := texts[len(texts)-1]; !strings.Contains(last, "three") {
			t.Errorf("seed %d: the last word is %q", seed, last)
		}
		equal(t, "failed", r.webhook(t).GetFailed(), int32(0))
	}
}

// hooksAreMissed has events that no webhook told.
func hooksAreMissed(t *testing.T) *parts {
	t.Helper()
	w := hookedWorld(t)
	p := w.open(t)
	look(t, p)
	must(t, p.hooks.handler.Drain(t.Context()))
	sql(t, p, `update poller.hook_sources set since = now() - interval '1 hour', checked_through = now() - interval '5 minutes'`)
	w.clock.advance(-3 * time.Minute) // as if the receiver had been down for so long
	n := w.labelled(t, "alice")
	look(t, p)
	for _, body := range []string{"one", "two", "three", "four"} {
		w.clock.advance(time.Second)
		w.comment(t, n, "alice", body)
	}
	look(t, p)
	// Nobody waits here for what was found to be past its time.
	sql(t, p, `update poller.events set created_at = created_at - interval '2 minutes'`)
	for range 2 {
		must(t, p.hooks.handler.FindGaps(t.Context()))
	}
	return p
}

func TestHooks_WhatHappenedWhileNobodyReceivedIsFoundAndTheGapIsToldOnce(t *testing.T) {
	p := hooksAreMissed(t)
	var gaps []map[string]string
	for _, e := range followed(t, p) {
		if e.Type == ledger.GapFound {
			gaps = append(gaps, e.Fields)
		}
	}
	equal(t, "gaps", len(gaps), 1)
	from, err := time.Parse(time.RFC3339, gaps[0]["from"])
	must(t, err)
	to, err := time.Parse(time.RFC3339, gaps[0]["to"])
	must(t, err)
	equal(t, "count, and for how long", []any{gaps[0]["count"], to.Sub(from)}, []any{"5", 4 * time.Second})
	equal(t, "events that go out", len(entries(t, p)), 5)
}

func TestHooks_FromCronWhatWaitsIsHandled(t *testing.T) {
	w, r, n := hookedIssue(t)
	r.delivered(t, "issues")
	eventually(t, "all are handled", func() bool { return r.webhook(t).GetWaiting() == 0 })
	must(t, r.stop())
	p := w.open(t)
	sql(t, p, `update poller.hooks set state = 'waiting', payload = '\x', next_look = now(), lease_holder = null, lease_until = null where object <> ''`)
	w.comment(t, n, "alice", "in the meantime")
	if _, code, err := once(t, w); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	// A payload that cannot be read is kept, with the reason.
	states, err := p.store.HookStates(t.Context(), []string{"gh"})
	must(t, err)
	if s := states["gh"]; s.Waiting != 0 || s.Failed == 0 || !strings.Contains(s.LastError, "cannot be read") {
		t.Errorf("%+v", s)
	}
	equal(t, "asked", w.asked(), 2)
}

func TestHooks_WithoutASecretThePollerDoesNotStart(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.WriteFile(path, []byte("\n"), 0o600) },
		"missing": os.Remove,
		"known":   func(path string) error { return os.Chmod(path, 0o644) },
	} {
		w := hookedWorld(t)
		must(t, spoil(filepath.Join(w.dir, "hook-secret")))
		where := w.where()
		where.File = w.config
		_, err := settings.LoadService(where, layout.Poller)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "hook-secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHooks_NothingElseAnswersWhereTheyComeIn(t *testing.T) {
	w := hookedWorld(t)
	r := start(t, w)
	base := strings.TrimSuffix(r.hookAddress(t), "/webhooks/gh")
	for _, path := range []string{"/", "/healthz", "/webhooks/", "/webhooks/gh/x", "/muxpost.poller.v1.PollerService/ListLedger"} {
		response, err := http.Post(base+path, "application/json", strings.NewReader("{}"))
		must(t, err)
		response.Body.Close()
		equal(t, path, response.StatusCode, http.StatusNotFound)
	}
}
