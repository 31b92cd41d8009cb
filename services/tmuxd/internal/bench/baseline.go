package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// baseline is one shared tmux server that is driven by running tmux: what tools of this kind do.
type baseline struct {
	socket string
	pid    int
	count  int
}

func startBaseline(ctx context.Context, dir string) (*baseline, error) {
	b := &baseline{socket: filepath.Join(dir, "shared.sock")}
	if err := b.spawn(ctx); err != nil {
		return nil, err
	}
	out, err := b.tmux(ctx, "", "display-message", "-p", "#{pid}")
	if err != nil {
		return nil, err
	}
	b.pid, err = strconv.Atoi(strings.TrimSpace(out))
	return b, err
}

// end ends the server, which this process started.
func (b *baseline) end() {
	if b.pid > 0 {
		_ = syscall.Kill(b.pid, syscall.SIGTERM)
	}
}

func (b *baseline) tmux(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", b.socket, "-f", "/dev/null"}, args...)...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, stderr.String())
	}
	return string(out), nil
}

func (b *baseline) name(i int) string { return "s" + strconv.Itoa(i) }

// grow makes sessions until there are n.
func (b *baseline) grow(ctx context.Context, n int) error {
	for b.count < n {
		if err := b.spawn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// spawn makes a session with a second command for the option that keeps its pane.
func (b *baseline) spawn(ctx context.Context) error {
	name := b.name(b.count)
	if _, err := b.tmux(ctx, "", "new-session", "-d", "-s", name, "-x", "200", "-y", "50", "--", "/bin/sh", "-c", sink); err != nil {
		return err
	}
	if _, err := b.tmux(ctx, "", "set-option", "-t", name, "remain-on-exit", "on"); err != nil {
		return err
	}
	b.count++
	return nil
}

func (b *baseline) kill(ctx context.Context) error {
	b.count--
	_, err := b.tmux(ctx, "", "kill-session", "-t", b.name(b.count))
	return err
}

// state is the probe: is there a session, and do its panes live.
func (b *baseline) state(ctx context.Context, i int) error {
	name := b.name(i % b.count)
	if _, err := b.tmux(ctx, "", "has-session", "-t", name); err != nil {
		return err
	}
	_, err := b.tmux(ctx, "", "list-panes", "-t", name, "-F", "#{pane_id} #{pane_dead} #{pane_pid}")
	return err
}

// paste loads, pastes and presses Enter.
func (b *baseline) paste(ctx context.Context, i int, text string) error {
	name := b.name(i % b.count)
	if _, err := b.tmux(ctx, text, "load-buffer", "-b", "x", "-"); err != nil {
		return err
	}
	if _, err := b.tmux(ctx, "", "paste-buffer", "-p", "-d", "-b", "x", "-t", name); err != nil {
		return err
	}
	_, err := b.tmux(ctx, "", "send-keys", "-t", name, "Enter")
	return err
}
