package tmux

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a person called his session and an agent wrote into an option, the rest of the row is read as what it is.
func FuzzParsePane(f *testing.F) {
	f.Add("loop-octo-widget-7", "d1=submitted", "7")
	f.Add("a|b|c", "|||", "x")
	f.Add("", "", "")
	f.Add("é\U000e0041", "\xff", "9223372036854775808")
	f.Fuzz(func(t *testing.T, name, ring, fence string) {
		parsePane(ring) // as a row it is nothing, or something; it does no harm
		if strings.ContainsAny(fence, "|") || name == "" {
			return
		}
		row := fmt.Sprintf("%d|$1|%%2|77|0|||1|/dev/pts/3|stamp|item|%%2|77|claude|c1|%s|%s|%s", len(name), fence, ring, name)
		p, ok := parsePane(row)
		if !ok || p.Session != name || p.Ring != ring || p.ID != "%2" || p.Pid != 77 || !p.InputOff || p.Dead || p.Conversation != "c1" {
			t.Fatalf("%q is %+v, %v", row, p, ok)
		}
		if p, ok = parsePane(strings.Replace(row, "|stamp|", "|stamp\xff|", 1)); ok && !utf8.ValidString(p.Stamp+p.Item+p.Harness+p.Conversation) || p.Stamp == "stamp" {
			t.Fatalf("%q is %+v", row, p)
		}
		if p.Fence < 0 && fence == "7" || p.Fence == 0 && fence == "x" {
			t.Fatalf("the fence %q is %d", fence, p.Fence)
		}
	})
}

func FuzzParseRelease(f *testing.F) {
	for _, text := range []string{"tmux 3.3a", "next-3.8", "3.6-rc2", "tmux 99999.1", "tmux master"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, known := parseRelease(text); !known && r != (release{}) || r.major < 0 || r.minor < 0 {
			t.Fatalf("%q is %+v, %v", text, r, known)
		}
	})
}
