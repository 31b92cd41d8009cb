package changes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

var errEnough = errors.New("enough")

// read follows from a cursor until it was told count steps, and returns them and the last cursor. between is called after each.
func read(t *testing.T, l *Log[string], cursor string, count int, between func(n int)) (steps []string, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := l.Follow(ctx, cursor, func(s Step[string]) error {
		switch last = s.Cursor; {
		case s.Value != nil:
			steps = append(steps, *s.Value)
		case s.CaughtUp:
			steps = append(steps, "caught up")
		default:
			steps = append(steps, fmt.Sprintf("missed %d", s.Missed))
		}
		if between != nil {
			between(len(steps))
		}
		if len(steps) == count {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("%v after %q", err, steps)
	}
	return steps, last
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("told %q, want %q", got, want)
	}
}

// A reader that takes long gets the number of what it missed, and each thing once, as it is now.
func TestFollow_ASlowReaderMissesWhatIsSupersededAndIsWaitedForByNobody(t *testing.T) {
	t.Parallel()
	l := New[string]("life")
	l.Append("a", "a1", false)
	l.Append("b", "b1", false)
	got, _ := read(t, l, "", 6, func(n int) {
		if n != 3 { // it hangs at the third step, while much happens
			return
		}
		for i := range 500 {
			l.Append("a", fmt.Sprintf("a%d", i+2), false)
		}
		l.Append("b", "b2", false)
	})
	expect(t, got, "a1", "b1", "caught up", "missed 499", "a501", "b2")
}

func TestFollow_EverythingIsToldWhateverItsNumber(t *testing.T) {
	t.Parallel()
	l := New[string]("life")
	const count = 3*batchSize + 7
	for i := range count {
		l.Append(fmt.Sprint(i), fmt.Sprint(i), false)
	}
	got, _ := read(t, l, "", count+1, nil)
	for i, step := range got[:count] {
		if step != fmt.Sprint(i) {
			t.Fatalf("step %d is %s", i, step)
		}
	}
	expect(t, got[count:], "caught up")
}

func TestFollow_WhatIsAmendedOrRemovedIsNoNews(t *testing.T) {
	t.Parallel()
	l := New[string]("life")
	for _, key := range []string{"a", "b", "c"} {
		l.Append(key, key+"1", false)
	}
	l.Amend("a", "a2")
	l.Amend("x", "x1")
	l.Remove("c")
	l.Remove("x")
	got, cursor := read(t, l, "", 3, nil)
	expect(t, got, "a2", "b1", "caught up")
	l.Append("a", "a3", false)
	got, _ = read(t, l, cursor, 2, nil) // and what was removed was not missed
	expect(t, got, "a3", "caught up")
}

func TestFollow_ResumesBehindACursorOfItsLife(t *testing.T) {
	t.Parallel()
	l := New[string]("life")
	l.Append("a", "a1", false)
	_, cursor := read(t, l, "", 2, nil)
	l.Append("b", "b1", true)
	got, _ := read(t, l, cursor, 2, nil)
	expect(t, got, "b1", "caught up")
	got, _ = read(t, l, "another.7", 2, nil)
	expect(t, got, "a1", "caught up")
	for _, bad := range []string{"x", ".1", "life", "life.", "life.-1", "life.99", "life.1.2", "b.x"} {
		if err := l.Follow(t.Context(), bad, func(Step[string]) error { return errEnough }); fault.ReasonOf(err) != fault.ReasonBadArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestFollow_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := New[string]("life")
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Follow(ctx, "", func(s Step[string]) error {
		if s.CaughtUp {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
