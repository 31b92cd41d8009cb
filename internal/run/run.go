// Package run is the frame of every program: signals end its context, its error becomes one message and an exit code, and
// its components run together until the first of them fails.
//
// It knows nothing of configuration, telemetry or RPC. A main composes those in the function that it hands over.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"muxpost.dev/muxpost/core/fault"
)

// The exit codes of every program.
const (
	// ExitOK: done, or stopped by a signal in good order.
	ExitOK = 0
	// ExitFailed: anything that is none of the others.
	ExitFailed = 1
	// ExitUsage: the command line or the configuration is wrong (fault.Invalid); trying again changes nothing.
	ExitUsage = 2
	// ExitUnavailable: something that is needed did not answer (fault.Unavailable); trying again may help.
	ExitUnavailable = 3
)

// Main runs a program and ends the process. The body's context ends with the first SIGINT or SIGTERM; a second one ends the
// process at once. The body's error is printed once to standard error, with its remedy on a line of its own.
func Main(name string, body func(context.Context) error) {
	keepFiles()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(program{name: name, stderr: os.Stderr, signals: signals, exit: os.Exit}.run(body))
}

// program is Main with its surroundings as values.
type program struct {
	name    string
	stderr  io.Writer
	signals <-chan os.Signal
	exit    func(int)
}

// run returns the exit code.
func (p program) run(body func(context.Context) error) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		p.watch(cancel, done)
	}()
	err := guard(func() error { return body(ctx) })
	stopped := ctx.Err() != nil
	close(done)
	<-watching
	if err == nil || stopped && errors.Is(err, context.Canceled) {
		return ExitOK
	}
	fmt.Fprint(p.stderr, explain(p.name, err))
	return ExitCode(err)
}

// watch turns the first signal into a cancelled context and the second into the end of the process.
func (p program) watch(cancel context.CancelFunc, done <-chan struct{}) {
	select {
	case <-p.signals:
		cancel()
	case <-done:
		return
	}
	select {
	case s := <-p.signals:
		fmt.Fprintf(p.stderr, "%s: second signal (%v): stopped without waiting\n", p.name, s)
		p.exit(ExitFailed)
	case <-done:
	}
}

// ExitCode returns the exit code that an error stands for.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case fault.KindOf(err) == fault.Invalid:
		return ExitUsage
	case fault.KindOf(err) == fault.Unavailable:
		return ExitUnavailable
	}
	return ExitFailed
}

// explain returns what a person reads: the program, the error, and below it what they can do.
func explain(name string, err error) string {
	message, remedy := err.Error(), ""
	// Only an outermost fault is taken apart; below other text the remedy is already part of the sentence.
	if f, ok := err.(*fault.Error); ok && f.Remedy != "" { //nolint:errorlint // the outermost one is meant
		message, remedy = f.WithRemedy("").Error(), f.Remedy
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", name, message)
	if remedy != "" {
		fmt.Fprintf(&b, "  what to do: %s\n", remedy)
	}
	return b.String()
}

// guard turns a panic into an error with its stack, so that the rest of the program can still stop in good order.
func guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fault.ReasonPanic, "this is a bug, please report it",
				fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	return fn()
}
