package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/settings"
)

// warn tells a person something beside the output.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, format+"\n", args...) //nolint:errcheck // A terminal that is gone has no reader.
}

func upCommand(a *app) *cobra.Command {
	var inSession bool
	c := &cobra.Command{
		Use: "up", Short: "Start what does not run yet: a database, tmuxd, the dispatcher, the poller", Args: args(0, 0, ""),
		Long: `up starts the services of this machine in the background, and a Postgres of its own where the configuration names no database.
Everything that is needed is checked before anything is started. Run again, it starts only what is missing. What is started inside an agent's session
ends with it, so there nothing is started.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.up(cmd.Context(), inSession) },
	}
	c.Flags().BoolVar(&inSession, "in-session", false, "start it inside an agent's session all the same, to end with that: in a data directory that nobody else uses")
	return c
}

func (a *app) up(ctx context.Context, inSession bool) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	if err := stack.MakeDataDir(s.DataDir, a.where.Root); err != nil {
		return err
	}
	if !s.Found {
		if err := settings.WriteTemplate(s.File); err != nil {
			return err
		}
		a.say("wrote %s: it works as it is, and says how to add a source and harnesses", s.File)
		if s, err = a.settings(); err != nil {
			return err
		}
	}
	st := a.stack(s)
	st.InSession = inSession
	began := a.now()
	started, err := st.Up(ctx)
	if err != nil {
		return err
	}
	if !started {
		a.say("everything runs already; nothing was started (muxpost status shows more)")
		return nil
	}
	a.say("up in %s", view.Short(a.now().Sub(began)))
	a.next(st)
	return nil
}

// next says what to do now.
func (a *app) next(st *stack.Stack) {
	a.say("")
	if st.Dispatcher.Harness == settings.StandIn && !stack.IsProgram(filepath.Join(st.BinDir, settings.StandIn)) {
		a.say("note: dispatcher.harness is fakeagent, and no program of that name is beside muxpost; choose a harness in %s", st.File)
	}
	a.say("what next:")
	a.say(`  muxpost send github:octo/widget#7 "hello"   start an agent for a work item and tell it something`)
	a.say("  muxpost attach github:octo/widget#7         look at it (leave with the keys C-b d)")
	if len(st.Poller.Sources) == 0 {
		a.say("  muxpost down && muxpost up                  after you added a source of events to %s", st.File)
	} else {
		a.say("  muxpost poll                                look at the sources now")
	}
	a.say("  muxpost status                              see what runs and what waits; muxpost doctor finds what is wrong")
	a.say("  muxpost down                                stop the services; agents stay alive")
}

func downCommand(a *app) *cobra.Command {
	var keepDatabase bool
	c := &cobra.Command{
		Use: "down", Short: "Stop the services and the local database; agents stay alive", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := settings.Load(a.where)
			if err != nil {
				// What runs can be stopped whatever the file says by now.
				a.warn("the configuration has mistakes (muxpost doctor names them); stopping what the data directory records")
			}
			st := a.stack(s)
			if stack.InSession(a.environ) {
				a.warn("note: this runs inside an agent's session, where muxpost up starts nothing: start it again in a shell of your own")
			}
			ran, err := st.Down(cmd.Context(), keepDatabase)
			if err != nil {
				return err
			}
			if !ran {
				a.say("nothing runs from %s", s.DataDir)
			}
			return a.tellAgents(st)
		},
	}
	c.Flags().BoolVar(&keepDatabase, "keep-database", false, "leave the local database running, to restore a backup into it")
	return c
}

