package channel

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// server is as much of an app-server as a delivery meets. What it says was taken from codex-cli 0.171.0, which test/harnesses meets.
type server struct {
	t *testing.T

	mu      sync.Mutex
	threads []*conversation
	// started are the texts of the turns that were asked for.
	started []string
	// refuses, mute and late say how it answers a turn: with an error, by hanging up, or while the message shows only later.
	refuses, mute bool
	late          time.Duration
}

// conversation is a thread of the server's.
type conversation struct {
	id, preview, status string
	flags               []string
	ephemeral           bool
	source              string
	deliveries          []string
}

type object = map[string]any

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxMessage)
	for {
		_, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		var in struct {
			ID     *int   `json:"id"`
			Method string `json:"method"`
			Params struct {
				ThreadID            string `json:"threadId"`
				ClientUserMessageID string `json:"clientUserMessageId"`
				Input               []struct{ Text string }
			} `json:"params"`
		}
		if err := json.Unmarshal(data, &in); err != nil {
			s.t.Error(err)
			return
		}
		if in.ID == nil {
			continue
		}
		// It tells what nobody asked for, and asks for approvals under numbers of its own.
		s.say(r.Context(), conn, object{"method": "thread/status/changed", "params": object{}})
		s.say(r.Context(), conn, object{"id": *in.ID, "method": "item/commandExecution/requestApproval", "params": object{}})
		result, refusal := s.answer(in.Method, in.Params.ThreadID, in.Params.ClientUserMessageID, in.Params.Input)
		switch {
		case refusal != "":
			s.say(r.Context(), conn, object{"id": *in.ID, "error": object{"code": -32600, "message": refusal}})
		case result == nil:
			return
		default:
			s.say(r.Context(), conn, object{"id": *in.ID, "result": result})
		}
	}
}

func (s *server) say(ctx context.Context, conn *websocket.Conn, message object) {
	data, err := json.Marshal(message)
	if err != nil {
		s.t.Error(err)
	}
	_ = conn.Write(ctx, websocket.MessageText, data)
}

func (s *server) answer(method, thread, delivery string, input []struct{ Text string }) (result any, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c *conversation
	var ids []string
	for _, other := range s.threads {
		if ids = append(ids, other.id); other.id == thread {
			c = other
		}
	}
	switch method {
	case "initialize":
		return object{"userAgent": "codex"}, ""
	case "thread/loaded/list":
		return object{"data": append(ids, "closed just now")}, ""
	}
	if c == nil {
		return nil, "thread not found"
	}
	switch method {
	case "thread/read":
		return object{"thread": object{"id": c.id, "preview": c.preview, "ephemeral": c.ephemeral, "parentThreadId": nil, "threadSource": c.source,
			"status": object{"type": c.status, "activeFlags": c.flags}}}, ""
	case "thread/turns/list":
		if c.preview == "" {
			return nil, "list_turns is not supported yet"
		}
		items := []object{{"type": "agentMessage", "text": "hello"}, {"type": "userMessage", "clientId": nil}}
		for _, d := range c.deliveries {
			items = append(items, object{"type": "userMessage", "clientId": d})
		}
		return object{"data": []object{{"items": items}}}, ""
	case "turn/start":
		if s.refuses {
			return nil, "direct input is not accepted"
		}
		s.started = append(s.started, input[0].Text)
		take := func() { c.preview, c.deliveries = "said", append(c.deliveries, delivery) }
		if s.late > 0 {
			time.AfterFunc(s.late, func() { s.mu.Lock(); defer s.mu.Unlock(); take() })
		} else {
			take()
		}
		if s.mute {
			return nil, ""
		}
		return object{"turn": object{"id": "t1"}}, ""
	}
	return nil, "unknown method"
}

func appServer(t *testing.T, threads ...*conversation) (*Sockets, *server) {
	t.Helper()
	s, on := opened(t), &server{t: t, threads: threads}
	served(t, s, "s1", on.serve)
	return s, on
}

var toApp = host.Line{Kind: settings.ChannelAppServer, Stamp: "s1"}

func user(id, preview, status string) *conversation {
	return &conversation{id: id, preview: preview, status: status, source: "user"}
}

