// Package stack runs the whole product for tests and the demonstration, as a person would: `muxpost up` in a data directory of its own,
// a server that speaks GitHub's REST API, and agents in tmux. Everything is a real process.
//
// It knows where things lie and how to ask them. It checks nothing.
package stack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/wrapper"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
	"muxpost.dev/muxpost/test/fakegithub"
)

// Stack is one running product.
type Stack struct {
	// Bin is where the programs lie, Dir the data directory.
	Bin, Dir string
	// GitHub is the base URL of the server that stands for GitHub.
	GitHub string
	// Env is added to the environment of every program.
	Env []string
	// Output is where `up` and `down` write.
	Output io.Writer

	Poller     pollerv1.PollerServiceClient
	Dispatcher dispatcherv1.DispatcherServiceClient
	Tmuxd      tmuxdv1.TmuxdServiceClient

	conns  []*grpc.ClientConn
	github *exec.Cmd
}

// What the configuration of a stack says.
const (
	// Owner is the account of the repository.
	Owner = "octo"
	// Repo is the repository that is watched.
	Repo = "widget"
	// Label makes an issue a work item.
	Label = "muxpost"
	// Author may steer.
	Author = "alice"
	// Stranger may not.
	Stranger = "mallory"
)

// New makes a data directory and starts the GitHub-like server with what seed says. Close ends everything.
func New(ctx context.Context, bin string, seed fakegithub.Seed, output io.Writer) (*Stack, error) {
	dir, err := os.MkdirTemp("/tmp", "muxpost-") // short: sockets lie below it
	if err != nil {
		return nil, err
	}
	s := &Stack{Bin: bin, Dir: dir, Output: output}
	// The local Postgres runs as another user when root starts it, and has to get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	// Who was killed before Close is cleared up after by its parent.
	if err := os.WriteFile(filepath.Join(dir, leftFile), fmt.Appendf(nil, "%d %s\n", os.Getppid(), bin), 0o600); err != nil {
		return nil, err
	}
	if err := s.startGitHub(ctx, seed); err != nil {
		s.Close(ctx)
		return nil, err
	}
	if err := s.writeConfig(); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

func (s *Stack) startGitHub(ctx context.Context, seed fakegithub.Seed) error {
	seed.Tokens = map[string]string{"token-" + Author: Author, "token-" + Stranger: Stranger, "token-bot": "loopbot"}
	data, err := json.Marshal(seed)
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, "github-seed.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "github-token"), []byte("token-bot\n"), 0o600); err != nil {
		return err
	}
	s.github = exec.CommandContext(ctx, filepath.Join(s.Bin, "fakegithub"), "-seed", file)
	s.github.Stderr = os.Stderr
	s.github.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := s.github.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.github.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the GitHub-like server did not start: %w", err)
	}
	s.GitHub = strings.TrimSpace(strings.TrimPrefix(line, "fakegithub listening on "))
	return nil
}

// Address is where a service listens: a unix socket, so that no two stacks meet on a port.
func (s *Stack) Address(service string) string {
	return "unix:" + filepath.Join(s.Dir, service+".sock")
}

// ConfigFile is the configuration of the stack.
func (s *Stack) ConfigFile() string { return filepath.Join(s.Dir, "muxpost.yaml") }

func (s *Stack) writeConfig() error {
	config := fmt.Sprintf(`tmuxd:
  listen: %[1]s
  host: laptop
dispatcher:
  listen: %[2]s
  host: {name: laptop, address: "%[1]s"}
  harness: fakeagent
poller:
  listen: %[3]s
  dispatcher: %[2]s
  sources:
    - name: widgets
      kind: github
      base_url: %[4]s
      host: github.com
      token_file: %[5]s
      repositories: [%[6]s/%[7]s]
      label: %[8]s
      authors: [%[9]s]
      interval: 1s
`, s.Address("tmuxd"), s.Address("dispatcher"), s.Address("poller"), s.GitHub, filepath.Join(s.Dir, "github-token"), Owner, Repo, Label, Author)
	return os.WriteFile(s.ConfigFile(), []byte(config), 0o600)
}

