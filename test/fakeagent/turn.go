package main

import (
	"strconv"
	"strings"
	"time"
)

// turn is the time during which the agent works on one prompt.
type turn struct {
	runes  int
	start  time.Time
	end    time.Time
	ask    bool      // a permission dialog opens in this turn
	askAt  time.Time // when
	asked  bool      // and it has been open already
	stream bool      // the screen looks idle
	fail   string    // it fails: a key of problems
	exit   bool      // the program ends with the turn
	code   int       // with this status
}

// problems are what a turn can fail with.
var problems = map[string]string{
	"limit": "You have hit your usage limit; try again later",
	"login": "You are not logged in",
	"model": "The model does not answer",
}

// newTurn reads the directives of a prompt. A directive with a value that cannot be read is ignored, as any word is.
func newTurn(text string, runes int, now time.Time, length time.Duration) *turn {
	t := &turn{runes: runes, start: now}
	ask := time.Duration(-1)
	for word := range strings.FieldsSeq(text) {
		directive, ok := strings.CutPrefix(word, "zz:")
		if !ok {
			continue
		}
		name, value, _ := strings.Cut(directive, "=")
		switch name {
		case "dur":
			if d, err := time.ParseDuration(value); err == nil && d >= 0 {
				length = d
			}
		case "dialog":
			t.ask = true
			if d, err := time.ParseDuration(value); err == nil && d >= 0 {
				ask = d
			}
		case "fail":
			t.fail = value
		case "stream":
			t.stream = true
		case "exit":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 && n <= 255 {
				t.exit, t.code = true, n
			}
		}
	}
	t.end = now.Add(length)
	t.askAt = t.end
	if ask >= 0 {
		t.askAt = now.Add(ask)
	}
	return t
}
