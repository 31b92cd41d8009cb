package idle

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// ender counts.
type ender struct{ asked []time.Duration }

func (e *ender) EndIdle(_ context.Context, after time.Duration) error {
	e.asked = append(e.asked, after)
	return errors.New("no database")
}

func TestRun_LooksAtOnceAndEveryTenMinutesWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
		defer cancel()
		var e ender
		if err := Run(ctx, &e, time.Hour, slog.New(slog.DiscardHandler)); err != nil || len(e.asked) != 3 || e.asked[2] != time.Hour {
			t.Errorf("%v, %v", e.asked, err)
		}
	})
}
