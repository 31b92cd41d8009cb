package fakemodel

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// responding is one answer of the Responses API as it is written.
type responding struct {
	*stream
	id       string
	model    string
	sequence int
}

// writeResponses streams an answer of the Responses API.
func writeResponses(ctx context.Context, w http.ResponseWriter, req request, a answer) error {
	if !req.stream { // no agent asks for the whole in one piece
		refuse(w, http.StatusBadRequest, "the Responses API of fakemodel only streams: ask with stream=true")
		return nil
	}
	r := &responding{stream: begin(ctx, w, a.dur, a.pieces()), id: newID("resp"), model: req.model}
	r.event("response.created", object{"response": r.response("in_progress", []object{})})
	var item object
	if a.call != nil {
		item = r.writeCall(a.call)
	} else {
		item = r.writeWords(a.said())
	}
	r.event("response.output_item.done", object{"output_index": 0, "item": item})
	r.event("response.completed", object{"response": r.response("completed", []object{item})})
	return r.err
}

// event sends one event, which carries its type and number in itself.
func (r *responding) event(name string, value object) {
	value["type"], value["sequence_number"] = name, r.sequence
	r.sequence++
	r.send(name, value)
}

func (r *responding) response(status string, output []object) object {
	value := object{"id": r.id, "object": "response", "created_at": time.Now().Unix(), "status": status, "model": r.model, "output": output}
	if status == "completed" {
		value["usage"] = object{
			"input_tokens": 10, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": 10, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 20,
		}
	}
	return value
}

func (r *responding) writeCall(c *call) object {
	id := newID("fc")
	item := func(status, arguments string) object {
		return object{"id": id, "type": "function_call", "status": status, "call_id": "call_" + id, "name": c.name, "arguments": arguments}
	}
	at := func(key, value string) object { return object{"item_id": id, "output_index": 0, key: value} }
	r.event("response.output_item.added", object{"output_index": 0, "item": item("in_progress", "")})
	r.pace()
	r.event("response.function_call_arguments.delta", at("delta", c.arguments))
	r.event("response.function_call_arguments.done", at("arguments", c.arguments))
	return item("completed", c.arguments)
}

func (r *responding) writeWords(words []string) object {
	id := newID("msg")
	text := strings.Join(words, "")
	part := func(text string) object {
		return object{"type": "output_text", "text": text, "annotations": []object{}}
	}
	item := func(status string, parts ...object) object {
		return object{"id": id, "type": "message", "status": status, "role": "assistant", "content": append([]object{}, parts...)}
	}
	at := func(key string, value any) object {
		return object{"item_id": id, "output_index": 0, "content_index": 0, key: value}
	}
	r.event("response.output_item.added", object{"output_index": 0, "item": item("in_progress")})
	r.event("response.content_part.added", at("part", part("")))
	for _, word := range words {
		r.pace()
		r.event("response.output_text.delta", at("delta", word))
	}
	r.event("response.output_text.done", at("text", text))
	r.event("response.content_part.done", at("part", part(text)))
	return item("completed", part(text))
}