// Command returns a call of the muxpost command on this stack.
func (s *Stack) Command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(args, "--data-dir", s.Dir, "--config", s.ConfigFile())
	if args[0] == "up" && os.Getenv(wrapper.StampVariable) != "" {
		args = append(args, "--in-session") // an agent that develops runs this, and the stack is to end with it
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "muxpost"), args...)
	cmd.Env = append(os.Environ(), s.Env...)
	return cmd
}

// Run runs the muxpost command and returns what it printed.
func (s *Stack) Run(ctx context.Context, args ...string) (string, error) {
	out, err := s.Command(ctx, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("muxpost %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Up starts the stack and connects to it.
func (s *Stack) Up(ctx context.Context) error {
	cmd := s.Command(ctx, "up")
	cmd.Stdout, cmd.Stderr = s.Output, s.Output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("muxpost up: %w", err)
	}
	for service, use := range map[string]func(*grpc.ClientConn){
		"poller":     func(c *grpc.ClientConn) { s.Poller = pollerv1.NewPollerServiceClient(c) },
		"dispatcher": func(c *grpc.ClientConn) { s.Dispatcher = dispatcherv1.NewDispatcherServiceClient(c) },
		"tmuxd":      func(c *grpc.ClientConn) { s.Tmuxd = tmuxdv1.NewTmuxdServiceClient(c) },
	} {
		conn, err := rpc.Dial(s.Address(service), rpc.DialOptions{Name: "the " + service})
		if err != nil {
			return err
		}
		s.conns = append(s.conns, conn)
		use(conn)
	}
	return nil
}

// Close ends the stack, its agents and the GitHub-like server, and removes the data directory.
func (s *Stack) Close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, c := range s.conns {
		_ = c.Close()
	}
	if _, err := os.Stat(filepath.Join(s.Bin, "muxpost")); err == nil {
		_ = s.Command(ctx, "down").Run()
	}
	s.EndAgents()
	if s.github != nil && s.github.Process != nil {
		_ = s.github.Process.Signal(syscall.SIGTERM)
		_ = s.github.Wait()
	}
	_ = os.RemoveAll(s.Dir)
}

// leftFile in the data directory says which process started the one that made the stack, and where its programs lie.
const leftFile = "left-by"

// CloseLeft ends the stacks that children of this process made and did not close: whoever fuzzes is killed.
func CloseLeft(ctx context.Context) {
	files, _ := filepath.Glob("/tmp/muxpost-*/" + leftFile)
	for _, file := range files {
		var parent int
		var bin string
		if data, err := os.ReadFile(file); err != nil {
			continue
		} else if n, _ := fmt.Sscan(string(data), &parent, &bin); n == 2 && parent == os.Getpid() {
			(&Stack{Bin: bin, Dir: filepath.Dir(file), Output: io.Discard}).Close(ctx)
		}
	}
}

// EndAgents ends the tmux servers of this stack's sessions, by the pids that tmuxd remembers: `down` leaves them alive.
func (s *Stack) EndAgents() {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "tmuxd", "sessions", "*.json"))
	for _, file := range files {
		var memory struct{ Server struct{ Pid int } }
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &memory) == nil && memory.Server.Pid > 0 {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", memory.Server.Pid)); err == nil && bytes.Contains(line, []byte(s.Dir)) {
				_ = syscall.Kill(memory.Server.Pid, syscall.SIGCONT)
				_ = syscall.Kill(memory.Server.Pid, syscall.SIGTERM)
			}
		}
	}
}

// Item is the work item of an issue.
func Item(number int) string { return fmt.Sprintf("github:%s/%s#%d", Owner, Repo, number) }

// Comment writes a comment upstream, as GitHub's API takes it.
func (s *Stack) Comment(ctx context.Context, login string, number int, body string) error {
	return s.write(ctx, login, fmt.Sprintf("issues/%d/comments", number), map[string]any{"body": body}, nil)
}

// Review reviews a pull request upstream, as an account that asks for changes: in a few words, and with a comment on a line of a file.
func (s *Stack) Review(ctx context.Context, login string, number int, body, path string, line int, remark string) error {
	return s.write(ctx, login, fmt.Sprintf("pulls/%d/reviews", number), map[string]any{
		"event": "REQUEST_CHANGES", "body": body, "comments": []map[string]any{{"path": path, "line": line, "body": remark}},
	}, nil)
}

