package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	runner "muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

func tracing(t *testing.T) *sdktrace.TracerProvider {
	t.Helper()
	return sdktrace.NewTracerProvider()
}

func faultStatus(status int) fakegithub.Fault {
	return fakegithub.Fault{Kind: fakegithub.KindStatus, Status: status, Times: -1}
}

// once runs a round and returns what it printed and its exit code.
func once(t *testing.T, w *world) (string, int, error) {
	t.Helper()
	var stdout bytes.Buffer
	err := program(t.Context(), []string{"--config", w.config, "--once"}, w.where(), &stdout, &bytes.Buffer{})
	return stdout.String(), runner.ExitCode(err), err
}

func TestOnce_CarriesEverythingThatIsDueAndLeavesNothingRunning(t *testing.T) {
	w := newWorld(t, standard)
	_, _, err := once(t, w) // with it everything around the poller has started
	must(t, err)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := w.labelled(t, "alice")
	w.comment(t, n, "mallory", "before")
	asked := 0
	w.dispatcher.answer = func(*dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
		if asked++; asked < 3 {
			return outcome(dispatcherv1.Outcome_OUTCOME_IN_PROGRESS, "starting", 100*time.Millisecond), nil
		}
		return outcome(dispatcherv1.Outcome_OUTCOME_DELIVERED, "", 0), nil
	}
	line, code, err := once(t, w)
	must(t, err)
	equal(t, "line and code", []any{line, code},
		[]any{"poller: 1 sources, 0 failed; 1 items, 1 new events, 0 settled; 1 delivered, 0 ended otherwise, 3 asked\n", 0})
	w.comment(t, n, "alice", "one")
	w.comment(t, n, "alice", "two")
	line, _, err = once(t, w)
	must(t, err)
	if !strings.Contains(line, "2 new events") || !strings.Contains(line, "2 delivered") {
		t.Errorf("the second round: %s", line)
	}
	line, _, err = once(t, w)
	must(t, err)
	if !strings.Contains(line, "0 new events") || !strings.Contains(line, "0 asked") {
		t.Errorf("the third round: %s", line)
	}
}

func TestOnce_ExitCodes(t *testing.T) {
	t.Run("a source that cannot be read is 1, and the rest is done", func(t *testing.T) {
		w := newWorld(t, strings.Replace(standard, "acme/widgets", "acme/widgets, acme/missing", 1))
		w.labelled(t, "alice")
		line, code, err := once(t, w)
		if code != 1 || !strings.Contains(line, "1 failed") || !strings.Contains(line, "1 delivered") ||
			!strings.Contains(err.Error(), "acme/missing") {
			t.Errorf("%d %s %v", code, line, err)
		}
	})
	t.Run("GitHub away is 1", func(t *testing.T) {
		w := newWorld(t, standard)
		must(t, w.Inject(faultStatus(503)))
		if line, code, err := once(t, w); code != 1 {
			t.Errorf("%d %s %v", code, line, err)
		}
	})
	t.Run("the dispatcher away is 3", func(t *testing.T) {
		w := newWorld(t, standard)
		w.labelled(t, "alice")
		address, stop := rpctest.ServeUntil(t, rpc.NewServer(rpc.Options{}))
		stop()
		w.address = address
		w.configure(t, standard)
		begun := time.Now()
		line, code, err := once(t, w)
		if code != 3 || !strings.Contains(err.Error(), "dispatcher") || time.Since(begun) > 20*time.Second {
			t.Errorf("%d %s %v", code, line, err)
		}
	})
	t.Run("the database away is 3", func(t *testing.T) {
		w := newWorld(t, standard)
		w.database = "postgres://muxpost@127.0.0.1:1/muxpost"
		w.configure(t, standard)
		if line, code, err := once(t, w); code != 3 {
			t.Errorf("%d %s %v", code, line, err)
		}
	})
	t.Run("a database without our schema says what to run", func(t *testing.T) {
		w := newWorld(t, standard)
		w.database = dbtest.NewEmptyURL(t)
		w.configure(t, standard)
		if _, code, err := once(t, w); code != 1 || !strings.Contains(err.Error(), "muxpost migrate") {
			t.Errorf("%d %v", code, err)
		}
	})
}

func TestProgram_FlagsThatPrint(t *testing.T) {
	for flag, want := range map[string]string{"--help": "Usage: muxpost-poller", "-h": "--once", "--version": "muxpost-poller "} {
		var stdout bytes.Buffer
		must(t, program(t.Context(), []string{flag}, settings.Where{}, &stdout, &bytes.Buffer{}))
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%s prints %q", flag, stdout.String())
		}
	}
	for _, args := range [][]string{{"--nope"}, {"word"}} {
		if err := program(context.Background(), args, settings.Where{}, &bytes.Buffer{}, &bytes.Buffer{}); runner.ExitCode(err) != 2 ||
			!strings.Contains(err.Error(), "--help") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestProgram_SaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte("poller: {workers: 0}\n"), 0o600))
	where := settings.Where{DataDir: dir, Getenv: func(string) string { return "" }}
	run := func() error { return program(t.Context(), nil, where, &bytes.Buffer{}, &bytes.Buffer{}) }
	if err := run(); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "poller.workers is 0") {
		t.Errorf("a bad value: %v", err)
	}
	must(t, os.Remove(filepath.Join(dir, "muxpost.yaml")))
	if err := run(); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "poller.database_url_file") ||
		!strings.Contains(err.Error(), "MUXPOST_DATABASE_URL") {
		t.Errorf("no database: %v", err)
	}
}