// tellAgents says which sessions stay. Whether the agent of one has ended is not asked: one that has is kept for a look.
func (a *app) tellAgents(st *stack.Stack) error {
	agents, err := st.Agents()
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "it cannot be told which agents run", err)
	}
	if len(agents) == 0 {
		a.say("no agent runs")
		return nil
	}
	a.say("%s in tmux, untouched, and so does an agent that lives there; to look at one, or to end it for good:",
		view.Count(len(agents), "session stays", "sessions stay"))
	for _, agent := range agents {
		if agent.WorkItem != "" {
			a.say("  muxpost attach %s", view.Quote(agent.WorkItem))
		} else {
			a.say("  %s", strings.Join(quoted(attachArgs(st.Tmuxd.Tmux, agent.Socket, agent.Target, false)), " "))
		}
		a.say("    %s", strings.Join(quoted([]string{st.Tmuxd.Tmux, "-N", "-S", agent.Socket, "kill-session", "-t", "=" + agent.Target + ":"}), " "))
	}
	return nil
}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = view.Quote(w)
	}
	return out
}

func migrateCommand(a *app) *cobra.Command {
	var show bool
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the database to the schema of this release", Args: args(0, 0, ""),
		Long: `migrate applies what the database lacks: the one that the configuration or MUXPOST_DATABASE_URL names, else the local one. Any
number of these may run at once. What a later release has added stays; a database from which one took away what this release needs is refused.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrate(cmd.Context(), show) },
	}
	c.Flags().BoolVar(&show, "status", false, "list the migrations and change nothing")
	a.jsonFlag(c)
	return c
}

func (a *app) migrate(ctx context.Context, show bool) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	database, err := s.Database()
	if err != nil {
		return err
	}
	url := database.URL
	if database.Local() {
		cluster, err := a.borrow(ctx, s)
		if err != nil {
			return err
		}
		defer cluster.Stop(context.WithoutCancel(ctx)) //nolint:errcheck // One that ran before is left running; ours dies with this process.
		if url, err = stack.OpenLocal(ctx, cluster); err != nil {
			return err
		}
	}
	if name, err := db.Describe(url); err == nil {
		a.say("%s", name)
	}
	if show {
		return a.showMigrations(ctx, url)
	}
	applied, err := stack.Migrate(ctx, url)
	for _, m := range applied {
		a.say("applied %d %s", m.Version, m.Name)
	}
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		a.say("the database has the schema of this release already")
	}
	if a.json {
		return a.values(applied)
	}
	return nil
}

// borrow returns the local cluster, started for as long as this process lives when it does not run.
func (a *app) borrow(ctx context.Context, s settings.Settings) (*local.Cluster, error) {
	cluster, err := stack.AttachPostgres(ctx, s.DataDir)
	if err == nil || !errors.Is(err, fault.NotFound) {
		return cluster, err
	}
	if !stack.HasCluster(s.DataDir) {
		return nil, fault.Newf(fault.NotFound, fault.ReasonDatabase, "there is no database: neither one that is named, nor a local one in %s",
			s.DataDir.Postgres()).WithRemedy("muxpost up makes a local one; or set database_url_file in " + s.File)
	}
	return local.Start(ctx, local.Options{Dir: s.DataDir.Postgres(), Logger: slog.New(slog.DiscardHandler)})
}

func (a *app) showMigrations(ctx context.Context, url string) error {
	pool, err := db.Open(ctx, db.Config{URL: url, AppName: "muxpost", MaxConns: 2})
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := migrations.Status(ctx, pool)
	if err != nil {
		return err
	}
	if a.json {
		return a.values(all)
	}
	p := a.printer()
	rows := make([][]view.Cell, 0, len(all))
	for _, m := range all {
		name, at := m.Name, view.Cell{Text: "not applied", Tone: view.Warn}
		if name == "" {
			name = "(not known to this release)"
		}
		if !m.AppliedAt.IsZero() {
			at = view.Text(p.Ago(m.AppliedAt))
		}
		rows = append(rows, []view.Cell{view.Text(fmt.Sprint(m.Version)), view.Text(name), at})
	}
	p.Table("this release has no migrations", []string{"VERSION", "NAME", "APPLIED"}, rows)
	return nil
}
