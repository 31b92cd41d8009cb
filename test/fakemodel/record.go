package fakemodel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kind says whose words a Message is.
type Kind string

// The kinds of messages.
const (
	// KindUser is what a person, or whoever types for one, told the agent.
	KindUser Kind = "user"
	// KindTool is the result of a tool that the model called.
	KindTool Kind = "tool"
	// KindOwn is what the agent asked for itself, in a request that offers no tools.
	KindOwn Kind = "own"
)

// Message is one text that reached the model and is newer than all that the model had said in its conversation.
type Message struct {
	// Seq counts the messages from 1, in the order of arrival.
	Seq int `json:"seq"`
	// Request counts the requests from 1, those without a message too: a request may carry several.
	Request int `json:"request"`
	// Time is when the request arrived, in UTC.
	Time time.Time `json:"time"`
	// API is responses or chat.
	API string `json:"api"`
	// Conversation is what the agent calls it: the thread of codex, the session of opencode. Empty when it says nothing.
	Conversation string `json:"conversation,omitempty"`
	// Kind says whose words they are.
	Kind Kind `json:"kind"`
	// Again is set when an earlier request of the conversation carried the same text at the same place: an agent that tries again, or that
	// was interrupted before the model had said anything, repeats itself. Never set where Conversation is empty.
	Again bool `json:"again,omitempty"`
	// Bytes is the length of the text.
	Bytes int `json:"bytes"`
	// SHA256 is the sum of the text in hexadecimal.
	SHA256 string `json:"sha256"`
	// Text is the exact text.
	Text string `json:"text"`
}

// Prompts returns what users said, each text once as often as it was said: no tool results, no requests of the agent's own, no repetitions.
func Prompts(all []Message) []Message {
	var out []Message
	for _, m := range all {
		if m.Kind == KindUser && !m.Again {
			out = append(out, m)
		}
	}
	return out
}

// conversation reads the id that codex and opencode send along.
func conversation(h http.Header) string {
	for _, name := range []string{"Thread-Id", "X-Session-Id"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

func (s *Server) record(req request) {
	now := time.Now().UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	place := 0
	news := req.news()
	for i, e := range req.entries {
		if e.by != byUser && e.by != byTool {
			continue
		}
		place++
		m := Message{
			Request: s.requests, Time: now, API: req.api, Conversation: req.conversation, Kind: req.kind(e),
			Bytes: len(e.text), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(e.text))), Text: e.text,
		}
		key := fmt.Sprint(m.Conversation, " ", m.Kind, " ", place, " ", m.SHA256)
		m.Again = m.Conversation != "" && s.seen[key]
		s.seen[key] = true
		if i < news {
			continue
		}
		m.Seq = len(s.received) + 1
		s.received = append(s.received, m)
		s.write(m)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) write(m Message) {
	if s.log == nil {
		return
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = s.log.Write(append(line, '\n'))
	}
	s.logErr = errors.Join(s.logErr, err)
}

// summary is for people who wonder why a wait was in vain.
func summary(all []Message) string {
	const head = 60
	parts := make([]string, 0, len(all))
	for _, m := range all {
		text := m.Text
		if len(text) > head {
			text = text[:head] + "…"
		}
		again := ""
		if m.Again {
			again = " again"
		}
		parts = append(parts, fmt.Sprintf("%s%s %q", m.Kind, again, text))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
