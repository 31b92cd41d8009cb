package poll

import (
	"fmt"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/prompt"
)

func TestWithContext_IsFramedAndBoundedAndKeepsTheNewest(t *testing.T) {
	c := Context{Title: "Paint\nit", URL: "https://example.com/7", Body: "Please" + strings.Repeat("é", 20_000)}
	for i := range ContextComments {
		c.Comments = append(c.Comments, prompt.Post{Author: "alice\x1b[2J", Body: fmt.Sprintf("number %d. <!-- hidden --> %s", i, strings.Repeat("x", 3000))})
	}
	got := WithContext(prompt.Default(), "the event", c)
	context := strings.TrimPrefix(got, "the event\n\n")
	if len(context) > maxContext || !strings.HasPrefix(got, "the event\n\n") {
		t.Errorf("%d bytes", len(context))
	}
	lines := strings.Split(context, "\n")
	fence := lines[len(lines)-1]
	if !strings.HasPrefix(fence, "-----") || len(fence) < 30 || strings.Count(got, fence) != 2 {
		t.Errorf("the fence is %q", fence)
	}
	before, _, _ := strings.Cut(context, fence)
	for _, want := range []string{"Context of the above", "Link: https://example.com/7", "follow the link"} {
		if !strings.Contains(before, want) {
			t.Errorf("before the fence there is no %q:\n%s", want, before)
		}
	}
	for _, want := range []string{"Title: Paint it", "Please", "number 9."} {
		if !strings.Contains(context, want) {
			t.Errorf("there is no %q", want)
		}
	}
	for _, bad := range []string{"number 0.", "<!--", "hidden -->", "\x1b"} {
		if strings.Contains(context, bad) {
			t.Errorf("there is %q", bad)
		}
	}
	if small := WithContext(prompt.Default(), "the event", Context{Title: "t", Body: "b", Comments: []prompt.Post{{Author: "alice", Body: "c"}}}); strings.Contains(small, "follow") ||
		!strings.Contains(small, "Earlier comment 1 by alice:\nc") {
		t.Errorf("one that fits:\n%s", small)
	}
	full := strings.Repeat("x", prompt.MaxText-100)
	if WithContext(prompt.Default(), full, c) != full {
		t.Error("a text without room has a context")
	}
}
