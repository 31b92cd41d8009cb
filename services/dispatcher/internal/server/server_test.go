package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// records holds what a list returns, by the limit and position that it is asked for.
type records struct {
	deliveries []deliver.Delivery
	sessions   []deliver.Shown
	events     deliver.EventQuery
	page       deliver.EventPage
	asked      deliver.DeliveryQuery
	superseded []deliver.Superseded
	pauses     []deliver.Pause
	parks      []deliver.Park
	endings    []deliver.Ending
}

func (r *records) Delivery(_ context.Context, id string) (deliver.Delivery, error) {
	return deliver.Delivery{}, fault.New(fault.NotFound, fault.ReasonDeliveryNotFound, "no delivery "+id)
}

func (r *records) Deliveries(_ context.Context, q deliver.DeliveryQuery) ([]deliver.Delivery, error) {
	r.asked = q
	for i, d := range r.deliveries {
		if q.BeforeID == "" {
			return r.deliveries[:min(q.Limit, len(r.deliveries))], nil
		}
		if d.ID == q.BeforeID && d.CreatedAt.Equal(q.BeforeTime) {
			rest := r.deliveries[i+1:]
			return rest[:min(q.Limit, len(rest))], nil
		}
	}
	return nil, nil
}

func (r *records) Shown(_ context.Context, q deliver.SessionQuery) (out []deliver.Shown, err error) {
	for _, s := range r.sessions {
		if s.WorkItem > q.After && (q.WorkItem == "" || q.WorkItem == s.WorkItem) && len(out) < q.Limit {
			out = append(out, s)
		}
	}
	return out, nil
}

func (r *records) Pauses(_ context.Context, q deliver.PauseQuery) (out []deliver.Pause, err error) {
	for _, p := range r.pauses {
		if (q.After == nil || p.WorkItem > *q.After) && len(out) < q.Limit {
			out = append(out, p)
		}
	}
	return out, nil
}

func (r *records) Superseded(_ context.Context, q deliver.SupersededQuery) ([]deliver.Superseded, error) {
	for i, o := range r.superseded {
		if q.AfterItem == "" || o.Host == q.AfterHost && o.WorkItem == q.AfterItem {
			rest := r.superseded[i:]
			if q.AfterItem != "" {
				rest = rest[1:]
			}
			return rest[:min(q.Limit, len(rest))], nil
		}
	}
	return nil, nil
}

