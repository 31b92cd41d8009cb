package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// baseline is what the product is compared with: each of the things that it is made of, done bare.
type baseline struct {
	socket string // of one tmux server that is driven by running tmux
	server int    // its pid
	conn   *pgx.Conn
	echo   *exec.Cmd
	rpc    *grpc.ClientConn
	health healthpb.HealthClient
}

func startBaseline(ctx context.Context, dir, url string) (b *baseline, err error) {
	b = &baseline{socket: filepath.Join(dir, "shared.sock")}
	if _, err := b.tmux(ctx, "", "new-session", "-d", "-s", "s", "-x", "200", "-y", "50", "--", "/bin/sh", "-c", "stty raw -echo; exec cat >/dev/null"); err != nil {
		return b, err
	}
	pid, err := b.tmux(ctx, "", "display-message", "-p", "#{pid}")
	if err != nil {
		return b, err
	}
	if b.server, err = strconv.Atoi(strings.TrimSpace(pid)); err != nil {
		return b, err
	}
	if b.conn, err = pgx.Connect(ctx, url); err != nil {
		return b, err
	}
	if _, err := b.conn.Exec(ctx, `create table public.bare (id bigint generated always as identity primary key, text text not null)`); err != nil {
		return b, err
	}
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	socket := filepath.Join(dir, "echo.sock")
	b.echo = exec.Command(self, "-echo", socket) //nolint:noctx // it is ended in order
	b.echo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := b.echo.Start(); err != nil {
		return b, err
	}
	if b.rpc, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true))); err != nil {
		return b, err
	}
	b.health = healthpb.NewHealthClient(b.rpc)
	return b, b.call(ctx)
}

// end ends what this process started.
func (b *baseline) end() {
	if b.server > 0 {
		_ = syscall.Kill(b.server, syscall.SIGTERM)
	}
	if b.conn != nil {
		_ = b.conn.Close(context.Background())
	}
	if b.rpc != nil {
		_ = b.rpc.Close()
	}
	if b.echo != nil && b.echo.Process != nil {
		_ = b.echo.Process.Signal(syscall.SIGTERM)
		_ = b.echo.Wait()
	}
}

func (b *baseline) tmux(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", b.socket, "-f", "/dev/null"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// paste loads, pastes and presses Enter, and looks at nothing.
func (b *baseline) paste(ctx context.Context, text string) error {
	if _, err := b.tmux(ctx, text, "load-buffer", "-b", "x", "-"); err != nil {
		return err
	}
	if _, err := b.tmux(ctx, "", "paste-buffer", "-p", "-d", "-b", "x", "-t", "s"); err != nil {
		return err
	}
	_, err := b.tmux(ctx, "", "send-keys", "-t", "s", "Enter")
	return err
}

func (b *baseline) commit(ctx context.Context, text string) error {
	_, err := b.conn.Exec(ctx, `insert into public.bare (text) values ($1)`, text)
	return err
}

func (b *baseline) call(ctx context.Context) error {
	_, err := b.health.Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// serveEcho answers empty calls until ctx ends or it is told to end.
func serveEcho(ctx context.Context, socket string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}
