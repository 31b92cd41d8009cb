package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultWords = 8
	maxNumber    = 100_000 // seconds are more than a day then: enough for a hang, and for as many words
)

// answer is what will be said. Of an error there is a status, of a call its tool, and otherwise words.
type answer struct {
	hang    time.Duration
	dur     time.Duration
	status  int
	problem string
	words   int
	call    *call
}

// direct decides by the newest text of the user. A directive that makes no sense is an error, for whoever wrote the test.
func direct(req request) answer {
	a := answer{words: defaultWords}
	if req.own() || len(req.entries) == 0 {
		return a
	}
	newest := req.entries[len(req.entries)-1]
	if newest.by != byUser {
		return a
	}
	for line := range strings.Lines(newest.text) {
		for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
			if command, ok := strings.CutPrefix(line, "zz:tool="); ok {
				a.call = shellCall(req.tools, command)
				if a.call == nil {
					a.refuse("zz:tool: the request offers no shell that is known here")
				}
				break
			}
			word := strings.Fields(line)[0]
			line = line[len(word):]
			if directive, ok := strings.CutPrefix(word, "zz:"); ok {
				a.follow(directive)
			}
		}
	}
	return a
}

func (a *answer) refuse(problem string) { a.status, a.problem = http.StatusBadRequest, problem }

func (a *answer) follow(directive string) {
	name, value, _ := strings.Cut(directive, "=")
	number, err := strconv.ParseFloat(value, 64)
	valid := err == nil && number >= 0 && number <= maxNumber // which NaN is not
	n, d := int(number), time.Duration(number*float64(time.Second))
	switch {
	case !valid:
		a.refuse(fmt.Sprintf("zz:%s: a number up to %d is missing", directive, maxNumber))
	case name == "dur":
		a.dur = d
	case name == "hang":
		a.hang = d
	case name == "len" && n > 0:
		a.words = n
	case name == "http" && n >= http.StatusBadRequest && n < 600:
		a.status, a.problem = n, "as the prompt asked for"
	default:
		a.refuse("zz:" + directive + ": no such directive, or out of its range")
	}
}

// said is what is streamed when there is no call: words with their spaces, that together are the text.
func (a answer) said() []string {
	vocabulary := strings.Fields("The fake model answers in plain words that say nothing.")
	out := make([]string, a.words)
	for i := range out {
		out[i] = vocabulary[i%len(vocabulary)]
		if i > 0 {
			out[i] = " " + out[i]
		}
	}
	return out
}

// pieces is how many parts of the answer share its time.
func (a answer) pieces() int {
	if a.call != nil {
		return 1
	}
	return a.words
}

// tool is one that a request offers.
type tool struct {
	name       string
	parameters parameters
}

type parameters struct {
	Properties map[string]struct {
		Type any      `json:"type"`
		Enum []string `json:"enum"`
	} `json:"properties"`
}

// call is a call of a tool; the arguments are JSON.
type call struct {
	name, arguments string
}

// shells are the names that agents give to their shell, codex's newest first.
var shells = []string{"exec_command", "shell_command", "shell", "bash", "run_shell_command"}

// shellCall calls the shell that is offered, with the arguments that its schema has. Nil means that none is.
func shellCall(tools []tool, command string) *call {
	for _, name := range shells {
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
		if i < 0 {
			continue
		}
		has := tools[i].parameters.Properties
		arguments := object{}
		for _, key := range []string{"cmd", "command"} {
			if p, ok := has[key]; ok {
				arguments[key] = command
				if p.Type == "array" {
					arguments[key] = []string{"sh", "-c", command}
				}
			}
		}
		if p, ok := has["sandbox_permissions"]; ok && slices.Contains(p.Enum, "require_escalated") {
			// codex asks a person only about what would leave its sandbox.
			arguments["sandbox_permissions"], arguments["justification"] = "require_escalated", "the prompt asked for it"
		}
		if _, ok := has["description"]; ok {
			arguments["description"] = "Does what the prompt asked for"
		}
		if _, ok := has["is_background"]; ok {
			arguments["is_background"] = false
		}
		data, err := json.Marshal(arguments)
		if err != nil {
			return nil
		}
		return &call{name, string(data)}
	}
	return nil
}
