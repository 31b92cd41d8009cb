package hints

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// all returns the hints that wait.
func all(t *testing.T, f *Follower) (out []string) {
	t.Helper()
	for {
		item, ok := f.take()
		if !ok {
			return out
		}
		out = append(out, item)
	}
}

func TestFollow_BeginsWithAnyAndHearsEachItemOnce(t *testing.T) {
	h := New()
	h.Tell("before")
	f, other := h.Follow(), h.Follow()
	defer f.Close()
	if got, err := f.Next(t.Context()); err != nil || got != Any {
		t.Fatalf("%q, %v", got, err)
	}
	for _, item := range []string{"a", "b", "a"} {
		h.Tell(item)
	}
	if got := all(t, f); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
	h.Tell("a")
	if got := all(t, f); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
	if got := all(t, other); !slices.Equal(got, []string{Any}) {
		t.Errorf("one that did not read: %q", got)
	}
	other.Close()
	h.Tell("c")
	if got := all(t, other); got != nil {
		t.Errorf("after the end: %q", got)
	}
}

func TestFollow_ASlowOneHearsThatItMayBeAny(t *testing.T) {
	h := New()
	f := h.Follow()
	defer f.Close()
	all(t, f)
	for n := range most {
		h.Tell(fmt.Sprint(n))
	}
	if got := all(t, f); len(got) != most {
		t.Fatalf("%d hints", len(got))
	}
	for n := range most + 5 {
		h.Tell(fmt.Sprint(n))
	}
	if got := all(t, f); !slices.Equal(got, []string{Any}) {
		t.Errorf("%q", got)
	}
}

func TestNext_WaitsForAHintOrTheEnd(t *testing.T) {
	h := New()
	f := h.Follow()
	defer f.Close()
	all(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan string)
	go func() {
		for {
			item, err := f.Next(ctx)
			if err != nil {
				close(heard)
				return
			}
			heard <- item
		}
	}()
	for _, item := range []string{"a", "b"} {
		h.Tell(item)
		if got := <-heard; got != item {
			t.Errorf("%q", got)
		}
	}
	cancel()
	if item, more := <-heard; more {
		t.Errorf("%q", item)
	}
}
