package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/conf"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// config is the section tmuxd of the configuration file. docs/configuration.md explains every key.
type config struct {
	// Listen is the address of the gRPC server: loopback, or unix:/path.
	Listen string `conf:"listen"`
	// Host is this host's name in records and logs.
	Host string `conf:"host"`
	// StateDir holds what outlives tmuxd; SocketDir the sockets of the tmux servers, whose paths must be short.
	StateDir  string `conf:"state_dir"`
	SocketDir string `conf:"socket_dir"`
	// Tmux is the tmux binary, Exec the wrapper's.
	Tmux string `conf:"tmux"`
	Exec string `conf:"exec"`
	// Roots, Directory and MakeDirectory say where agents work.
	Roots         []string `conf:"roots"`
	Directory     string   `conf:"directory"`
	MakeDirectory bool     `conf:"make_directory"`
	// Width and Height are the size of a pane that nobody looks at.
	Width    int                      `conf:"width"`
	Height   int                      `conf:"height"`
	LogLevel slog.Level               `conf:"log_level"`
	Harness  map[string]harness.Entry `conf:"harnesses"`
}

// loadConfig reads the section, over defaults below dataDir. file may be empty.
func loadConfig(file string, dataDir layout.DataDir) (config, error) {
	hostname, err := os.Hostname()
	if err != nil || hostname == "" {
		hostname = "localhost"
	}
	self, err := os.Executable()
	if err != nil {
		return config{}, err
	}
	c := config{
		Listen: layout.Tmuxd.Listen(), Host: hostname, Tmux: "tmux", Exec: filepath.Join(filepath.Dir(self), "muxpost-exec"),
		StateDir: dataDir.TmuxdState(), Directory: filepath.Join(dataDir.Work(), "{target}"), MakeDirectory: true,
		Width: 200, Height: 50, Harness: harness.Builtin(),
	}
	if file != "" {
		if err := conf.Load(file, layout.Sections(), string(layout.Tmuxd), &c); err != nil {
			return c, err
		}
	}
	if len(c.Roots) == 0 {
		c.Roots = []string{dataDir.Work()}
	}
	if c.SocketDir == "" {
		c.SocketDir = c.StateDir
	}
	return c, c.check()
}

func (c config) check() error {
	wrong := func(key, format string, args ...any) error {
		return fault.New(fault.Invalid, fault.ReasonBadConfig, "tmuxd."+key+": "+fmt.Sprintf(format, args...))
	}
	for key, path := range map[string]string{"state_dir": c.StateDir, "socket_dir": c.SocketDir} {
		if !filepath.IsAbs(path) {
			return wrong(key, "%q is not an absolute path", path)
		}
	}
	for _, root := range c.Roots {
		if !filepath.IsAbs(root) || root != filepath.Clean(root) || root == "/" {
			return wrong("roots", "%q is not an absolute path in its shortest form (and / is no root)", root)
		}
	}
	if c.Width < 20 || c.Width > 1000 || c.Height < 10 || c.Height > 1000 {
		return wrong("width", "a pane of %d columns and %d rows cannot be read: use 20 to 1000 columns and 10 to 1000 rows", c.Width, c.Height)
	}
	if info, err := os.Stat(c.Exec); err != nil || info.Mode()&0o111 == 0 {
		return wrong("exec", "the wrapper %s is not there or cannot be run: build it, or say where it is", c.Exec)
	}
	return nil
}
