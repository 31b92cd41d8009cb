package forget

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// records count the rounds, and fail while they are told to.
type records struct {
	mu     sync.Mutex
	rounds int
	err    error
}

// heal ends the trouble, and returns the rounds so far.
func (r *records) heal() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
	return r.rounds
}

func (r *records) ForgetDeliveries(_ context.Context, keep time.Duration) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	return int64(keep / time.Hour), r.err
}

func (r *records) ForgetUndelivered(_ context.Context, keep time.Duration) (int64, error) {
	return int64(keep / time.Hour), nil
}

func (r *records) ForgetEvents(_ context.Context, keep time.Duration) (int64, error) {
	return int64(keep / time.Hour), nil
}

func TestRun_AtOnceAndEveryHourAndThroughTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &records{err: fault.New(fault.Unavailable, fault.ReasonDatabase, "the database does not answer")}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, r, Keep{Deliveries: 3 * time.Hour, Undelivered: 40 * time.Hour, Events: 5 * time.Hour}, slog.New(slog.NewTextHandler(&log, nil)))
		}()
		synctest.Wait()
		if n := r.heal(); n != 1 {
			t.Errorf("%d rounds at the start", n)
		}
		time.Sleep(2 * Every)
		synctest.Wait()
		if n := r.heal(); n != 3 {
			t.Errorf("%d rounds after two hours", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if told := log.String(); strings.Count(told, "were not deleted") != 1 || strings.Count(told, "count=43 events=5") != 2 {
			t.Errorf("told:\n%s", told)
		}
	})
}
