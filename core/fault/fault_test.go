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

func TestWithHiddenCause_IsForLogsAlone(t *testing.T) {
	cause := errors.New("transport: desc = ...")
	err := New(Unavailable, ReasonDispatcherSilent, "cannot reach it").WithHiddenCause(cause).WithRemedy("start it")
	if err.Error() != "cannot reach it (start it)" || !errors.Is(err, cause) || err.HiddenCause() != cause {
		t.Errorf("%v, %v", err, err.HiddenCause())
	}
	if got := Wrap(Unavailable, "", "m", cause).HiddenCause(); got != nil {
		t.Errorf("a cause that shows is hidden too: %v", got)
	}
}
