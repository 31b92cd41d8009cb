package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCommand_IsTheFirstLineAndNothingElse(t *testing.T) {
	many := strings.Fields(strings.Repeat("x ", maxArgs))
	for name, row := range map[string]struct {
		body string
		want *Command
	}{
		"a verb":                      {"/muxpost pause", &Command{Verb: VerbPause}},
		"with words":                  {"/muxpost pause until  monday\t!", &Command{VerbPause, []string{"until", "monday", "!"}}},
		"below blank lines":           {"\r\n  \r\n/muxpost stop\r\nthanks", &Command{Verb: VerbStop}},
		"up to three blanks":          {"   /muxpost status", &Command{Verb: VerbStatus}},
		"another case":                {"/muxpost Resume", &Command{Verb: VerbResume}},
		"no verb":                     {"/muxpost", &Command{}},
		"no verb, blanks":             {"/muxpost  \t", &Command{}},
		"an unknown verb":             {"/muxpost deploy now", &Command{"deploy", []string{"now"}}},
		"what does not show":          {"/muxpost re\u200btry d\x1b[1m\u202e", &Command{VerbRetry, []string{"d[1m"}}},
		"markup":                      {"/muxpost `stop` <!--x-->", &Command{VerbStop, []string{"!--x--"}}},
		"more words than are kept":    {"/muxpost retry " + strings.Repeat("x ", 99), &Command{VerbRetry, many}},
		"a long word":                 {"/muxpost retry " + strings.Repeat("ü", 99), &Command{VerbRetry, []string{strings.Repeat("ü", 32)}}},
		"nothing":                     {"", nil},
		"a longer word":               {"/muxposts pause", nil},
		"a path":                      {"/muxpost/pause", nil},
		"another case of the word":    {"/Muxpost pause", nil},
		"a later line":                {"please\n/muxpost pause", nil},
		"behind a word":               {"do /muxpost pause", nil},
		"a quotation":                 {"> /muxpost pause", nil},
		"an indented block of code":   {"    /muxpost pause", nil},
		"a block of code by a tab":    {"\t/muxpost pause", nil},
		"a fenced block of code":      {"```\n/muxpost pause\n```", nil},
		"code in a line":              {"`/muxpost pause`", nil},
		"a list":                      {"- /muxpost pause", nil},
		"behind a hidden comment":     {"<!-- x -->\n/muxpost pause", nil},
		"behind what does not show":   {"\u200b/muxpost pause", nil},
		"in a hidden comment":         {"<!--\n/muxpost pause\n-->", nil},
		"a blank that is not a blank": {"/muxpost\u00a0pause", nil},
	} {
		got, ok := ParseCommand(row.body)
		if ok != (row.want != nil) {
			t.Errorf("%s: %v, %v", name, got, ok)
			continue
		}
		if row.want != nil {
			if diff := cmp.Diff(*row.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

func TestCommand_KnowsItsVerbs(t *testing.T) {
	for _, v := range Verbs() {
		if c := (Command{Verb: Verb(v.Verb)}); !c.Known() || v.Does == "" {
			t.Errorf("%v is not known", c)
		}
	}
	for _, verb := range []Verb{"", "deploy", "PAUSE"} {
		if (Command{Verb: verb}).Known() {
			t.Errorf("%q is known", verb)
		}
	}
}

func FuzzParseCommand(f *testing.F) {
	for _, s := range []string{"/muxpost pause a b", "\n\n /muxpost", "\xff/muxpost x", "/muxpost \xff\x00 \u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c, ok := ParseCommand(body)
		if !ok {
			if c.Verb != "" || c.Args != nil {
				t.Fatalf("no command, and %v", c)
			}
			return
		}
		if !strings.HasPrefix(strings.TrimSpace(body), commandWord) || len(c.Args) > maxArgs || strings.ContainsAny(c.String(), "\r\n`<>\x00\x1b") {
			t.Fatalf("%q is %v", body, c)
		}
		// As it stands in the record it reads back as itself.
		if again, ok := ParseCommand(c.String()); !ok || c.Verb != "" && cmp.Diff(c, again) != "" {
			t.Fatalf("%v reads back as %v", c, again)
		}
	})
}
