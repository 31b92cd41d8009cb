package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/obs/logfile"
	"muxpost.dev/muxpost/internal/run"
)

const (
	// healthTime bounds how long services may take until they serve; healthPause is the time between two questions.
	healthTime  = 30 * time.Second
	healthPause = 50 * time.Millisecond
	askTime     = 2 * time.Second
	// tailLines is how much of a log is shown when a service does not come up.
	tailLines = 12
)

// child is a service that this run started.
type child struct {
	Record
	logFrom int64 // where its log begins
	done    chan struct{}
	state   *os.ProcessState // set before done is closed
}

// Up starts what does not run yet and returns once everything serves. It reports whether anything was started. When something
// does not come up, whatever this call started is stopped again.
func (s *Stack) Up(ctx context.Context) (started bool, err error) {
	unlock, err := Lock(s.DataDir)
	if err != nil {
		return false, err
	}
	defer unlock()
	running := map[layout.Service]bool{}
	for _, service := range layout.Services() {
		found := s.steady(ctx, service)
		if found.Life == Unclear {
			return false, fault.Newf(fault.Unavailable, fault.ReasonStorage, "it cannot be told whether %s runs: %s", Title(service), found.Problem).
				WithRemedy("look at " + s.DataDir.PIDFile(service) + ", and remove it if the service does not run")
		}
		running[service] = found.Life == Running
	}
	if problems := s.preflight(ctx, running); len(problems) > 0 {
		return false, notReady(problems)
	}
	for _, note := range notes(&s.Settings) {
		s.Say("note: %s", note)
	}
	url, cluster, err := s.prepareDatabase(ctx)
	var children []*child
	if err == nil {
		children, err = s.startServices(ctx, running, url)
	}
	if err == nil {
		err = s.waitAll(ctx, children)
	}
	if err != nil {
		s.undo(ctx, children, cluster)
		if ctx.Err() != nil {
			return false, errors.New("interrupted; what was started is stopped again")
		}
		return false, err
	}
	return len(children) > 0 || cluster != nil && cluster.Started(), nil
}

// steady is Find, with a moment's patience for a service that does not answer: one that was just killed is still there while it dies.
func (s *Stack) steady(ctx context.Context, service layout.Service) Found {
	for deadline := time.Now().Add(time.Second); ; {
		found := Find(s.DataDir, service)
		if found.Life != Running || time.Now().After(deadline) || ctx.Err() != nil {
			return found
		}
		asking, cancel := context.WithTimeout(ctx, time.Second)
		err := Health(asking, service, s.Address(service))
		cancel()
		if err == nil {
			return found
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Stack) startServices(ctx context.Context, running map[layout.Service]bool, url string) ([]*child, error) {
	var children []*child
	for _, service := range layout.Services() {
		found := Find(s.DataDir, service)
		if running[service] {
			s.Say("%-11s runs already (pid %d, since %s)", service, found.Process.Pid, found.StartedAt.Local().Format("Jan 2 15:04:05"))
			if info, err := os.Stat(s.File); err == nil && info.ModTime().After(found.StartedAt) {
				s.Say("note: %s changed after %s was started: muxpost down && muxpost up applies it", s.File, Title(service))
			}
			continue
		}
		if found.Life == Ended {
			s.Say("%-11s had ended (pid %d is gone); starting it again", service, found.Process.Pid)
		}
		c, err := s.start(ctx, service, url)
		if err != nil {
			return children, err
		}
		children = append(children, c)
	}
	return children, nil
}

// start starts one service in a session of its own, with its log as output, and writes its pid file.
func (s *Stack) start(ctx context.Context, service layout.Service, url string) (*child, error) {
	failed := func(what string, err error) error {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, Title(service)+" cannot be started: "+what, err)
	}
	version, err := VersionOf(ctx, s.Binary(service))
	if err != nil {
		return nil, failed("its program does not work", err)
	}
	log, err := logfile.Open(s.DataDir.Log(service))
	if err != nil {
		return nil, failed("its log cannot be opened", err)
	}
	defer log.Close() //nolint:errcheck // The child has its own.
	c := &child{done: make(chan struct{})}
	if info, err := log.Stat(); err == nil {
		c.logFrom = info.Size()
	}
	// What a service needs to know stands in files and in its environment: everybody on the machine can read its command line.
	cmd := exec.Command(s.Binary(service), "-config", s.File, "-data-dir", string(s.DataDir)) //nolint:noctx // It outlives this process.
	cmd.Env, cmd.Dir = s.environ(service, url), string(s.DataDir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return nil, failed("its program cannot be run", err)
	}
	process, findErr := identify(cmd.Process.Pid)
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // the state says what became of it
		c.state = cmd.ProcessState
	}()
	c.Record = Record{
		Service: service, Process: process, Binary: s.Binary(service), Version: version, Address: s.Address(service), StartedAt: s.Now(),
	}
	if err := errors.Join(findErr, writeJSON(s.DataDir.PIDFile(service), c.Record)); err != nil {
		_ = cmd.Process.Kill()
		<-c.done
		return nil, failed("its pid file cannot be written", err)
	}
	return c, nil
}

