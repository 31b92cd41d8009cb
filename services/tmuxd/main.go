// Command muxpost-tmuxd runs on each host and owns the agents' tmux sessions there: it says what state they are in, starts them, and
// puts deliveries into them, over gRPC.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/launch"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/validity"
	"muxpost.dev/muxpost/internal/version"
	"muxpost.dev/muxpost/internal/wrapper"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/channel"
	"muxpost.dev/muxpost/services/tmuxd/internal/disk"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
	"muxpost.dev/muxpost/services/tmuxd/internal/metrics"
	"muxpost.dev/muxpost/services/tmuxd/internal/notes"
	"muxpost.dev/muxpost/services/tmuxd/internal/pidfd"
	"muxpost.dev/muxpost/services/tmuxd/internal/renew"
	"muxpost.dev/muxpost/services/tmuxd/internal/server"
	"muxpost.dev/muxpost/services/tmuxd/internal/tmux"
	"muxpost.dev/muxpost/services/tmuxd/internal/trees"
)

func main() {
	run.Main("muxpost-tmuxd", func(ctx context.Context) error {
		return start(ctx, os.Args[1:], settings.Here(), os.Stdout, os.Stderr)
	})
}

// start answers --help and --version, or serves with the configuration that args and the surroundings name.
func start(ctx context.Context, args []string, here settings.Where, stdout, stderr io.Writer) error {
	var launcher bool
	program := settings.Program{Service: layout.Tmuxd, About: "runs on each host and owns the agents' tmux sessions there.",
		Flags: func(f *flag.FlagSet) { f.BoolVar(&launcher, "launch", false, "") },
		FlagsHelp: `  --launch          run the one command that standard input, a socket, asks for, and
                    answer there: how systemd starts tmux servers for tmuxd
`}
	where, text, err := program.Parse(args, here)
	if err != nil || text != "" {
		_, _ = io.WriteString(stdout, text) // whoever closed it does not want to know
		return err
	}
	if launcher {
		return launch.Serve(ctx, os.Stdin)
	}
	s, err := settings.LoadService(where, layout.Tmuxd)
	if err != nil {
		return err
	}
	c := s.Tmuxd
	telemetry, err := obs.Setup(ctx, obs.Config{
		Service: "tmuxd", Host: c.Host, Instance: c.Host, DataDir: string(s.DataDir), LogLevel: c.LogLevel, Stderr: stderr,
	})
	if err != nil {
		return err
	}
	defer telemetry.Shutdown(context.WithoutCancel(ctx))
	return serve(ctx, c, telemetry)
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, c settings.Tmuxd, telemetry *obs.Telemetry) error {
	state, err := disk.Open(c.StateDir, c.Exec)
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot use the state directory", err).
			WithRemedy("see tmuxd.state_dir")
	}
	defer func() { _ = state.Close() }()
	processes, err := pidfd.New()
	if err != nil {
		return fault.Wrap(fault.Unavailable, "", "cannot watch processes: Linux 5.3 or newer is needed", err)
	}
	defer func() { _ = processes.Close() }()
	meter := obs.NewMeter(telemetry.MeterProvider(), "tmuxd")
	measured := metrics.New(meter)
	var h *host.Host
	client, err := newTmux(c, telemetry, measured, func(target string) { h.Hint(target) })
	if err != nil {
		return err
	}
	defer client.Close()
	home, _ := os.UserHomeDir()
	table, err := harness.New(c.Harnesses, state.HarnessRoot(), home, findProgram)
	if err != nil {
		return err
	}
	channels, err := channel.New(c.SocketDir)
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot make the directory for the sockets of agents", err)
	}
	made := trees.New(trees.Config{
		Trees: c.Trees, Directory: c.Directory, Make: c.MakeDirectory, MinFree: int64(c.TreesMinFreeMiB) << 20, StateDir: c.StateDir,
		Env: passOn("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy",
			"NO_PROXY", "no_proxy"),
		Logger: telemetry.Logger,
	})
	defer made.Close()
	h = host.New(host.Config{Roots: c.Roots, Width: c.Width, Height: c.Height, Capacity: c.Capacity},
		host.Deps{Tmux: client, Disk: state, Trees: made, Processes: processes, Table: table, Channels: channels, Metrics: measured, Logger: telemetry.Logger,
			Now: time.Now, Getenv: os.LookupEnv})
	stopNotes, err := notes.Watch(state.NotesDir(), func(name string) {
		if target, stamp, ok := disk.NoteOf(name); ok {
			h.Noted(target, stamp)
		}
	}, h.NotedAny)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "", "what agents' programs tell cannot be watched", err).
			WithRemedy("raise fs.inotify.max_user_instances")
	}
	defer func() { _ = stopNotes() }()
	attempts, err := newAttempts(c, state, client, table, made, telemetry, measured)
	if err != nil {
		return err
	}
	tmuxVersion, err := client.Version(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, fault.ReasonTmuxMissing, "tmux cannot be run", err)
	}
	look := surroundings{tmuxVersion: tmuxVersion, stateDir: c.StateDir, socketDir: c.SocketDir, launcher: c.Launcher, stamp: os.Getenv(wrapper.StampVariable)}
	if insideAgent(look.stamp, look.launcher) != "" {
		telemetry.Logger.WarnContext(ctx, "tmuxd runs inside an agent's session and ends with it", obs.KeyIncarnation, look.stamp)
	}
	measured.Observe(meter, figures(c.Capacity, tmuxVersion, h, client, attempts, state.Writable, look.left))
	service := server.New(h, telemetry.Logger, server.Facts{
		Host: c.Host, Build: version.Get(), TmuxVersion: tmuxVersion, StateDir: c.StateDir, Instance: state.Instance(),
		Labels: c.Labels, Capacity: c.Capacity, Harnesses: newHarnesses(table, c.StateDir).infos,
		Storage: state.Writable, Machine: look.machine,
	}, client.Socket).WithMetrics(measured).WithAttempts(attempts).WithTrees(made)
	if err := errors.Join(h.Adopt(ctx), attempts.Adopt(ctx)); err != nil {
		return err
	}
	var group run.Group
	if err := serveOn(ctx, c, service, telemetry, &group); err != nil {
		return err
	}
	group.Add("watch", h.Watch)
	group.Add("attempts", attempts.Keep)
	group.Add("reaper", func(ctx context.Context) error {
		return h.Reaping(ctx, host.Retain{Age: c.Retain.Age, Count: c.Retain.Count, Journal: c.Retain.Journal})
	})
	return group.Run(ctx)
}

