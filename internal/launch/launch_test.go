package launch

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// launcher answers at a socket, one command a connection, as the unit of systemd does. served gets what each ended with.
func launcher(t *testing.T) (at Socket, served chan error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at = Socket(filepath.Join(dir, "l"))
	l, err := net.Listen("unix", string(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	served = make(chan error, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served <- Serve(context.Background(), conn)
			_ = conn.Close()
		}
	}()
	return at, served
}

func TestRun_IsTheSameHereAndByALauncher(t *testing.T) {
	at, _ := launcher(t)
	for name, run := range map[string]func(context.Context, Command) (Result, error){"here": Run, "by a launcher": at.Run} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ELSEWHERE", "no")
			// The exit code is not told; what is left behind does not hold up the answer.
			out, err := run(within(t, 20*time.Second), Command{Argv: []string{"/bin/sh", "-c", `pwd; echo "$WORD"; echo "[$ELSEWHERE]"; echo odd >&2; sleep 5 & exit 3`},
				Env: []string{"WORD=two words", "PATH=/usr/bin:/bin"}})
			if got := string(out.Stdout); err != nil || got != "/\ntwo words\n[]\n" || string(out.Stderr) != "odd\n" {
				t.Errorf("%q, %q, %v", got, out.Stderr, err)
			}
			if _, err := run(within(t, 20*time.Second), Command{Argv: []string{"/no/such/program"}}); err == nil || !strings.Contains(err.Error(), "no/such") {
				t.Errorf("a program that is not there: %v", err)
			}
			if _, err := run(within(t, 20*time.Second), Command{}); err == nil {
				t.Error("no command was run")
			}
		})
	}
}

// Whoever gives up has the command killed, here and where the launcher is: it does not go on to start something.
func TestRun_EndsWithWhoAsked(t *testing.T) {
	at, served := launcher(t)
	for name, run := range map[string]func(context.Context, Command) (Result, error){"here": Run, "by a launcher": at.Run} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "begun"), 0o700); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(within(t, 20*time.Second))
			go func() {
				for {
					if _, err := os.Stat(filepath.Join(dir, "begun")); err != nil {
						cancel()
						return
					}
				}
			}()
			_, err := run(ctx, Command{Argv: []string{"/bin/sh", "-c", "rmdir '" + dir + "/begun'; exec sleep 600"}, Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			if err == nil {
				t.Error("it is said to have ended by itself")
			}
		})
	}
	if err := <-served; err == nil {
		t.Error("the launcher answered somebody who had gone")
	}
}

func TestRun_WithoutALauncherSaysWhatToDo(t *testing.T) {
	_, err := Socket(filepath.Join(t.TempDir(), "none")).Run(within(t, 20*time.Second), Command{Argv: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "muxpost-agents.socket") {
		t.Errorf("%v", err)
	}
}