// Open opens an issue upstream that is a work item, and returns its number.
func (s *Stack) Open(ctx context.Context, login, title string) (int, error) {
	var made struct{ Number int }
	err := s.write(ctx, login, "issues", map[string]any{"title": title, "labels": []string{Label}}, &made)
	return made.Number, err
}

// write posts to a path below the repository, as an account, and reads the answer into made unless that is nil.
func (s *Stack) write(ctx context.Context, login, path string, body, made any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/repos/%s/%s/%s", s.GitHub, Owner, Repo, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer token-"+login)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return fmt.Errorf("the GitHub-like server answered %s: %s", res.Status, text)
	}
	if made == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(made)
}

// Events returns the rows of an item in the ledger, oldest first.
func (s *Stack) Events(ctx context.Context, item string) ([]*pollerv1.LedgerEntry, error) {
	res, err := s.Poller.ListLedger(ctx, &pollerv1.ListLedgerRequest{WorkItem: item, PageSize: 500})
	if err != nil {
		return nil, err
	}
	rows := res.GetEntries()
	for i, j := 0, len(rows)-1; i < j; i, j = i+1, j-1 {
		rows[i], rows[j] = rows[j], rows[i]
	}
	return rows, nil
}

// WaitEvent waits until the nth event of an item (from 0) ends, and returns it.
func (s *Stack) WaitEvent(ctx context.Context, item string, n int) (*pollerv1.LedgerEntry, error) {
	var last []*pollerv1.LedgerEntry
	for {
		rows, err := s.Events(ctx, item)
		if err == nil {
			last = rows
			if len(rows) > n && final(rows[n].GetState()) {
				return rows[n], nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("event %d of %s did not end: %w; the ledger has %v", n, item, context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func final(s pollerv1.LedgerState) bool {
	switch s {
	case pollerv1.LedgerState_LEDGER_STATE_PENDING, pollerv1.LedgerState_LEDGER_STATE_LEASED, pollerv1.LedgerState_LEDGER_STATE_HELD,
		pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED:
		return false
	}
	return true
}

// Session asks the dispatcher for the session of an item; nil when there is none.
func (s *Stack) Session(ctx context.Context, item string) (*dispatcherv1.Session, error) {
	res, err := s.Dispatcher.ListSessions(ctx, &dispatcherv1.ListSessionsRequest{WorkItem: item})
	if err != nil || len(res.GetSessions()) == 0 {
		return nil, err
	}
	return res.GetSessions()[0], nil
}

// Conversation is the agent's own record of a conversation.
func (s *Stack) Conversation(id string) agenttest.Conversation {
	return agenttest.Conversation{Home: filepath.Join(s.Dir, "tmuxd", "harness", "fakeagent"), Session: id}
}

// Conversations are all that agents of this stack ever recorded, one a file.
func (s *Stack) Conversations() ([]agenttest.Conversation, error) {
	files, err := filepath.Glob(s.Conversation("*").Path())
	all := make([]agenttest.Conversation, len(files))
	for i, file := range files {
		all[i] = s.Conversation(strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	}
	return all, err
}

// AgentPid is the process of the agent of an item, the child of its wrapper.
func (s *Stack) AgentPid(ctx context.Context, item string) (int, error) {
	res, err := s.Tmuxd.SessionState(ctx, &tmuxdv1.SessionStateRequest{WorkItem: item})
	if err != nil {
		return 0, err
	}
	wrapper := res.GetIncarnation().GetPanePid()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", wrapper, wrapper))
	if err != nil {
		return 0, err
	}
	var pid int
	_, err = fmt.Sscan(string(data), &pid)
	return pid, err
}

// Screen is what the agent of an item shows, trimmed.
func (s *Stack) Screen(ctx context.Context, item string) (string, error) {
	ses, err := s.Session(ctx, item)
	if err != nil || ses == nil {
		return "", fmt.Errorf("no session of %s: %w", item, err)
	}
	out, err := exec.CommandContext(ctx, "tmux", "-N", "-S", ses.GetSocketPath(), "capture-pane", "-p", "-t", "="+ses.GetTarget()+":").Output()
	return strings.TrimRight(string(out), "\n "), err
}
