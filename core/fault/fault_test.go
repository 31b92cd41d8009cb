package fault

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestError_IsItsKindAndKeepsItsCause(t *testing.T) {
	for _, kind := range Kinds() {
		err := fmt.Errorf("outer: %w", Wrap(kind, ReasonStorage, "cannot write", io.ErrShortWrite))
		if !errors.Is(err, kind) || !errors.Is(err, io.ErrShortWrite) || KindOf(err) != kind || ReasonOf(err) != ReasonStorage {
			t.Errorf("%v: is its kind %v, kind %v, reason %v", kind, errors.Is(err, kind), KindOf(err), ReasonOf(err))
		}
		for _, other := range Kinds() {
			if other != kind && errors.Is(err, other) {
				t.Errorf("%v is %v as well", kind, other)
			}
		}
	}
}

func TestError_SaysWhatToDo(t *testing.T) {
	err := New(Throttled, ReasonRateLimited, "the limit is used up").WithRemedy("wait").WithRetryAfter(time.Minute)
	if !strings.Contains(err.Error(), "used up") || !strings.Contains(err.Error(), "wait") || err.RetryAfter != time.Minute {
		t.Errorf("%v", err)
	}
	if KindOf(io.EOF) != Internal || ReasonOf(io.EOF) != "" {
		t.Error("a foreign error must be internal and without a reason")
	}
}