func TestAppServer_HandsOverOnceIntoTheOneConversationOfThePersons(t *testing.T) {
	title := user("title", "said", "idle")
	title.ephemeral, title.source = true, "thread_title"
	helper := user("helper", "said", "idle")
	helper.source = "subagent"
	s, on := appServer(t, title, user("mine", "said", "idle"), helper)
	if is, err := s.Ask(t.Context(), toApp, "delivery-0001"); err != nil || is != (host.Standing{Conversation: "mine"}) {
		t.Errorf("%+v, %v", is, err)
	}
	for range 2 {
		is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "/quit"})
		if err != nil || is != (host.Standing{Taken: true, Conversation: "mine"}) || len(on.started) != 1 || on.started[0] != "/quit" {
			t.Errorf("%+v, %v, %q", is, err, on.started)
		}
	}
}

func TestAppServer_TheFirstPromptGoesIntoTheFreshConversation(t *testing.T) {
	s, _ := appServer(t, user("fresh", "", "idle"))
	if is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "hello"}); err != nil || !is.Taken || is.Conversation != "fresh" {
		t.Errorf("%+v, %v", is, err)
	}
}

// Which of several is in the pane, the server does not say; what one of them has is found in each.
func TestAppServer_OfSeveralConversationsNoneIsChosen(t *testing.T) {
	one, two := user("one", "said", "idle"), user("two", "said", "idle")
	one.deliveries = []string{"delivery-0001"}
	for _, threads := range [][]*conversation{{two, one}, {one, user("fresh", "", "idle")}} {
		s, on := appServer(t, threads...)
		if is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0002", Text: "x"}); err != nil || is != (host.Standing{}) || len(on.started) != 0 {
			t.Errorf("%+v, %v, %q", is, err, on.started)
		}
		if is, err := s.Ask(t.Context(), toApp, "delivery-0001"); err != nil || is != (host.Standing{Taken: true, Conversation: "one"}) {
			t.Errorf("%+v, %v", is, err)
		}
	}
}

func TestAppServer_ATurnAndAQuestionAreToldAndNothingIsHandedOver(t *testing.T) {
	asking := user("mine", "said", "active")
	s, on := appServer(t, asking)
	if is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "x"}); err != nil || is != (host.Standing{Conversation: "mine", Busy: true}) {
		t.Errorf("%+v, %v", is, err)
	}
	asking.flags = []string{"waitingOnApproval"}
	is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "x", Busy: true})
	if err != nil || !is.Dialog || is.Taken || len(on.started) != 0 {
		t.Errorf("%+v, %v, %q", is, err, on.started)
	}
}

// An answer that was lost is no reason to start a second turn, also while the first does not show yet.
func TestAppServer_WhatMayHaveBeenHandedOverIsWatchedForBeforeItIsHandedOverAgain(t *testing.T) {
	s, on := appServer(t, user("mine", "said", "idle"))
	on.mute, on.late = true, time.Second
	_, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "once"})
	if err == nil || errors.Is(err, host.ErrNobodyListens) {
		t.Fatalf("a lost answer is called certain: %v", err)
	}
	is, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "once", Again: true})
	if err != nil || !is.Taken || len(on.started) != 1 {
		t.Errorf("%+v, %v, %q", is, err, on.started)
	}
}

func TestAppServer_WhatItRefusesIsCertain(t *testing.T) {
	s, on := appServer(t, user("mine", "said", "idle"))
	on.refuses = true
	if _, err := s.Hand(t.Context(), toApp, host.Offer{ID: "delivery-0001", Text: "x"}); !errors.Is(err, host.ErrNobodyListens) {
		t.Error(err)
	}
	if _, err := s.Ask(t.Context(), host.Line{Kind: settings.ChannelAppServer, Stamp: "s2"}, "delivery-0001"); !errors.Is(err, host.ErrNobodyListens) {
		t.Error(err)
	}
	stays := make(chan struct{})
	t.Cleanup(func() { close(stays) })
	served(t, s, "s3", func(http.ResponseWriter, *http.Request) { <-stays })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Ask(ctx, host.Line{Kind: settings.ChannelAppServer, Stamp: "s3"}, "delivery-0001"); err == nil || errors.Is(err, host.ErrNobodyListens) {
		t.Errorf("one that does not answer is not there: %v", err)
	}
}
