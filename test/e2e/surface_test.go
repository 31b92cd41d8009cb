package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakegithub"
)

// exit runs the muxpost command and returns its exit code and what it printed.
func (w *world) exit(stdin string, args ...string) (int, string) {
	w.t.Helper()
	cmd := w.Command(w.ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestBadInput_IsExplainedAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, fakegithub.Seed{}, nil)
	for name, row := range map[string]struct {
		stdin string
		args  []string
		exit  int
		want  string
	}{
		"malformed item":  {"", []string{"send", "octo/widget", "hello"}, 2, "github:owner/repo#number"},
		"empty text":      {"", []string{"send", item, "  "}, 2, "empty"},
		"five mebibytes":  {strings.Repeat("x", 5<<20), []string{"send", item, "-"}, 2, "1048576"},
		"invalid UTF-8":   {"a\xffb", []string{"send", item, "-"}, 2, "UTF-8"},
		"dry run":         {"", []string{"send", item, "hello", "--dry-run"}, 0, item},
		"no harness":      {"", []string{"send", item, "hello", "--harness", "codx"}, 2, "fakeagent"},
		"unknown command": {"", []string{"sned"}, 2, "sned"},
		"no delivery":     {"", []string{"explain", "delivery-none"}, 1, "delivery-none"},
	} {
		code, out := w.exit(row.stdin, row.args...)
		if code != row.exit || !strings.Contains(out, row.want) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", name, code, row.exit, row.want, out)
		}
	}
	if rows, err := w.Events(w.ctx, ""); err != nil || len(rows) != 0 {
		t.Errorf("the ledger has %v, %v", rows, err)
	}
	for name, row := range map[string]struct {
		call func() error
		kind fault.Kind
		want fault.Reason
	}{
		"deliver: malformed item": {func() error {
			_, err := w.Dispatcher.Deliver(w.ctx, deliver("delivery-0001", "octo#1", "x"))
			return err
		}, fault.Invalid, fault.ReasonBadWorkItem},
		"deliver: five mebibytes": {func() error {
			_, err := w.Dispatcher.Deliver(w.ctx, deliver("delivery-0001", item, strings.Repeat("x", 5<<20)))
			return err
		}, fault.Invalid, fault.ReasonTextTooLarge},
		"spawn: unknown harness": {func() error {
			_, err := w.Tmuxd.Spawn(w.ctx, spawn("codx", ""))
			return err
		}, fault.Invalid, fault.ReasonUnknownHarness},
		"spawn: missing directory": {func() error {
			_, err := w.Tmuxd.Spawn(w.ctx, spawn("fakeagent", filepath.Join(w.Dir, "work", "none")))
			return err
		}, fault.Invalid, fault.ReasonDirectoryMissing},
		"list: bad page token": {func() error {
			_, err := w.Poller.ListLedger(w.ctx, &pollerv1.ListLedgerRequest{PageToken: "?"})
			return err
		}, fault.Invalid, fault.ReasonBadArgument},
	} {
		if err := row.call(); !errors.Is(err, row.kind) || fault.ReasonOf(err) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An event whose harness is not there when it is tried is not lost: it fails with the reason, spends its tries and says so.
	if _, err := w.Poller.Submit(w.ctx, &pollerv1.SubmitRequest{WorkItem: item, Text: "hello", Harness: "codx"}); err != nil {
		t.Fatal(err)
	}
	w.until("the event has failed once", func() bool {
		rows, err := w.Events(w.ctx, item)
		return err == nil && len(rows) == 1 && rows[0].GetTries() > 0 && strings.Contains(rows[0].GetDetail(), "codx")
	})
}

func deliver(id, workItem, text string) *dispatcherv1.DeliverRequest {
	return &dispatcherv1.DeliverRequest{DeliveryId: id, WorkItem: workItem, Kind: dispatcherv1.EventKind_EVENT_KIND_MESSAGE, Text: text}
}

func spawn(harness, directory string) *tmuxdv1.SpawnRequest {
	return &tmuxdv1.SpawnRequest{WorkItem: item, Harness: harness, Directory: directory, FencingToken: 1,
		Conversation: &tmuxdv1.SpawnRequest_Fresh{Fresh: &tmuxdv1.Fresh{Reason: "first"}}}
}

func TestUp_UnknownKeysAreNamed(t *testing.T) {
	t.Parallel()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "muxpost.yaml")
	if err := os.WriteFile(file, []byte("tmuxd:\n  lisen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"muxpost-tmuxd", "muxpost"} {
		args := []string{"-config", file, "-data-dir", t.TempDir()}
		if program == "muxpost" {
			args = []string{"up", "--config", file, "--data-dir", t.TempDir()}
		}
		cmd := exec.Command(filepath.Join(bin, program), args...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "lisen") || !strings.Contains(string(out), "listen") {
			t.Errorf("%s: exit %d: %s", program, cmd.ProcessState.ExitCode(), out)
		}
	}
}

func TestServices_AnswerHealthReflectionAndJSON(t *testing.T) {
	t.Parallel()
	w := start(t, fakegithub.Seed{}, nil)
	for service, name := range map[string]string{
		"tmuxd": "muxpost.tmuxd.v1.TmuxdService", "dispatcher": "muxpost.dispatcher.v1.DispatcherService", "poller": "muxpost.poller.v1.PollerService",
	} {
		conn, err := rpc.Dial(w.Address(service), rpc.DialOptions{Name: service})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, asked := range []string{"", name} {
			h, err := healthpb.NewHealthClient(conn).Check(w.ctx, &healthpb.HealthCheckRequest{Service: asked})
			if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("health of %s %q: %v, %v", service, asked, h, err)
			}
		}
		if names := reflected(w.ctx, t, conn); !strings.Contains(strings.Join(names, " "), name) {
			t.Errorf("%s lists %v", service, names)
		}
	}
	for procedure, want := range map[string]string{
		"dispatcher muxpost.dispatcher.v1.DispatcherService/ListSessions":   "{}",
		"dispatcher muxpost.dispatcher.v1.DispatcherService/ListDeliveries": "{}",
		"poller muxpost.poller.v1.PollerService/ListLedger":                 "{}",
		"poller muxpost.poller.v1.PollerService/PollNow":                    `"source":"widgets"`,
	} {
		service, path, _ := strings.Cut(procedure, " ")
		if got := w.json(service, path, "{}"); !strings.Contains(strings.ReplaceAll(got, " ", ""), want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	var fail struct{ Code, Message string }
	if err := json.Unmarshal([]byte(w.json("poller", "muxpost.poller.v1.PollerService/Submit", `{"workItem":"nonsense","text":"x"}`)), &fail); err != nil ||
		fail.Code != "invalid_argument" || !strings.Contains(fail.Message, "provider") {
		t.Errorf("%+v, %v", fail, err)
	}
}

// json calls a method as curl does.
func (w *world) json(service, path, body string) string {
	w.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(w.Address(service), "unix:"))
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "http://localhost/"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func reflected(ctx context.Context, t *testing.T, conn *grpc.ClientConn) []string {
	t.Helper()
	stream, err := reflectpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseSend()
	var names []string
	for _, s := range res.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names
}
