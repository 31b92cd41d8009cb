package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/settings"
)

// leastMajor and leastMinor are the oldest tmux that tmuxd works with.
const leastMajor, leastMinor = 3, 3

// Problem is something that keeps the services from running.
type Problem struct {
	Kind fault.Kind
	// What is wrong, and what a person can do; Remedy is empty when What says it all.
	What, Remedy string
}

func problemOf(err error) Problem {
	var f *fault.Error
	if errors.As(err, &f) {
		return Problem{f.Kind, f.WithRemedy("").Error(), f.Remedy}
	}
	return Problem{fault.Internal, err.Error(), ""}
}

// Tmux returns the version of tmux that tmuxd would run. One that is missing or too old is an error that says what to do.
func Tmux(ctx context.Context, binary string) (string, error) {
	const install = "install tmux 3.3 or newer: apt-get install tmux (Debian, Ubuntu), dnf install tmux (Fedora, RHEL), " +
		"pacman -S tmux (Arch); or set tmuxd.tmux"
	path, err := exec.LookPath(binary)
	if err != nil {
		return "", fault.Newf(fault.NotFound, fault.ReasonTmuxMissing, "tmux is not on the PATH (looked for %q)", binary).WithRemedy(install)
	}
	out, err := exec.CommandContext(ctx, path, "-V").Output()
	if err != nil {
		return "", fault.Wrap(fault.NotFound, fault.ReasonTmuxMissing, path+" cannot be run", err).WithRemedy(install)
	}
	text := strings.TrimSpace(string(out))
	m := regexp.MustCompile(`^tmux (?:next-)?(\d+)\.(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return text, nil // a build with a name of its own: tmuxd finds out
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return text, fault.Newf(fault.NotFound, fault.ReasonTmuxMissing, "%s is %s, which is too old", path, text).WithRemedy(install)
	}
	return text, nil
}

// CheckAddress says when an address cannot be listened on, and who has it.
func CheckAddress(address string) error {
	listener, err := rpc.Listen(address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// freeAddress is CheckAddress, with a moment's patience: a process that was just killed holds its socket until its last thread is gone.
func freeAddress(ctx context.Context, address string) error {
	for deadline := time.Now().Add(time.Second); ; {
		err := CheckAddress(address)
		if fault.ReasonOf(err) != fault.ReasonAddressTaken || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// preflight returns everything that keeps the services from being started. running are those that need not be.
func (s *Stack) preflight(ctx context.Context, running map[layout.Service]bool) []Problem {
	var problems []Problem
	add := func(err error) {
		if err != nil {
			problems = append(problems, problemOf(err))
		}
	}
	if !running[layout.Tmuxd] {
		_, err := Tmux(ctx, s.Tmuxd.Tmux)
		add(err)
	}
	add(s.Check())
	add(s.checkPrograms(running))
	starts := slices.ContainsFunc(layout.Services(), func(service layout.Service) bool { return !running[service] })
	// What is wrong with the database's settings or with an address is told by Check.
	if database, err := s.Database(); err == nil && database.Local() && !postgresRuns(ctx, s.DataDir) {
		_, err := local.Find()
		add(err)
		starts = true
	}
	if starts && !s.InSession && InSession(s.Environ) {
		add(fault.New(fault.Conflict, "", "this runs inside an agent's session, and what it starts ends with that: the services, and every agent that they start").
			WithRemedy("run muxpost up in a shell of your own; for an installation that only this agent uses, in a data directory of its own, muxpost up --in-session"))
	}
	for _, service := range layout.Services() {
		if address := s.Address(service); !running[service] && settings.CheckListen(address) == nil {
			add(s.foreign(service, freeAddress(ctx, address)))
		}
	}
	return problems
}

// InSession reports whether an environment, as KEY=VALUE, is that of something which an agent started. A session of its own does not take a
// process out of the agent's: orphans go to the agent's wrapper, and control groups are made below its own.
func InSession(environ []string) bool {
	return slices.ContainsFunc(environ, func(entry string) bool {
		stamp, ok := strings.CutPrefix(entry, stampVariable+"=")
		return ok && stamp != ""
	})
}

// foreign says of an address in use that it is not ours to stop.
func (s *Stack) foreign(service layout.Service, err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Reason == fault.ReasonAddressTaken {
		return f.WithRemedy(fmt.Sprintf("it was not started from %s: stop it, or set %s.listen in %s to another address",
			s.DataDir, service, s.File))
	}
	return err
}

func (s *Stack) checkPrograms(running map[layout.Service]bool) error {
	var missing []string
	need := func(path string) {
		if !IsProgram(path) {
			missing = append(missing, path)
		}
	}
	for _, service := range layout.Services() {
		if !running[service] {
			need(s.Binary(service))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.Newf(fault.NotFound, fault.ReasonBadConfig, "not there, or not programs: %s", strings.Join(missing, ", ")).
		WithRemedy("install all programs of the same release into one directory, beside muxpost (" + filepath.Clean(s.BinDir) + ")")
}

// notReady makes one error of problems.
func notReady(problems []Problem) error {
	kind := problems[0].Kind
	var b strings.Builder
	b.WriteString("not ready, so nothing was started:")
	for _, p := range problems {
		if p.Kind == fault.Invalid {
			kind = fault.Invalid
		}
		b.WriteString("\n  - " + strings.ReplaceAll(p.What, "\n", "\n    "))
		if p.Remedy != "" {
			b.WriteString("\n    what to do: " + p.Remedy)
		}
	}
	return fault.New(kind, fault.ReasonBadConfig, b.String())
}

// notes are what is not wrong and yet will surprise.
func notes(s *settings.Settings) []string {
	var out []string
	for _, m := range s.Mismatches() {
		out = append(out, fmt.Sprintf("%s is %s, but %s is %s: events will wait until they agree", m.Key, m.Calls, m.Other, m.Listens))
	}
	if s.StandsIn() {
		out = append(out, "sources are read, and dispatcher.harness is "+settings.StandIn+", which only stands in for an agent: what comes in is "+
			"told to it, and a work item keeps the harness that it was started with (muxpost harnesses lists the others)")
	}
	return out
}
