package server

import (
	"strings"
	"testing"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestEndRefusals_EachHasAWordOfItsOwn(t *testing.T) {
	words := map[tmuxdv1.RefusalReason]bool{}
	for _, cause := range []host.Cause{host.RefusedAbsent, host.RefusedForeign, host.RefusedIncarnation, host.RefusedLive, host.RefusedGuests} {
		words[refusedEnd(host.EndResult{Cause: cause}).GetReason()] = true
	}
	if len(words) != 5 || words[tmuxdv1.RefusalReason_REFUSAL_REASON_UNSPECIFIED] {
		t.Errorf("%v", words)
	}
}

func TestOneLine_KeepsWhatCanBePrinted(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"alice: it runs wild":        "alice: it runs wild",
		"two\r\nlines\tand \x1b[31m": "two lines and [31m",
		"bad \xff byte\u009b31m":     "bad byte 31m",
		strings.Repeat("x", 1000):    strings.Repeat("x", maxReason),
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
