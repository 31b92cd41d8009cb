package ledger

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Verb is what a comment orders muxpost to do.
type Verb string

// The verbs. The list is closed: anything else is answered with it.
const (
	// VerbPause holds the item's events back, and VerbResume ends that.
	VerbPause  Verb = "pause"
	VerbResume Verb = "resume"
	// VerbStop ends the item's agent; its next event brings it back.
	VerbStop Verb = "stop"
	// VerbRetry has events of the item tried again that gave up or were dropped.
	VerbRetry Verb = "retry"
	// VerbStatus says how the item stands.
	VerbStatus Verb = "status"
	// VerbCleanup removes the item's working tree, if its agent has ended and nothing would be lost.
	VerbCleanup Verb = "cleanup"
	// VerbTeam begins the run of the team that is configured for the item, or of the one that is named.
	VerbTeam Verb = "team"
)

// Verbs lists every verb with what it does, in the order in which people are told.
func Verbs() []struct{ Verb, Does string } {
	return []struct{ Verb, Does string }{
		{string(VerbPause), "hold the events of this item back"},
		{string(VerbResume), "let them go in again"},
		{string(VerbStop), "end its agent; the next event brings it back with its conversation"},
		{string(VerbRetry), "try its events again that gave up or were dropped"},
		{string(VerbStatus), "say how it stands"},
		{string(VerbCleanup), "remove its working tree, if its agent has ended and nothing would be lost"},
		{string(VerbTeam), "run the team that is configured for it, or the one that you name behind it"},
	}
}

const (
	// commandWord begins a command.
	commandWord = "/muxpost"
	// maxArgs bounds the words behind a verb, and maxArg each of them, in bytes.
	maxArgs = 20
	maxArg  = 64
)

// Command is an order in a comment.
type Command struct {
	// Verb is one of Verbs, or whatever else stood there, in lower case; empty when nothing did.
	Verb Verb
	// Args are the words behind it, up to a number of them.
	Args []string
}

// Known reports whether there is such a verb.
func (c Command) Known() bool {
	return slices.ContainsFunc(Verbs(), func(v struct{ Verb, Does string }) bool { return v.Verb == string(c.Verb) })
}

// Name is its verb where that is known, for logs: nothing that somebody wrote.
func (c Command) Name() string {
	if !c.Known() {
		return "unknown"
	}
	return string(c.Verb)
}

// String returns the command as it would be written.
func (c Command) String() string {
	return strings.Join(append([]string{commandWord}, append(strings.Fields(string(c.Verb)), c.Args...)...), " ")
}

// ParseCommand reads a comment's text: a command is all of its first line that is not blank, and the line begins with /muxpost. In a block of
// code, a quotation or a later line it is none. What stands below the first line is not read.
func ParseCommand(body string) (Command, bool) {
	line := firstLine(body)
	// Four blanks make a block of code.
	text := strings.TrimLeft(line, " ")
	after, found := strings.CutPrefix(text, commandWord)
	if !found || len(line)-len(text) > 3 || after != "" && after[0] != ' ' && after[0] != '\t' {
		return Command{}, false
	}
	var c Command
	for i, word := range strings.Fields(after) {
		word = plainWord(word)
		switch {
		case i == 0:
			c.Verb = Verb(strings.ToLower(word))
		case word != "" && len(c.Args) < maxArgs:
			c.Args = append(c.Args, word)
		}
	}
	return c, true
}

func firstLine(body string) string {
	for len(body) > 0 {
		end := strings.IndexAny(body, "\r\n")
		line := body
		if end >= 0 {
			line, body = body[:end], body[end+1:]
		} else {
			body = ""
		}
		if strings.TrimSpace(line) != "" {
			return line
		}
	}
	return ""
}

// plainWord leaves of a word what can stand in a record and be shown.
func plainWord(word string) string {
	word = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune("`<>", r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(word, ""))
	for len(word) > maxArg {
		_, size := utf8.DecodeLastRuneInString(word)
		word = word[:len(word)-size]
	}
	return word
}
