package settings

import (
	"path/filepath"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/layout"
)

func TestRetention_IsNotShorterThanADay(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 1, -time.Hour: 1, 24*time.Hour - 1: 1, 24 * time.Hour: 0, defaultRetention: 0} {
		var p problems
		checkRetention(&p, "retention", keep)
		if got := len(p.texts); got != want {
			t.Errorf("%v: %d problems", keep, got)
		}
	}
}

func TestRetention_OfEventsIsThatOfDeliveriesUnlessItIsSaid(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"dispatcher: {harness: fakeagent}":                                         defaultRetention,
		"dispatcher: {harness: fakeagent, retention: 720h}":                        720 * time.Hour,
		"dispatcher: {harness: fakeagent, retention: 720h, events_retention: 48h}": 48 * time.Hour,
	} {
		dir := installed(t)
		write(t, filepath.Join(dir, "muxpost.yaml"), text)
		s, err := LoadService(where(dir, nil), layout.Dispatcher)
		must(t, err)
		if s.Dispatcher.EventsRetention != want {
			t.Errorf("%s: %v", text, s.Dispatcher.EventsRetention)
		}
	}
}
