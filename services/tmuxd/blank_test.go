package main

import (
	"strings"
	"testing"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestPaste_ABlankRowAtTheTopOfTheComposer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	text := strings.Repeat("a line\n", 5) + "\n" + strings.TrimSpace(strings.Repeat("a line\n", 9))
	if got := r.paste(d1, text); got.Verdict != host.Submitted {
		t.Fatalf("%+v\n%s", got, r.screen())
	}
	r.took(res.Conversation, typed(d1, text))
}
