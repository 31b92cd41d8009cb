package fakemodel

import (
	"encoding/json"
	"slices"
	"strings"
)

type (
	object = map[string]any
	body   []byte
)

const (
	apiResponses = "responses"
	apiChat      = "chat"
)

// by says who wrote an entry of a conversation. What instructs the model is by nobody.
type by int

const (
	byNobody by = iota
	byUser
	byModel
	byTool
)

type entry struct {
	by   by
	text string
}

// request is what both APIs ask, in one form.
type request struct {
	api          string
	conversation string
	model        string
	stream       bool
	usage        bool
	entries      []entry
	tools        []tool
}

// news is the index of the first entry behind all that the model said.
func (r request) news() int {
	for i, e := range slices.Backward(r.entries) {
		if e.by == byModel {
			return i + 1
		}
	}
	return 0
}

// own reports whether the agent asks for itself. Whoever works for a user is offered tools.
func (r request) own() bool { return len(r.tools) == 0 }

func (r request) kind(e entry) Kind {
	switch {
	case r.own():
		return KindOwn
	case e.by == byTool:
		return KindTool
	default:
		return KindUser
	}
}

// readResponses reads a request of the Responses API.
func readResponses(data body) (request, error) {
	var in struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
		Tools  []struct {
			Name       string     `json:"name"`
			Parameters parameters `json:"parameters"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return request{}, err
	}
	r := request{api: apiResponses, model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		r.tools = append(r.tools, tool{t.Name, t.Parameters})
	}
	var one string
	if json.Unmarshal(in.Input, &one) == nil {
		r.entries = []entry{{byUser, one}}
		return r, nil
	}
	var items []struct {
		Type    string  `json:"type"`
		Role    string  `json:"role"`
		Content content `json:"content"`
		Output  content `json:"output"`
	}
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return request{}, err
	}
	for _, item := range items {
		switch {
		case item.Type == "message" || item.Type == "":
			r.add(item.Role, item.Content)
		case strings.HasSuffix(item.Type, "_output"):
			r.entries = append(r.entries, entry{byTool, strings.Join(item.Output, "\n")})
		default: // calls and reasoning
			r.entries = append(r.entries, entry{by: byModel})
		}
	}
	return r, nil
}

// readChat reads a request of the Chat Completions API.
func readChat(data body) (request, error) {
	var in struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name       string     `json:"name"`
				Parameters parameters `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return request{}, err
	}
	r := request{api: apiChat, model: in.Model, stream: in.Stream, usage: in.StreamOptions.IncludeUsage}
	for _, t := range in.Tools {
		r.tools = append(r.tools, tool{t.Function.Name, t.Function.Parameters})
	}
	for _, m := range in.Messages {
		r.add(m.Role, m.Content)
	}
	return r, nil
}

func (r *request) add(role string, texts content) {
	switch role {
	case "assistant":
		r.entries = append(r.entries, entry{by: byModel})
	case "tool":
		r.entries = append(r.entries, entry{byTool, strings.Join(texts, "\n")})
	case "user":
		for _, text := range texts {
			if !isContext(text) {
				r.entries = append(r.entries, entry{byUser, text})
			}
		}
	}
}

// isContext reports whether the agent wrote a text in the user's name.
func isContext(text string) bool {
	for _, prefix := range []string{
		"<environment_context>", "<turn_aborted>", "<user_instructions>", "<user_shell_command>", "<system-reminder>",
		"# AGENTS.md instructions",
	} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// content is a string, or parts of which those with a text matter; null is no text.
type content []string

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*c = content{*text}
		}
		return nil
	}
	var parts []struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		if p.Text != nil {
			*c = append(*c, *p.Text)
		}
	}
	return nil
}