func (r *records) Endings(_ context.Context, q deliver.EndingQuery) (out []deliver.Ending, err error) {
	for _, e := range r.endings {
		if e.WorkItem > q.After && (q.WorkItem == "" || q.WorkItem == e.WorkItem) && len(out) < q.Limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func (r *records) Parks(_ context.Context, q deliver.ParkQuery) (out []deliver.Park, err error) {
	for _, p := range r.parks {
		if p.WorkItem > q.After && len(out) < q.Limit {
			out = append(out, p)
		}
	}
	return out, nil
}

func (r *records) Events(_ context.Context, q deliver.EventQuery) (deliver.EventPage, error) {
	r.events = q
	return r.page, nil
}

// prober answers each item after a time, or never.
type prober struct {
	host string
	slow map[string]bool
	// looked is set by a look at a screen; following and until are what Followed says.
	looked    *bool
	following bool
	until     time.Time
	// tree is the answer to the removal of a working tree.
	tree error
}

func (p prober) RemoveTree(context.Context, string, string, string) error { return p.tree }

func (p prober) Followed(string) (bool, time.Time) { return p.following, p.until }

func (p prober) Builds() []deliver.Build {
	return []deliver.Build{{Program: "tmuxd", Commit: "abc", Dirty: true, Host: p.host}}
}

func (p prober) Statuses() []deliver.HostStatus {
	return []deliver.HostStatus{{Name: p.host, Reached: true, Live: 2, Capacity: 5, Labels: map[string]string{"gpu": "yes"}}}
}

func (p prober) Sync(context.Context) error { return nil }

func (p prober) Show(ctx context.Context, _, workItem string, look bool) deliver.Sight {
	if p.looked != nil {
		*p.looked = look
	}
	if p.slow[workItem] {
		<-ctx.Done()
		return deliver.Sight{Host: p.host, Probe: dispatch.ProbeUnreachable, Detail: "no answer in time"}
	}
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	return deliver.Sight{Host: p.host, Probe: dispatch.ProbeLive, Detail: "alive", ConversationID: "c1", Incarnation: deliver.Incarnation{Stamp: "st1"},
		Doing: deliver.Doing{Activity: deliver.Working, Since: time.Unix(7, 0), SeenAt: time.Unix(8, 0)}}
}

func TestListDeliveries_GoesPageByPage(t *testing.T) {
	r := &records{}
	for i := range 5 {
		r.deliveries = append(r.deliveries, deliver.Delivery{
			ID: fmt.Sprintf("delivery-%d", i), CreatedAt: time.UnixMicro(1_700_000_000_123_456 - int64(i)).UTC(), Kind: deliver.Comment,
		})
	}
	s, seen, token := New(Config{Records: r}), "", ""
	for {
		page, err := s.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.GetDeliveries() {
			seen += strings.TrimPrefix(d.GetDeliveryId(), "delivery-")
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != "01234" {
		t.Errorf("the pages hold %s", seen)
	}
}

func TestListSuperseded_GoesPageByPage(t *testing.T) {
	r := &records{}
	var want []string
	for i := range 5 {
		o := deliver.Superseded{Host: "host-" + fmt.Sprint(i/2), WorkItem: fmt.Sprintf("github:o/r#%d", i)}
		r.superseded, want = append(r.superseded, o), append(want, o.WorkItem)
	}
	s, token := New(Config{Records: r}), ""
	var seen []string
	for {
		page, err := s.ListSuperseded(t.Context(), &dispatcherv1.ListSupersededRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.GetSuperseded() {
			seen = append(seen, o.GetWorkItem())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the pages hold %v", seen)
	}
	for _, bad := range []string{"!", itemToken(sessionPrefix, "github:o/r#1"), encode(leftPrefix + "a"), encode(leftPrefix + "|github:o/r#1")} {
		if _, err := s.ListSuperseded(t.Context(), &dispatcherv1.ListSupersededRequest{PageToken: bad}); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLists_RefuseWhatTheyCannotRead(t *testing.T) {
	s := New(Config{Records: &records{}, Hosts: prober{}})
	lists := map[string]func(item, token string, size int32) error{
		"deliveries": func(item, token string, size int32) error {
			_, err := s.ListDeliveries(t.Context(), &dispatcherv1.ListDeliveriesRequest{WorkItem: item, PageToken: token, PageSize: size})
			return err
		},
		"sessions": func(item, token string, size int32) error {
			_, err := s.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{WorkItem: item, PageToken: token, PageSize: size})
			return err
		},
		"events": func(item, token string, size int32) error {
			_, err := s.ListEvents(t.Context(), &dispatcherv1.ListEventsRequest{WorkItem: item, PageSize: size})
			return err
		},
	}
	tokens := []string{
		"!", "eA", encode("x1|y"), encode(deliveryPrefix), encode(deliveryPrefix + "x|delivery-1"), encode(deliveryPrefix + "1|UPPER"),
		encode(deliveryPrefix + "9223372036854775807|delivery-1"), encode(sessionPrefix + "octo"), strings.Repeat("A", maxToken+1),
		base64.StdEncoding.EncodeToString([]byte("d1|1|delivery-1??")),
	}
	for name, list := range lists {
		if err := list("", "", 500); err != nil {
			t.Errorf("%s: a page of 500: %v", name, err)
		}
		for _, size := range []int32{-1, 501} {
			if err := list("", "", size); fault.ReasonOf(err) != fault.ReasonBadArgument {
				t.Errorf("%s: page size %d: %v", name, size, err)
			}
		}
		if err := list("octo#7", "", 1); fault.ReasonOf(err) != fault.ReasonBadWorkItem {
			t.Errorf("%s: %v", name, err)
		}
		for _, token := range tokens {
			if err := list("", token, 1); name != "events" && (!errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != fault.ReasonBadArgument) {
				t.Errorf("%s: token %q: %v", name, token, err)
			}
		}
	}
	// A token of one list means nothing to another.
	if err := lists["sessions"]("", deliveryToken(time.Now(), "delivery-1"), 1); !errors.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestGetDelivery_NotKnownOrMalformed(t *testing.T) {
	s := New(Config{Records: &records{}})
	for id, want := range map[string]fault.Kind{"delivery-1": fault.NotFound, "x": fault.Invalid, "": fault.Invalid} {
		if _, err := s.GetDelivery(t.Context(), &dispatcherv1.GetDeliveryRequest{DeliveryId: id}); !errors.Is(err, want) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func sessions(n int) *records {
	r := &records{}
	for i := range n {
		r.sessions = append(r.sessions, deliver.Shown{Session: deliver.Session{WorkItem: fmt.Sprintf("github:o/r#%03d", i+100), Host: "a"}})
	}
	return r
}

func TestListSessions_AsksTheHostInParallelAndNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]bool{"github:o/r#110": true, "github:o/r#120": true}
		s := New(Config{Records: sessions(40), Hosts: prober{host: "a", slow: slow}})
		started := time.Now()
		got, err := s.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{PageSize: 40})
		if err != nil || len(got.GetSessions()) != 40 {
			t.Fatalf("%d sessions, %v", len(got.GetSessions()), err)
		}
		if took := time.Since(started); took > probeTime {
			t.Errorf("it took %v", took)
		}
		for _, record := range got.GetSessions() {
			want := dispatcherv1.SessionState_SESSION_STATE_LIVE
			if slow[record.GetWorkItem()] {
				want = dispatcherv1.SessionState_SESSION_STATE_UNKNOWN
			}
			if record.GetState() != want || record.GetStateDetail() == "" {
				t.Errorf("%v", record)
			}
		}
	})
}

func TestListSessions_WithoutProbeAsksNobody(t *testing.T) {
	s := New(Config{Records: sessions(3), Hosts: prober{}})
	got, err := s.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{PageSize: 2, SkipProbe: true})
	if err != nil || len(got.GetSessions()) != 2 || got.GetSessions()[0].GetState() != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	got, err = s.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{PageSize: 2, SkipProbe: true, PageToken: got.GetNextPageToken()})
	if err != nil || len(got.GetSessions()) != 1 || got.GetNextPageToken() != "" {
		t.Errorf("second page %v, %v", got, err)
	}
}

func TestListSessions_TakesNoOtherHostsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Records: sessions(1), Hosts: prober{host: "b"}})
		got, err := s.ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{})
		if err != nil || got.GetSessions()[0].GetState() != dispatcherv1.SessionState_SESSION_STATE_UNKNOWN ||
			got.GetSessions()[0].GetConversationId() != "" || got.GetSessions()[0].GetActivity() != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestListSessions_TellWhatTheHostKnowsAndTheRecordDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := sessions(2)
		r.sessions[1].ConversationID = "c0"
		got, err := New(Config{Records: r, Hosts: prober{host: "a"}}).ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{})
		if err != nil || got.GetSessions()[0].GetConversationId() != "c1" || got.GetSessions()[1].GetConversationId() != "c0" ||
			got.GetSessions()[0].GetActivity() != dispatcherv1.SessionActivity_SESSION_ACTIVITY_WORKING {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestListSessions_ShowTheConversationThatIsOpenInTheRecordedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := sessions(2)
		for n, stamp := range []string{"st1", "st0"} {
			r.sessions[n].ConversationID, r.sessions[n].Incarnation.Stamp = "c0", stamp
		}
		got, err := New(Config{Records: r, Hosts: prober{host: "a"}}).ListSessions(t.Context(), &dispatcherv1.ListSessionsRequest{})
		if err != nil || got.GetSessions()[0].GetConversationId() != "c1" || got.GetSessions()[1].GetConversationId() != "c0" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestListSessions_WhatWasToldLastStaysWhileNobodyAnswers(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for name, row := range map[string]struct {
		host   prober
		seenAt time.Time
		skip   bool
		want   string
	}{
		"the host answers":             {host: prober{host: "a", following: true}, want: "WORKING since 7"},
		"asked for one":                {host: prober{host: "a"}, want: "WORKING since 7"},
		"away":                         {host: prober{host: "a", slow: map[string]bool{"github:o/r#100": true}, until: at(30)}, want: "IDLE since 9 as of 30"},
		"away since before we started": {host: prober{host: "a", slow: map[string]bool{"github:o/r#100": true}}, want: "IDLE since 9 as of 20"},
		"not asked, and it is heard":   {host: prober{following: true}, skip: true, want: "IDLE since 9"},
		"not asked, seen on a screen":  {host: prober{following: true}, seenAt: at(12), skip: true, want: "IDLE since 9 as of 12"},
		"not asked, and it is away":    {host: prober{until: at(10)}, skip: true, want: "IDLE since 9 as of 20"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, looked := sessions(1), false
				r.sessions[0].Doing, r.sessions[0].ToldAt = deliver.Doing{Activity: deliver.Idle, Since: at(9), SeenAt: row.seenAt}, at(20)
				row.host.looked = &looked
				req := &dispatcherv1.ListSessionsRequest{SkipProbe: row.skip}
				if name == "asked for one" {
					req.WorkItem = "github:o/r#100"
				}
				all, err := New(Config{Records: r, Hosts: row.host}).ListSessions(t.Context(), req)
				if err != nil || looked != (req.GetWorkItem() != "") {
					t.Fatalf("looked %v, %v", looked, err)
				}
				s := all.GetSessions()[0]
				got := fmt.Sprintf("%s since %d", strings.TrimPrefix(s.GetActivity().String(), "SESSION_ACTIVITY_"), s.GetActivitySince().GetSeconds())
				if s.GetActivityAsOf() != nil {
					got += fmt.Sprintf(" as of %d", s.GetActivityAsOf().GetSeconds())
				}
				if got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
			})
		})
	}
}

