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
	err := program(t.Context(), []string{"--config", w.config, "--once"}, &stdout, &bytes.Buffer{})
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
		must(t, program(t.Context(), []string{flag}, &stdout, &bytes.Buffer{}))
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%s prints %q", flag, stdout.String())
		}
	}
	for _, args := range [][]string{{"--nope"}, {"word"}} {
		if err := program(context.Background(), args, &bytes.Buffer{}, &bytes.Buffer{}); runner.ExitCode(err) != 2 ||
			!strings.Contains(err.Error(), "--help") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestConfig_EachMistakeNamesItsKeyAndSaysWhatToWrite(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	write("good", "tok\n", 0o600)
	write("open", "tok\n", 0o644)
	write("empty", "\n", 0o600)
	const source = "  sources:\n  - {name: gh, kind: github, repositories: [a/b], label: agent, authors: [alice], token_file: good"
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", "  databse_url: x\n", "poller.databse_url is not a known key; did you mean poller.database_url?"},
		{"workers", "  workers: 0\n", "poller.workers is 0: it must be 1 to 256"},
		{"budget", "  budget: -1\n", "poller.budget is -1"},
		{"no name", "  sources: [{kind: github, repositories: [a/b], label: x}]\n", `poller.sources[0].name is "": write`},
		{"the name for events by hand", strings.Replace(source, "gh,", "manual,", 1) + "}\n", "choose another"},
		{"no kind", strings.Replace(source, "kind: github, ", "", 1) + "}\n", "poller.sources[0].kind is \"\": write kind: github"},
		{"no repositories", strings.Replace(source, "[a/b]", "[]", 1) + "}\n", "poller.sources[0].repositories is empty"},
		{"a repository by its URL", strings.Replace(source, "a/b", "https://github.com/a/b", 1) + "}\n", "poller.sources[0].repositories[0]"},
		{"no label", strings.Replace(source, "label: agent", "label: ''", 1) + "}\n", "poller.sources[0].label is empty"},
		{"two labels", strings.Replace(source, "label: agent", "label: 'a,b'", 1) + "}\n", "poller.sources[0].label has a comma"},
		{"an author with @", strings.Replace(source, "alice", "'@alice'", 1) + "}\n", "poller.sources[0].authors[0]"},
		{"a short interval", source + ", interval: 1s}\n", "poller.sources[0].interval is 1s: it must be 5s to 24h"},
		{"an interval without a unit", source + ", interval: 30}\n", "poller.sources[0].interval must be a duration"},
		{"a base URL without a scheme", source + ", base_url: github.example.com}\n", "poller.sources[0].base_url: "},
		{"a host that is none", source + ", host: 'a b'}\n", "poller.sources[0].host"},
		{"no token file", strings.Replace(source, "good", "missing", 1) + "}\n", "poller.sources[0].token_file: there is no file"},
		{"a token for everybody", strings.Replace(source, "good", "open", 1) + "}\n", "chmod 600"},
		{"an empty token", strings.Replace(source, "good", "empty", 1) + "}\n", "should hold one token"},
		{"a token inline", source + ", token: abc}\n", "poller.sources[0].token is not a known key"},
		{"a name twice", source + "}\n  - {name: gh, kind: github, repositories: [a/c], label: x}\n", "names must differ"},
		{"a repository twice", source + "}\n  - {name: two, kind: github, repositories: [A/B], label: x}\n", "list it once"},
		{"two database URLs", "  database_url_file: good\n", "keep one of them"},
	} {
		write("c.yaml", "poller:\n  database_url: postgres://x/y\n"+tt.text, 0o600)
		_, err := loadConfig(filepath.Join(dir, "c.yaml"), dir)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	write("c.yaml", "poller:\n  database_url: postgres://x/y\n"+source+", base_url: 'http://127.0.0.1:99', interval: 1s}\n", 0o600)
	c, err := loadConfig(filepath.Join(dir, "c.yaml"), dir)
	must(t, err)
	equal(t, "defaults", []any{c.Listen, c.Dispatcher, c.Workers, c.Budget, c.Sources[0].token, c.Sources[0].Host},
		[]any{"127.0.0.1:7413", "127.0.0.1:7412", 8, 3, "tok", "127.0.0.1:99"})
	write("muxpost.yaml", "poller:\n  database_url: postgres://x/y\n  workers: 3\n", 0o600)
	c, err = loadConfig("", dir)
	must(t, err)
	equal(t, "workers, from the data directory", c.Workers, 3)
	must(t, os.Remove(filepath.Join(dir, "muxpost.yaml")))
	t.Setenv("MUXPOST_DATABASE_URL", "")
	if _, err := loadConfig("", dir); err == nil || !strings.Contains(err.Error(), "poller.database_url_file") ||
		!strings.Contains(err.Error(), "MUXPOST_DATABASE_URL") {
		t.Errorf("no database: %v", err)
	}
}