// serveOn has the service answer on this machine and, where the configuration has a certificate, dispatchers on others.
func serveOn(ctx context.Context, c settings.Tmuxd, service *server.Server, telemetry *obs.Telemetry, group *run.Group) error {
	options := rpc.Options{Logger: telemetry.Logger, TracerProvider: telemetry.TracerProvider(), MeterProvider: telemetry.MeterProvider()}
	add := func(name, addr string, listen func(string) (net.Listener, error)) error {
		srv := rpc.NewServer(options)
		tmuxdv1.RegisterTmuxdServiceServer(srv, service)
		listener, err := listen(addr)
		if err != nil {
			return err
		}
		srv.Health().Set(tmuxdv1.TmuxdService_ServiceDesc.ServiceName, true)
		srv.Health().Set("", true)
		telemetry.Logger.InfoContext(ctx, "tmuxd is ready", obs.KeyAddress, listener.Addr().String(), obs.KeyHost, c.Host)
		group.Add(name, func(ctx context.Context) error { return srv.Serve(ctx, listener) })
		return nil
	}
	if err := add("server", c.Listen, rpc.Listen); err != nil || !c.TLS.Files().On() {
		return err
	}
	files := identity.Files{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, CA: c.TLS.CAFile}
	validity.Observe(obs.NewMeter(telemetry.MeterProvider(), "certificate"), files, time.Now)
	if c.RenewFrom != "" {
		group.Add("renew", func(ctx context.Context) error {
			return renew.Run(ctx, renew.Config{Files: files, Dispatcher: c.RenewFrom, Logger: telemetry.Logger, Now: time.Now})
		})
	}
	var err error
	options.TLS, err = files.Server(func(id identity.ID) bool {
		return id == identity.Dispatcher || id.IsOperator()
	})
	if err != nil {
		return err
	}
	return add("server for other machines", c.TLS.Listen, rpc.ListenTLS)
}

// newTmux returns a client that calls hint when a server says that something changed on it.
func newTmux(c settings.Tmuxd, telemetry *obs.Telemetry, measured *metrics.Metrics, hint func(target string)) (*tmux.Client, error) {
	if err := disk.Private(c.SocketDir); err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot use the directory for sockets", err).
			WithRemedy("see tmuxd.socket_dir; without it they lie in the state directory")
	}
	config := tmux.Config{
		Bin: c.Tmux, Dir: c.SocketDir, Tracer: telemetry.Tracer("tmux"), Metrics: measured, Hint: hint,
		// What a server has, every pane has: only what a person's own panes need.
		Env: passOn("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM"),
	}
	if c.Launcher != "" {
		config.Launch = launch.Socket(c.Launcher).Run
	}
	client, err := tmux.New(config)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonTmuxMissing, "tmux cannot be used", err).
			WithRemedy("install tmux 3.3 or newer, or set tmuxd.tmux; set tmuxd.socket_dir when a path is too long")
	}
	return client, nil
}

// newAttempts returns what runs attempts.
func newAttempts(c settings.Tmuxd, state *disk.Dir, client *tmux.Client, table harness.Table, made *trees.Trees, telemetry *obs.Telemetry,
	measured *metrics.Metrics) (*attempt.Runner, error) {
	kept, err := state.OpenAttempts()
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot use the state directory", err)
	}
	t := c.Tasks
	return attempt.New(attempt.Config{Roots: c.Roots, Width: c.Width, Height: c.Height, Limit: t.Limit, MaxLimit: t.MaxLimit,
		MaxRunning: t.MaxRunning, KeepFailed: t.KeepFailed, KeepFor: t.KeepFor, Keep: t.Keep},
		attempt.Deps{Tmux: client.Attempts(), Disk: kept, Places: state, Worktrees: made, Table: table, Metrics: measured, Logger: telemetry.Logger, Now: time.Now,
			Getenv: os.LookupEnv}), nil
}

func passOn(names ...string) []string {
	var env []string
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// findProgram looks on the PATH, then beside this program: the bundled agent is installed there.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || filepath.Base(name) != name {
		return path, err
	}
	self, selfErr := os.Executable()
	if selfErr != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(filepath.Dir(self), name))
}
