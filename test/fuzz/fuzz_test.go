package fuzz

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	_ "muxpost.dev/muxpost/proto/gen/muxpost/team/v1" // its methods are found by name
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// bystander is the issue whose agent no call names.
const bystander = 7777

// world is the product, started once for all tests of a process.
type world struct {
	*stack.Stack
	stamp string // of the bystander's incarnation
	err   error
}

var (
	bin    string
	common world
	begin  sync.Once
)

// binVariable names where the programs lie to the processes that fuzz, which are killed in the end.
const binVariable = "MUXPOST_FUZZ_BIN"

func TestMain(m *testing.M) {
	flag.Parse()
	bin = os.Getenv(binVariable)
	built := bin == ""
	if built && flag.Lookup("test.fuzz").Value.String() != "" {
		var err error
		if bin, err = stack.Build(""); err == nil {
			err = os.Setenv(binVariable, bin)
		}
		if err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if common.Stack != nil {
		common.Close(context.Background())
	}
	stack.CloseLeft(context.Background())
	if built {
		_ = os.RemoveAll(bin)
	}
	os.Exit(code)
}

// start brings the product up, with an agent that has had one event.
func start(tb testing.TB) *world {
	tb.Helper()
	needs.Program(tb, "tmux")
	begin.Do(func() { common.err = common.up() })
	if common.err != nil {
		tb.Fatal(common.err)
	}
	return &common
}

func (w *world) up() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if bin == "" {
		if bin, err = stack.Build(""); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	// The server that stands for GitHub lives for as long as the tests do.
	w.Stack, err = stack.New(context.Background(), bin, fakegithub.Seed{Repos: []fakegithub.Repo{{
		Owner: stack.Owner, Name: stack.Repo, Associations: map[string]string{stack.Author: "MEMBER"},
		Issues: []fakegithub.Issue{{Number: bystander, Title: "One that nobody names", Author: stack.Author, Labels: []string{stack.Label}}},
	}}}, &out)
	if err != nil {
		return err
	}
	if err := w.Up(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, &out)
	}
	if err := w.Comment(ctx, stack.Author, bystander, "Begin."); err != nil {
		return err
	}
	if _, err := w.WaitEvent(ctx, stack.Item(bystander), 0); err != nil {
		return err
	}
	w.stamp, err = w.incarnation(ctx)
	return err
}

// incarnation is the bystander's, if it lives.
func (w *world) incarnation(ctx context.Context) (string, error) {
	res, err := w.Tmuxd.SessionState(ctx, &tmuxdv1.SessionStateRequest{WorkItem: stack.Item(bystander)})
	if err != nil {
		return "", err
	}
	if s := res.GetState(); s != tmuxdv1.State_STATE_LIVE {
		return "", fmt.Errorf("the bystander's session is %s: %s", s, res.GetDetail())
	}
	return res.GetIncarnation().GetStamp(), nil
}

// lastLog is the end of what a service logged.
func (w *world) lastLog(service string) string {
	data, _ := os.ReadFile(filepath.Join(w.Dir, "log", service+".log"))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "\n")
}

