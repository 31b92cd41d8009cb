package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// The levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
	// levelSkip is for what cannot be looked at while something else is wrong or has not begun.
	levelSkip = "skip"
)

// finding is what one check found.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// doctor looks at an installation and its machine. It changes nothing.
type doctor struct {
	*services
	app   *app
	stack *stack.Stack
	// configErr is what is wrong with the configuration.
	configErr error
	// begun is true once muxpost up was run here: what is missing is wrong then, and not just to come.
	begun bool
	// running and healthy are set by the check of the services.
	healthy map[string]bool

	findings []finding
}

func doctorCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Find out what is wrong, on this machine and with the services", Args: args(0, 0, ""),
		Long: `doctor looks and changes nothing. It works before the first muxpost up as well. Exit code 1 when something fails; warnings do not
count.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
	a.jsonFlag(c)
	return c
}

func (a *app) doctor(ctx context.Context) error {
	s, err := settings.Load(a.where)
	if s.DataDir == "" {
		return err
	}
	d := &doctor{services: &services{Settings: s}, app: a, stack: a.stack(s), configErr: err, healthy: map[string]bool{}}
	defer d.close()
	for _, check := range []func(context.Context){
		d.shell, d.programs, d.tmux, d.postgresPrograms, d.config, d.harnesses, d.dataDir, d.permissions, d.certificates, d.disk, d.logind,
		d.pidFiles, d.serviceHealth, d.addresses, d.database, d.hostReached, d.dispatcherReached, d.sourcesRead, d.strayServers,
	} {
		check(ctx)
	}
	if a.json {
		if err := a.values(d.findings); err != nil {
			return err
		}
	} else {
		d.print(a.printer())
	}
	if n := d.count(levelFail); n > 0 {
		return errors.New(view.Count(n, "check fails", "checks fail"))
	}
	return nil
}

func (d *doctor) add(check, level, detail, remedy string) {
	d.findings = append(d.findings, finding{check, level, detail, remedy})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, levelOK, fmt.Sprintf(format, args...), "")
}

func (d *doctor) skip(check, detail string) { d.add(check, levelSkip, detail, "") }

// err adds a finding for an error, with its own remedy.
func (d *doctor) err(check, level string, err error) {
	remedy := ""
	var f *fault.Error
	if errors.As(err, &f) {
		remedy = f.Remedy
	}
	d.add(check, level, messageOf(err), remedy)
}

func (d *doctor) count(level string) int {
	n := 0
	for _, f := range d.findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (d *doctor) print(p view.Printer) {
	for _, f := range d.findings {
		p.Line("%s  %-14s %s", p.Paint(view.ToneOf(f.Level), fmt.Sprintf("%-4s", f.Level)), f.Check, indented(f.Detail))
		if f.Remedy != "" {
			p.Line("%21swhat to do: %s", "", indented(f.Remedy))
		}
	}
	p.Line("\n%d ok, %d warnings, %d failed, %d skipped", d.count(levelOK), d.count(levelWarn), d.count(levelFail), d.count(levelSkip))
}
