package stack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

const (
	// stopTime is how long a service may take to stop; the dispatcher finishes deliveries, which takes it 24 s at most.
	stopTime = 30 * time.Second
	// killTime is how long the kernel may take to end a process that was killed.
	killTime  = 5 * time.Second
	stopPause = 20 * time.Millisecond
	// stopNews is after how long a person is told what is being waited for.
	stopNews = 2 * time.Second
)

// Down stops the services, and the local database unless that is to be kept, and leaves agents alone. It reports whether anything ran. What
// cannot be stopped does not keep the rest from being stopped; the errors come together.
func (s *Stack) Down(ctx context.Context, keepDatabase bool) (ran bool, err error) {
	if _, err := os.Stat(s.DataDir.RunDir()); err == nil {
		unlock, err := Lock(s.DataDir)
		if err != nil {
			return false, err
		}
		defer unlock()
	}
	var problems []error
	for _, service := range slices.Backward(layout.Services()) {
		stopped, err := s.stop(ctx, service, s.Say)
		ran = ran || stopped
		problems = append(problems, err)
	}
	if keepDatabase {
		return ran, errors.Join(problems...)
	}
	stopped, err := s.stopPostgres(ctx)
	return ran || stopped, errors.Join(append(problems, err)...)
}

// stop ends a service that was started in the background, and removes its pid file. say may be nil. It reports whether it ran.
func (s *Stack) stop(ctx context.Context, service layout.Service, say func(string, ...any)) (bool, error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	found := Find(s.DataDir, service)
	switch found.Life {
	case NeverStarted:
		return false, nil
	case Unclear:
		return false, fault.Newf(fault.Unavailable, fault.ReasonStorage, "%s was not stopped: %s", Title(service), found.Problem).
			WithRemedy("look at " + s.DataDir.PIDFile(service))
	case Ended:
		say("%-11s had ended already (pid %d is gone)", service, found.Process.Pid)
		return false, s.forget(service)
	case Running:
	}
	began := s.Now()
	if _, err := send(found.Process, syscall.SIGTERM); err != nil {
		return true, fault.Wrap(fault.Denied, "", Title(service)+" cannot be told to stop", err).
			WithRemedy("run this as the user who started it")
	}
	gone, err := waitGone(ctx, found.Process, stopTime, func() {
		say("%-11s is finishing what is under way (at most %v)", service, stopTime)
	})
	if err != nil {
		return true, err
	}
	if !gone {
		say("%-11s did not stop within %v: killing pid %d", service, stopTime, found.Process.Pid)
		if _, err := send(found.Process, syscall.SIGKILL); err != nil {
			return true, fault.Wrap(fault.Denied, "", Title(service)+" cannot be killed", err)
		}
		if gone, err = waitGone(ctx, found.Process, killTime, func() {}); err != nil || !gone {
			return true, fault.Wrap(fault.Unavailable, "", Title(service)+" does not end, although it was killed", err)
		}
	}
	say("%-11s stopped in %s", service, took(s.Now().Sub(began)))
	return true, s.forget(service)
}

func (s *Stack) forget(service layout.Service) error {
	if err := os.Remove(s.DataDir.PIDFile(service)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the pid file of "+Title(service)+" cannot be removed", err)
	}
	return nil
}

// waitGone waits until a process has ended, and reports false when it has not in time. news is called once when it takes long.
func waitGone(ctx context.Context, p Process, patience time.Duration, news func()) (bool, error) {
	ticker := time.NewTicker(stopPause)
	defer ticker.Stop()
	limit, slow := time.NewTimer(patience), time.NewTimer(stopNews)
	defer limit.Stop()
	defer slow.Stop()
	for {
		alive, err := p.Alive()
		if err != nil {
			return false, fault.Wrap(fault.Unavailable, "", "it cannot be told whether the process has ended", err)
		}
		if !alive {
			return true, nil
		}
		select {
		case <-ticker.C:
		case <-slow.C:
			news()
		case <-limit.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