func TestValues_EveryOneOfCoreHasOneOnTheWire(t *testing.T) {
	seen := map[string]bool{}
	once := func(name string) {
		if strings.HasSuffix(name, "UNSPECIFIED") || seen[name] {
			t.Errorf("%s stands for something else or for nothing", name)
		}
		seen[name] = true
	}
	for _, o := range dispatch.Outcomes() {
		once(outcomeOf(o).String())
	}
	for _, h := range []dispatch.How{
		dispatch.HowPasted, dispatch.HowSpawned, dispatch.HowResumed, dispatch.HowFresh, dispatch.HowAverted, dispatch.HowAlready,
	} {
		once(howOf(h).String())
	}
	for _, k := range deliver.Kinds() {
		once(kindTo(k).String())
		if kindOf(kindTo(k)) != k {
			t.Errorf("%s does not read back", k)
		}
	}
	for number := range dispatcherv1.Outcome_name {
		if name := dispatcherv1.Outcome(number).String(); number != 0 && !seen[name] {
			t.Errorf("nothing is %s", name)
		}
	}
}

func FuzzTokens(f *testing.F) {
	f.Add(deliveryToken(time.UnixMicro(1), "delivery-1"), "x")
	f.Add("", itemToken(sessionPrefix, "github:o/r#1"))
	f.Fuzz(func(t *testing.T, a, b string) {
		if at, id, err := readDeliveryToken(a); err == nil && a != "" {
			if again, sameID, err := readDeliveryToken(deliveryToken(at, id)); err != nil || !again.Equal(at) || sameID != id {
				t.Fatalf("%q reads as %v %s, and then as %v %s, %v", a, at, id, again, sameID, err)
			}
		}
		if item, err := readItemToken(b, sessionPrefix); err == nil && b != "" {
			if again, err := readItemToken(itemToken(sessionPrefix, item), sessionPrefix); err != nil || again != item {
				t.Fatalf("%q reads as %s, and then as %s, %v", b, item, again, err)
			}
		}
	})
}

func TestInfo_AndEveryDeliveryNameTheBuilds(t *testing.T) {
	s := New(Config{Hosts: prober{host: "a"}, Build: deliver.Build{Program: "dispatcher", Release: "v2"}, Deliverer: delivers{}})
	info, err := s.Info(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	delivery, err := s.Deliver(t.Context(), &dispatcherv1.DeliverRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, builds := range [][]*dispatcherv1.Build{info.GetBuilds(), delivery.GetBuilds()} {
		if len(builds) != 2 || builds[0].GetProgram() != "dispatcher" || builds[0].GetRelease() != "v2" || builds[0].GetDirty() ||
			builds[1].GetProgram() != "tmuxd" || builds[1].GetCommit() != "abc" || !builds[1].GetDirty() || builds[1].GetHost() != "a" {
			t.Errorf("%v", builds)
		}
	}
}

// delivers delivers everything.
type delivers struct{ Deliverer }

func (delivers) Deliver(context.Context, deliver.Request) (deliver.Result, error) {
	return deliver.Result{}, nil
}
