package harness

import (
	"encoding/json"
	"strings"
	"testing"
)

// A message that begins with the mark is taken for the delivery, and one that only quotes it is not.
func FuzzReads(f *testing.F) {
	const mark = "[muxpost d1]"
	f.Add("", " hello")
	f.Add("he wrote: ", " hello")
	f.Add("\"", "\"")
	f.Add("\\", "")
	f.Add("\n", "\\\"")
	f.Fuzz(func(t *testing.T, before, after string) {
		h := &Harness{}
		line, err := json.Marshal(map[string]string{"text": before + mark + after})
		if err != nil || strings.Contains(before+after, mark) {
			return
		}
		want := Mentioned
		if before == "" {
			want = Takes
		}
		if got := h.Reads(line, mark); got != want {
			t.Fatalf("%s reads as %d, want %d", line, got, want)
		}
		if got := h.Reads([]byte(before+after), mark); got != NotMentioned {
			t.Fatalf("%q reads as %d", before+after, got)
		}
	})
}
