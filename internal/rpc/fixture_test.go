package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

func TestMain(m *testing.M) {
	register()
	goleak.VerifyTestMain(m)
}

// register gives the service its contract: Follow is a read, and Ask is not.
func register() {
	method := func(name string, options *descriptorpb.MethodOptions) *descriptorpb.MethodDescriptorProto {
		text := proto.String(".google.protobuf.StringValue")
		return &descriptorpb.MethodDescriptorProto{Name: proto.String(name), InputType: text, OutputType: text, Options: options}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("muxpost/test/v1/test.proto"), Package: proto.String("muxpost.test.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/wrappers.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Test"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Ask", nil), method("Follow", &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()}),
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}

// The methods of a service made for these tests.
const (
	methodAsk    = "/muxpost.test.v1.Test/Ask"
	methodFollow = "/muxpost.test.v1.Test/Follow"
)

// service answers as the test says. Ask is unary; Follow sends its first answer and runs until the function returns.
type service struct {
	ask    func(ctx context.Context, text string) (string, error)
	follow func(ctx context.Context) error
}

// testService is what grpc-go checks an implementation against.
type testService interface {
	answer(context.Context, string) (string, error)
}

func (s service) answer(ctx context.Context, text string) (string, error) { return s.ask(ctx, text) }

func (s service) desc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "muxpost.test.v1.Test", HandlerType: (*testService)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Ask", Handler: func(
			_ any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor,
		) (any, error) {
			var in wrapperspb.StringValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			return around(ctx, &in, &grpc.UnaryServerInfo{FullMethod: methodAsk}, func(ctx context.Context, _ any) (any, error) {
				text, err := s.ask(ctx, in.GetValue())
				return wrapperspb.String(text), err
			})
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Follow", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				return err
			}
			if err := stream.SendMsg(wrapperspb.String("first")); err != nil {
				return err
			}
			return s.follow(stream.Context())
		}}},
	}
}

func (s service) methods() []connect.Method {
	return []connect.Method{{
		Spec: connect.Spec{Procedure: methodAsk},
		Handler: func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
			var in wrapperspb.StringValue
			if err := stream.Receive(&in); err != nil {
				return err
			}
			text, err := s.ask(ctx, in.GetValue())
			if err != nil {
				return err
			}
			return stream.Send(wrapperspb.String(text))
		},
	}, {
		Spec: connect.Spec{Procedure: methodFollow, StreamType: connect.StreamTypeServer},
		Handler: func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
			if err := stream.Receive(new(wrapperspb.StringValue)); err != nil {
				return err
			}
			if err := stream.Send(wrapperspb.String("first")); err != nil {
				return err
			}
			return s.follow(ctx)
		},
	}}
}

// either is what both servers have in common.
type either interface {
	rpctest.Server
	Health() *rpc.Health
}

// builders make a server of each kind with the test's service.
func builders(t *testing.T) map[string]func(rpc.Options, service) either {
	return map[string]func(rpc.Options, service) either{
		"grpc": func(options rpc.Options, s service) either {
			server := rpc.NewServer(options)
			server.RegisterService(s.desc(), s)
			return server
		},
		"connect": func(options rpc.Options, s service) either {
			server, err := rpc.NewConnectServer(options)
			if err != nil {
				t.Fatal(err)
			}
			server.RPC().Register(s.methods()...)
			return server
		},
	}
}

// onBoth runs a test against a server of each kind.
func onBoth(t *testing.T, test func(t *testing.T, build func(rpc.Options, service) either)) {
	for name, build := range builders(t) {
		t.Run(name, func(t *testing.T) { test(t, build) })
	}
}

func ask(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(ctx, methodAsk, wrapperspb.String(text), &out)
	return out.GetValue(), err
}

// follow opens the stream and reads its first message.
func follow(t *testing.T, ctx context.Context, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methodFollow)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(wrapperspb.String("")); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
		t.Fatal(err)
	}
	return stream
}

// logbook is a log that a test can read while servers write to it.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logbook) records(t *testing.T) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(l.buf.Bytes()) {
		var record map[string]any
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		out = append(out, record)
	}
	return out
}
