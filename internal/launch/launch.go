// Package launch runs a command that may leave a server behind, and where asked has somebody else run it: a launcher, which systemd starts
// anew for each connection to a socket. What such a command leaves behind is then in a unit of its own, under none of the limits of whoever
// asked, and outlives him.
//
// It knows no tmux and no session.
package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"
)

// holdTime is how long the output is waited for once the command has ended: what it left behind may hold the other end.
const holdTime = 300 * time.Millisecond

// Command is what is to be run: in /, with this environment and no other, and without input.
type Command struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

// Result is what it printed. How it exited is not told: those who ask go by what it says.
type Result struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
}

// answer is what a launcher says.
type answer struct {
	Result

	// Problem says why the command could not be run.
	Problem string `json:"problem,omitempty"`
}

// Run runs a command. It is killed when ctx ends. An error says that it could not be run, or not to its end, and what was printed by then is
// there all the same.
func Run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("there is no command")
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.Env, "/", holdTime
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}, errors.Join(ctx.Err(), err)
}

// Socket is the path at which a launcher is reached.
type Socket string

// Run is as the function Run, by the launcher.
func (s Socket) Run(ctx context.Context, c Command) (Result, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", string(s))
	if err != nil {
		return Result{}, fmt.Errorf("the launcher cannot be reached (systemctl status muxpost-agents.socket says why): %w", err)
	}
	defer conn.Close() //nolint:errcheck // The launcher sees it, and nothing is left to be said.
	// The launcher ends the command when the connection does.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return Result{}, errors.Join(ctx.Err(), fmt.Errorf("the launcher was not told: %w", err))
	}
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return Result{}, errors.Join(ctx.Err(), fmt.Errorf("the launcher did not answer: %w", err))
	}
	if a.Problem != "" {
		return a.Result, errors.New(a.Problem)
	}
	return a.Result, nil
}

// Serve is the launcher: it reads one command from conn, runs it and answers. The command is killed when conn ends before.
func Serve(ctx context.Context, conn io.ReadWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := json.NewDecoder(conn)
	var c Command
	if err := in.Decode(&c); err != nil {
		return fmt.Errorf("no command was read: %w", err)
	}
	go func() {
		_ = in.Decode(&struct{}{}) // nothing more is to come but the end
		cancel()
	}()
	result, err := Run(ctx, c)
	a := answer{Result: result}
	if err != nil {
		a.Problem = err.Error()
	}
	return json.NewEncoder(conn).Encode(a)
}
