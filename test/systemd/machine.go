package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	project = "muxpost-systemd"
	image   = "standin/" + project
	base    = "standin/debian:13.1-slim"
)

// command runs a command with an input and returns what it writes; an error has that of standard error too.
func command(ctx context.Context, in io.Reader, line ...string) (string, error) {
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Stdin = in
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		text := strings.TrimSpace(problem.String() + out.String())
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, text[max(0, len(text)-3000):])
	}
	return out.String(), nil
}

// machine is a container that systemd runs, by its name in the network.
type machine string

func (m machine) container() string { return project + "-" + string(m) }

// boot starts the machine and waits until systemd says that it is up.
func (m machine) boot(ctx context.Context) error {
	// systemd mounts and makes control groups of its own, which the engine forbids otherwise; the test looks at the namespaces of others.
	if _, err := command(ctx, nil, "docker", "run", "-d", "--name", m.container(), "--hostname", string(m), "--network", project, "--network-alias", string(m),
		"--cgroupns", "private", "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined", "--tmpfs", "/run:exec", "--tmpfs", "/run/lock", "--tmpfs", "/tmp",
		image); err != nil {
		return err
	}
	var out string
	return eventually(ctx, func() (err error) {
		if out, err = command(ctx, nil, "docker", "exec", m.container(), "systemctl", "is-system-running"); strings.TrimSpace(out) != "running" {
			return errors.Join(err, fmt.Errorf("%s is %s", m, out))
		}
		return nil
	})
}

// sh runs lines of shell as root; the first that fails ends them.
func (m machine) sh(ctx context.Context, lines string) (string, error) {
	return m.feed(ctx, "", lines)
}

// feed is sh with an input for the lines.
func (m machine) feed(ctx context.Context, in, lines string) (string, error) {
	return command(ctx, strings.NewReader(in), "docker", "exec", "-i", m.container(), "sh", "-ec", lines)
}

// muxpost runs the operator's command in the middle, as the user of the services there.
func muxpost(ctx context.Context, args ...string) (string, error) {
	return command(ctx, nil, append([]string{"docker", "exec", "--user", central, "--env", "HOME=/nowhere", centre.container(), "muxpost",
		"--data-dir", "/var/lib/" + central}, args...)...)
}

// unpack brings a packed version onto the machine; it is at /root/VERSION then.
func (m machine) unpack(ctx context.Context, version string) error {
	packed, err := filepath.Glob("dist/muxpost-" + version + "-linux-*.tar.gz")
	if err != nil || len(packed) != 1 {
		return errors.Join(err, fmt.Errorf("%d packages of %s", len(packed), version))
	}
	f, err := os.Open(packed[0])
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // It was only read.
	_, err = command(ctx, f, "docker", "exec", "-i", m.container(), "sh", "-c", "tar -xzC /root && mv /root/muxpost-"+version+" /root/"+version)
	return err
}

// eventually tries again until there is no error, for as long as patience lasts.
func eventually(ctx context.Context, try func() error) error {
	for began := time.Now(); ; {
		err := try()
		if err == nil || time.Since(began) > patience {
			return err
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
