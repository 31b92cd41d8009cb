package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

const (
	// callTime bounds a question that a service answers from memory or its database.
	callTime = 10 * time.Second
	// maxPage is the most that a service puts on one page.
	maxPage = 500
)

// app is what every command has: the process's surroundings as values, and the flags that all share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	now            func() time.Time

	where settings.Where
	json  bool
	limit int
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ(), now: time.Now, where: settings.Here()}
}

// isTerminal reports whether a person is looking at w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printer writes to standard output, in colour only for a person who did not refuse it.
func (a *app) printer() view.Printer {
	terminal := isTerminal(a.stdout)
	return view.Printer{Out: a.stdout, Whole: !terminal, Now: a.now(),
		Colour: terminal && a.where.Getenv("NO_COLOR") == "" && a.where.Getenv("TERM") != "dumb"}
}

// say tells of progress: on standard output, or on standard error where the output is for a program.
func (a *app) say(format string, args ...any) {
	out := a.stdout
	if a.json {
		out = a.stderr
	}
	fmt.Fprintf(out, format+"\n", args...) //nolint:errcheck // A terminal that is gone has no reader.
}

func (a *app) values(v any) error { return view.Values(a.stdout, v) }

func (a *app) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.json, "json", false, "write JSON, for programs")
}

func (a *app) limitFlag(c *cobra.Command, usual int) {
	c.Flags().IntVarP(&a.limit, "limit", "n", usual, "at most this many; 0 means all")
}

// settings reads the configuration; mistakes in it are an error.
func (a *app) settings() (settings.Settings, error) { return settings.Load(a.where) }

// stack returns the services of this machine.
func (a *app) stack(s settings.Settings) *stack.Stack {
	return &stack.Stack{Settings: s, BinDir: a.where.BinDir, Environ: a.environ, Say: a.say, Now: a.now}
}

// services are the clients of what is configured.
type services struct {
	settings.Settings

	mu    sync.Mutex // whoever asks several at once shares the connections
	conns map[layout.Service]*grpc.ClientConn
}

// dial returns clients of the configured services. Nothing is connected yet.
func (a *app) dial() (*services, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	return &services{Settings: s}, nil
}

// conn returns the connection to a service: one, however often it is asked for.
func (s *services) conn(service layout.Service) (*grpc.ClientConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn, ok := s.conns[service]; ok {
		return conn, nil
	}
	options, err := s.options(service)
	if err != nil {
		return nil, err
	}
	conn, err := stack.Dial(service, s.Called(service), options)
	if err != nil {
		return nil, err
	}
	if s.conns == nil {
		s.conns = map[layout.Service]*grpc.ClientConn{}
	}
	s.conns[service] = conn
	return conn, nil
}

func (s *services) close() {
	for _, c := range s.conns {
		_ = c.Close() // the process is about to end
	}
}

// poller calls the poller within a time.
func (s *services) poller(ctx context.Context, patience time.Duration,
	call func(context.Context, pollerv1.PollerServiceClient) error) error {
	conn, err := s.conn(layout.Poller)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.explained(layout.Poller, call(ctx, pollerv1.NewPollerServiceClient(conn)))
}

// dispatcher calls the dispatcher within callTime.
func (s *services) dispatcher(ctx context.Context, call func(context.Context, dispatcherv1.DispatcherServiceClient) error) error {
	return s.dispatcherWithin(ctx, callTime, call)
}

// dispatcherWithin calls the dispatcher within a time.
func (s *services) dispatcherWithin(ctx context.Context, patience time.Duration,
	call func(context.Context, dispatcherv1.DispatcherServiceClient) error) error {
	conn, err := s.conn(layout.Dispatcher)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.explained(layout.Dispatcher, call(ctx, dispatcherv1.NewDispatcherServiceClient(conn)))
}

// explained says of silence what to do about it.
func (s *services) explained(service layout.Service, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.Remedy != "" {
		return err
	}
	if stack.Find(s.DataDir, service).Life == stack.Running {
		return f.WithRemedy("its process runs: see " + s.DataDir.Log(service) + " and muxpost doctor")
	}
	return f.WithRemedy("start it with muxpost up, or see muxpost status")
}

// args returns a check of the number of arguments.
func args(least, most int, wants string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		var what string
		switch {
		case len(given) < least:
			what = "an argument is missing"
		case len(given) > most && most == 0:
			what = fmt.Sprintf("unexpected argument %q", given[0])
		case len(given) > most:
			what = fmt.Sprintf("too many arguments, from %q on", given[most])
		default:
			return nil
		}
		remedy := "usage: " + cmd.UseLine()
		if wants != "" {
			remedy += "; " + wants
		}
		return fault.New(fault.Invalid, fault.ReasonBadArgument, what).WithRemedy(remedy)
	}
}

// itemOf reads the work item of the first argument; none is allowed where it only narrows a list.
func itemOf(given []string) (string, error) {
	if len(given) == 0 {
		return "", nil
	}
	ref, err := parseItem(given[0])
	return ref.String(), err
}

// parseItem reads a work item as it is written, or as the address of its page: https://host/owner/repo/issues/7.
func parseItem(text string) (workitem.Ref, error) {
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		return workitem.Parse(text)
	}
	page, err := url.Parse(text)
	if err == nil {
		part := strings.Split(strings.Trim(page.Path, "/"), "/")
		if len(part) >= 4 && slices.Contains([]string{"issues", "pull"}, part[2]) {
			// The default host is left out by Parse.
			return workitem.Parse("github:" + page.Host + "/" + part[0] + "/" + part[1] + "#" + part[3])
		}
	}
	return workitem.Ref{}, fault.Newf(fault.Invalid, fault.ReasonBadWorkItem, "%q is not the address of an issue or a pull request",
		view.Clip(text, 100)).WithRemedy("copy it as https://host/owner/repo/issues/7, or write github:[host/]owner/repo#number")
}

// isItem reports whether an argument that may be a delivery id is a work item.
func isItem(text string) bool { return strings.ContainsAny(text, ":#/") }

// pages calls next with a page size and a token until there are no more pages or the limit is reached.
func pages(limit int, next func(size int32, token string) (got int, more string, err error)) error {
	if limit < 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--limit must not be negative")
	}
	for left, token := limit, ""; ; {
		size := maxPage
		if limit > 0 {
			size = min(left, maxPage)
		}
		got, more, err := next(int32(size), token)
		if err != nil {
			return err
		}
		left -= got
		if token = more; more == "" || limit > 0 && left <= 0 {
			return nil
		}
	}
}
