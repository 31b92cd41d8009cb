package fakemodel

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"
)

var chatUsage = object{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}

// newID is unique in all lives of the server: agents keep the ids of what they were answered.
func newID(prefix string) string { return prefix + "_" + strings.ToLower(rand.Text()) }

// writeChat answers the Chat Completions API, as a stream or in one piece.
func writeChat(ctx context.Context, w http.ResponseWriter, req request, a answer) error {
	if req.stream {
		return streamChat(ctx, w, req, a)
	}
	if err := pause(ctx, a.dur); err != nil {
		return err
	}
	message := object{"role": "assistant", "content": strings.Join(a.said(), "")}
	if a.call != nil {
		message["content"], message["tool_calls"] = nil, []object{a.call.chat()}
	}
	value := chat("chat.completion", req)
	value["choices"] = []object{{"index": 0, "message": message, "finish_reason": a.finish()}}
	value["usage"] = chatUsage
	writeJSON(w, http.StatusOK, value)
	return nil
}

func streamChat(ctx context.Context, w http.ResponseWriter, req request, a answer) error {
	s := begin(ctx, w, a.dur, a.pieces())
	value := chat("chat.completion.chunk", req)
	chunk := func(delta object, finish any) {
		value["choices"] = []object{{"index": 0, "delta": delta, "finish_reason": finish}}
		s.send("", value)
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	if a.call != nil {
		s.pace()
		c := a.call.chat()
		c["index"] = 0
		chunk(object{"tool_calls": []object{c}}, nil)
	} else {
		for _, word := range a.said() {
			s.pace()
			chunk(object{"content": word}, nil)
		}
	}
	chunk(object{}, a.finish())
	if req.usage {
		value["choices"], value["usage"] = []object{}, chatUsage
		s.send("", value)
	}
	s.raw("data: [DONE]\n\n")
	return s.err
}

// chat is what an answer, and every chunk of one, has in common.
func chat(kind string, req request) object {
	return object{"id": newID("chatcmpl"), "object": kind, "created": time.Now().Unix(), "model": req.model}
}

func (c *call) chat() object {
	return object{"id": newID("call"), "type": "function", "function": object{"name": c.name, "arguments": c.arguments}}
}

// finish is why the answer ends, in the words of the Chat Completions API.
func (a answer) finish() string {
	if a.call != nil {
		return "tool_calls"
	}
	return "stop"
}