// unharmed fails the test when the service does not answer, or the bystander is not who it was.
func (w *world) unharmed(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stamp, err := w.incarnation(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stamp != w.stamp {
		t.Fatalf("the bystander was incarnation %s, and is %s", w.stamp, stamp)
	}
}

func FuzzTmuxd(f *testing.F)      { fuzz(f, "tmuxd", "muxpost.tmuxd.v1.TmuxdService") }
func FuzzDispatcher(f *testing.F) { fuzz(f, "dispatcher", "muxpost.dispatcher.v1.DispatcherService") }
func FuzzPoller(f *testing.F)     { fuzz(f, "poller", "muxpost.poller.v1.PollerService") }
func FuzzTeams(f *testing.F)      { fuzz(f, "dispatcher", "muxpost.team.v1.TeamService") }

func fuzz(f *testing.F, service, name string) {
	w := start(f)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		f.Fatal(err)
	}
	methods := found.(protoreflect.ServiceDescriptor).Methods()
	// No client of our own, which would make something better of what comes.
	conn, err := grpc.NewClient(w.Address(service), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	for i := range methods.Len() {
		f.Add(byte(i), []byte(nil))
		for at := i % 3; at < len(texts); at += 3 {
			// Each field is said, as the text at this place of the table where it is one.
			f.Add(byte(i), bytes.Repeat([]byte{1, byte(at)}, 12))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, from []byte) {
		method := methods.Get(int(which) % methods.Len())
		made, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		request := made.New()
		source := entropy(from)
		source.fill(request, 4)
		err = call(conn, method, request.Interface())
		if wrong := judge(err); wrong != "" {
			t.Fatalf("%s: %s: %v\nasked with %s\n%s", method.FullName(), wrong, err, protojson.Format(request.Interface()), w.lastLog(service))
		}
		w.unharmed(t)
	})
}

// patience is how long a call may take. Deliveries and streams may take longer, and then the call is given up.
const patience = 2 * time.Second

// call makes one call, and takes in what a stream says for a moment.
func call(conn *grpc.ClientConn, method protoreflect.MethodDescriptor, request proto.Message) error {
	made, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if !method.IsStreamingServer() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return conn.Invoke(ctx, path, request, made.New().Interface())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(made.New().Interface()); err != nil {
			return err
		}
	}
}

// judge says what is wrong with an answer; nothing when it is one that a person can use.
func judge(err error) string {
	s, ok := status.FromError(err)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return ""
	case !ok:
		return "this is no answer of a service"
	case s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled:
		return ""
	case s.Code() == codes.Internal || s.Code() == codes.Unknown || s.Code() == codes.DataLoss || s.Code() == codes.Unimplemented:
		return "this is no fault of the caller's"
	}
	for _, word := range []string{"SQLSTATE", "panic", "goroutine ", "runtime error", "rpc error"} {
		if strings.Contains(s.Message(), word) {
			return "the message is not written for a person"
		}
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == rpc.Domain && info.GetReason() != "" && s.Message() != "" {
			return ""
		}
	}
	return "there is no reason in it"
}

// FuzzJSON posts whatever comes to the operator APIs, as a script might.
func FuzzJSON(f *testing.F) {
	w := start(f)
	paths := map[string][]string{
		"dispatcher": {"ListSessions", "Deliver", "ListEvents", "WatchEvents", "nothing"},
		"poller":     {"ListLedger", "Submit", "Cancel", "LinkPull"},
	}
	for _, body := range []string{"", "{}", "[]", "null", `{"work_item": 7}`, `{"workItem": "github:octo/widget#8"}`, `{"page_size": 1e99}`, `{"no_such": 1}`, "{", "\xff"} {
		for service, methods := range paths {
			for i := range methods {
				f.Add(service == "poller", byte(i), "application/json", []byte(body))
			}
		}
	}
	f.Add(true, byte(0), "application/connect+json", []byte{0, 0, 0, 0, 2, '{', '}'})
	f.Add(false, byte(3), "application/connect+json", []byte{0, 255, 255, 255, 255})
	f.Add(false, byte(0), "application/grpc-web+proto", []byte{0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, poller bool, which byte, kind string, body []byte) {
		service, name := "dispatcher", "muxpost.dispatcher.v1.DispatcherService"
		if poller {
			service, name = "poller", "muxpost.poller.v1.PollerService"
		}
		methods := paths[service]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://local/"+name+"/"+methods[int(which)%len(methods)], bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header["Content-Type"] = []string{strings.Map(printable, kind)}
		answer, err := over(filepath.Join(w.Dir, service+".sock")).RoundTrip(request)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.Fatalf("%s did not answer: %v", service, err)
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusInternalServerError, http.StatusBadGateway:
			t.Fatalf("%s of %q to %s: %s", kind, body, request.URL.Path, answer.Status)
		}
		w.unharmed(t)
	})
}

// printable drops what no header may have.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

// over speaks HTTP on a socket, on a connection for each request.
func over(socket string) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
}