// environ is what a service inherits. What our own variables say was settled before the start, so only the database's URL is passed
// on, and tmuxd, which starts other people's programs, does not get that. An agent's stamp stays: by it tmuxd knows that it will end with that
// agent, and whoever ends what the agent left behind finds the services.
func (s *Stack) environ(service layout.Service, url string) []string {
	env := slices.DeleteFunc(slices.Clone(s.Environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case layout.DatabaseURLVariable, layout.ConfigVariable, layout.DataDirVariable, "TMUX", "TMUX_PANE":
			return true
		}
		return false
	})
	if service != layout.Tmuxd {
		env = append(env, layout.DatabaseURLVariable+"="+url)
	}
	return env
}

// waitAll waits until every service serves, those that ran before included.
func (s *Stack) waitAll(ctx context.Context, children []*child) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	for _, service := range layout.Services() {
		i := slices.IndexFunc(children, func(c *child) bool { return c.Service == service })
		if i < 0 {
			if err := s.waitOne(ctx, service, nil); err != nil {
				return err
			}
			continue
		}
		if err := s.waitOne(ctx, service, children[i]); err != nil {
			return err
		}
		c := children[i]
		s.Say("%-11s healthy after %s (pid %d, %s)", service, took(s.Now().Sub(c.StartedAt)), c.Process.Pid, c.Address)
	}
	// One that was healthy and ended while the others came up is told now rather than found out later.
	for _, c := range children {
		select {
		case <-c.done:
			return s.ended(c)
		default:
		}
	}
	return nil
}

// waitOne waits until a service serves; c is nil when this run did not start it.
func (s *Stack) waitOne(ctx context.Context, service layout.Service, c *child) error {
	address := s.Address(service)
	var done chan struct{} // nil waits for ever
	if c != nil {
		done = c.done
	} else {
		address = Find(s.DataDir, service).Address
	}
	for {
		ask, cancel := context.WithTimeout(ctx, askTime)
		err := Health(ask, service, address)
		cancel()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(healthPause)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return s.ended(c)
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return s.silent(service, c, err)
		}
	}
}

// ended explains a service that ended instead of serving.
func (s *Stack) ended(c *child) error {
	s.showLog(c.Service, c.logFrom)
	kind := fault.Internal
	switch c.state.ExitCode() {
	case run.ExitUsage:
		kind = fault.Invalid
	case run.ExitUnavailable:
		kind = fault.Unavailable
	}
	return fault.Newf(kind, "", "%s ended instead of serving: %v", Title(c.Service), c.state).
		WithRemedy("the last lines of " + s.DataDir.Log(c.Service) + " stand above; correct what they name and run muxpost up again")
}

// silent explains a service that runs and does not serve.
func (s *Stack) silent(service layout.Service, c *child, last error) error {
	remedy := "see " + s.DataDir.Log(service)
	if c != nil {
		s.showLog(service, c.logFrom)
	} else {
		s.showLog(service, 0)
		remedy += "; muxpost down && muxpost up starts it anew, and agents stay alive"
	}
	return fault.Wrap(fault.Unavailable, "", fmt.Sprintf("%s did not serve within %v", Title(service), healthTime), last).WithRemedy(remedy)
}

func (s *Stack) showLog(service layout.Service, from int64) {
	lines := Tail(s.DataDir.Log(service), from, tailLines)
	if len(lines) == 0 {
		s.Say("the log of %s is empty", Title(service))
		return
	}
	s.Say("the last lines of %s:", s.DataDir.Log(service))
	for _, line := range lines {
		s.Say("  | %s", line)
	}
}

// undo stops what this run started.
func (s *Stack) undo(ctx context.Context, children []*child, cluster *local.Cluster) {
	ctx = context.WithoutCancel(ctx)
	if len(children) > 0 {
		s.Say("stopping what was started")
	}
	for _, c := range slices.Backward(children) {
		if _, err := s.stop(ctx, c.Service, nil); err != nil {
			s.Say("%-11s %v", c.Service, err)
		}
	}
	if cluster != nil && cluster.Started() {
		if err := cluster.Stop(ctx); err != nil {
			s.Say("postgres    %v", err)
		}
	}
}
