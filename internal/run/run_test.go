package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
)

func TestRun_ErrorBecomesOneMessageAndAnExitCode(t *testing.T) {
	remedied := fault.Wrap(fault.Unavailable, fault.ReasonDatabase, "the database does not answer", errors.New("refused")).
		WithRemedy("start it")
	for _, tt := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"nothing wrong", nil, ExitOK, ""},
		{"a plain error", errors.New("broken"), ExitFailed, "prog: broken\n"},
		{"bad configuration", fault.New(fault.Invalid, fault.ReasonBadConfig, "no such key"), ExitUsage, "prog: no such key\n"},
		{"a remedy", remedied, ExitUnavailable, "prog: the database does not answer: refused\n  what to do: start it\n"},
		{"a wrapped remedy", fmt.Errorf("store: %w", remedied), ExitUnavailable,
			"prog: store: the database does not answer: refused (start it)\n"},
		{"cancelled without a signal", context.Canceled, ExitFailed, "prog: context canceled\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr strings.Builder
			code := program{name: "prog", stderr: &stderr}.run(func(context.Context) error { return tt.err })
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if diff := cmp.Diff(tt.want, stderr.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRun_PanicIsAFailureWithItsStack(t *testing.T) {
	var stderr strings.Builder
	code := program{name: "prog", stderr: &stderr}.run(func(context.Context) error { panic("oh no") })
	if code != ExitFailed || !strings.Contains(stderr.String(), "oh no") || !strings.Contains(stderr.String(), "run_test.go") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

func TestRun_FirstSignalStopsInGoodOrder(t *testing.T) {
	var stderr strings.Builder
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGTERM
	code := program{name: "prog", stderr: &stderr, signals: signals}.run(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if code != ExitOK || stderr.String() != "" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

func TestRun_SecondSignalEndsTheProcessAtOnce(t *testing.T) {
	var stderr strings.Builder
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGINT
	signals <- syscall.SIGINT
	exited := make(chan int, 1)
	program{name: "prog", stderr: &stderr, signals: signals, exit: func(code int) { exited <- code }}.run(func(context.Context) error {
		exited <- <-exited // the body never stops by itself
		return nil
	})
	if code := <-exited; code != ExitFailed || !strings.Contains(stderr.String(), "second signal") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

// TestMain_RealSignals runs this test binary as the program.
func TestMain_RealSignals(t *testing.T) {
	if os.Getenv("RUN_TEST_BODY") != "" {
		Main("prog", func(ctx context.Context) error {
			fmt.Println("ready")
			<-ctx.Done()
			if os.Getenv("RUN_TEST_BODY") == "stubborn" {
				fmt.Println("told")
				select {}
			}
			return ctx.Err()
		})
	}
	for body, want := range map[string]int{"willing": ExitOK, "stubborn": ExitFailed} {
		cmd := exec.Command(os.Args[0], "-test.run", "TestMain_RealSignals")
		cmd.Env = append(os.Environ(), "RUN_TEST_BODY="+body)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var word string
		for _, wait := range []string{"ready", "told"} {
			if _, err := fmt.Fscan(out, &word); err != nil || word != wait {
				break
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Wait() //nolint:errcheck // The exit code says it all.
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", body, got, want)
		}
	}
}

// until runs until its context ends, and then takes a while.
func until(d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(d)
		return err
	}
}

func TestGroup_FirstFailureStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		broken := fault.New(fault.Unavailable, fault.ReasonDatabase, "gone")
		g.Add("server", until(9*time.Second, context.Canceled))
		g.Add("finished", func(context.Context) error { return nil })
		g.Add("store", func(context.Context) error { time.Sleep(time.Minute); return broken })
		g.Add("follower", until(time.Second, errors.New("a later failure")))
		begun := time.Now()
		err := g.Run(t.Context())
		if !errors.Is(err, fault.Unavailable) || err.Error() != "store: gone" {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took != time.Minute+9*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestGroup_EndOfTheContextIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var g Group
		g.Add("a", until(time.Second, nil))
		g.Add("b", until(0, fmt.Errorf("wrapped: %w", context.Canceled)))
		stopping, stop := context.WithCancel(ctx)
		time.AfterFunc(time.Minute, stop)
		if err := g.Run(stopping); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestGroup_ComponentThatDoesNotStopIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Group{StopTimeout: 3 * time.Second}
		g.Add("stuck", until(time.Hour, nil))
		g.Add("broken", func(context.Context) error { return errors.New("broken") })
		begun := time.Now()
		err := g.Run(t.Context())
		want := "broken: broken\nstill running 3s after being told to stop: stuck"
		if err == nil || err.Error() != want || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestGroup_PanicOfAComponentStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		g.Add("a", func(context.Context) error { panic("oh no") })
		g.Add("b", until(0, nil))
		if err := g.Run(t.Context()); fault.ReasonOf(err) != fault.ReasonPanic {
			t.Errorf("got %v", err)
		}
	})
}

func TestGroup_WithoutComponentsEndsAtOnce(t *testing.T) {
	if err := new(Group).Run(t.Context()); err != nil {
		t.Error(err)
	}
}
