package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

func echo(_ context.Context, text string) (string, error) { return text, nil }

func TestServer_HealthIsCheckedListedAndWatched(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		server := build(rpc.Options{}, service{})
		addr, stop := rpctest.ServeUntil(t, server)
		t.Cleanup(stop)
		client := healthpb.NewHealthClient(rpctest.Dial(t, addr, rpc.DialOptions{}))
		server.Health().Set("store", false)
		list, err := client.List(t.Context(), &healthpb.HealthListRequest{})
		if err != nil || list.GetStatuses()[""].GetStatus() != healthpb.HealthCheckResponse_SERVING ||
			list.GetStatuses()["store"].GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("list: %v, %v", list, err)
		}
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"}); !errors.Is(err, fault.NotFound) {
			t.Errorf("check of an unknown service: %v", err)
		}
		watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "store"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{
			healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING} {
			if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
				t.Fatalf("watch: %v, %v, want %v", got, err, want)
			}
			server.Health().Set("store", true)
		}
		stop()
		for err == nil {
			_, err = watch.Recv()
		}
		if !errors.Is(err, fault.Unavailable) {
			t.Errorf("the watch ended with %v", err)
		}
	})
}

func TestServer_ReflectionListsEveryService(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{}, service{ask: echo})), rpc.DialOptions{})
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		exchange := func(request *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
			t.Helper()
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		list := exchange(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		var names []string
		for _, s := range list.GetListServicesResponse().GetService() {
			// The test's own service has no descriptor, and connect does not list what it cannot describe.
			if !strings.HasPrefix(methodAsk, "/"+s.GetName()) {
				names = append(names, s.GetName())
			}
		}
		slices.Sort(names)
		want := []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Error(diff)
		}
		file := exchange(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "grpc.health.v1.Health"}})
		if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("got %v", file)
		}
	})
}

func TestServer_PanicIsAFaultLoggedWithItsStack(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		var log logbook
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{Logger: log.logger()}, service{
			ask: func(_ context.Context, text string) (string, error) {
				if text == "panic" {
					panic("secret")
				}
				return text, nil
			},
			follow: func(context.Context) error { panic("secret") },
		})), rpc.DialOptions{})
		_, err := ask(t.Context(), conn, "panic")
		if !errors.Is(err, fault.New(fault.Internal, fault.ReasonPanic, "")) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
		if err := follow(t, t.Context(), conn).RecvMsg(new(wrapperspb.StringValue)); fault.ReasonOf(err) != fault.ReasonPanic {
			t.Errorf("a stream: %v", err)
		}
		if got, err := ask(t.Context(), conn, "alive"); got != "alive" || err != nil {
			t.Errorf("after the panic: %q, %v", got, err)
		}
		records := log.records(t)
		if len(records) != 2 {
			t.Fatalf("got %v", records)
		}
		for i, method := range []string{methodAsk, methodFollow} {
			r := records[i]
			if r["level"] != "ERROR" || r[obs.KeyMethod] != method || r[obs.KeyReason] != "panic" || r[obs.KeyCode] != "Internal" ||
				!strings.Contains(r[obs.KeyError].(string), "panic: secret") || !strings.Contains(r[obs.KeyStack].(string), "server_test.go") {
				t.Errorf("got %v", r)
			}
		}
	})
}

func TestServer_FailedCallIsLoggedOnceAtTheLevelOfWhomItConcerns(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		var log logbook
		failures := map[string]error{
			"INFO": fault.New(fault.NotFound, fault.ReasonSessionNotFound, "no such session"), "ERROR": errors.New("oops"),
			"WARN": fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "silence"),
		}
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{Logger: log.logger()}, service{
			ask: func(_ context.Context, text string) (string, error) { return "", failures[text] },
		})), rpc.DialOptions{})
		for _, level := range []string{"INFO", "ERROR", "WARN", "fine"} {
			ask(t.Context(), conn, level) //nolint:errcheck // The log is what is looked at.
		}
		var got []string
		for _, r := range log.records(t) {
			got = append(got, r["level"].(string)+" "+r[obs.KeyError].(string))
		}
		if diff := cmp.Diff([]string{"INFO no such session", "ERROR oops", "WARN silence"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestServer_StopEndsStreamsAndLetsCallsFinish(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		entered, finish := make(chan struct{}), make(chan struct{})
		server := build(rpc.Options{}, service{
			ask:    func(context.Context, string) (string, error) { close(entered); <-finish; return "finished", nil },
			follow: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		})
		addr, stop := rpctest.ServeUntil(t, server)
		conn := rpctest.Dial(t, addr, rpc.DialOptions{})
		stream := follow(t, t.Context(), conn)
		answer := make(chan string, 1)
		go func() {
			text, err := ask(t.Context(), conn, "")
			if err != nil {
				text = err.Error()
			}
			answer <- text
		}()
		<-entered
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "stopping") {
			t.Errorf("the stream ended with %v", err)
		}
		if server.Health().Serving() {
			t.Error("a stopping server says that it serves")
		}
		close(finish)
		if got := <-answer; got != "finished" {
			t.Errorf("the call in flight ended with %s", got)
		}
		<-stopped
	})
}

func TestServer_CallThatDoesNotFinishIsCutOff(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		entered := make(chan struct{})
		var log logbook
		addr, stop := rpctest.ServeUntil(t, build(rpc.Options{StopTimeout: 20 * time.Millisecond, Logger: log.logger()}, service{
			ask: func(ctx context.Context, _ string) (string, error) {
				close(entered)
				<-ctx.Done()
				return "", ctx.Err()
			},
		}))
		conn := rpctest.Dial(t, addr, rpc.DialOptions{Name: "the tested", Silent: fault.ReasonHostUnreachable})
		failed := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), conn, "")
			failed <- err
		}()
		<-entered
		stop()
		if err := <-failed; !errors.Is(err, fault.Unavailable) {
			t.Errorf("got %v", err)
		}
		if !slices.ContainsFunc(log.records(t), func(r map[string]any) bool { return r["msg"] == "calls were cut off by the stop" }) {
			t.Errorf("got %v", log.records(t))
		}
	})
}

func TestServer_AuthorizeIsAskedBeforeEveryCall(t *testing.T) {
	type key struct{}
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		var calls []rpc.Call
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{
			Authorize: func(ctx context.Context, call rpc.Call) (context.Context, error) {
				calls = append(calls, call)
				if call.Authorization != "Bearer good" {
					return nil, fault.New(fault.Unauthenticated, "", "no token")
				}
				return context.WithValue(ctx, key{}, "admin"), nil
			},
		}, service{ask: func(ctx context.Context, _ string) (string, error) { return ctx.Value(key{}).(string), nil }})),
			rpc.DialOptions{})
		if _, err := ask(t.Context(), conn, ""); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("without a token: %v", err)
		}
		if got, err := ask(bearer(t.Context(), "good"), conn, ""); got != "admin" || err != nil {
			t.Errorf("with a token: %q, %v", got, err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("health without a token: %v", err)
		}
		if len(calls) != 3 || calls[0].Method != methodAsk || !strings.HasPrefix(calls[0].Peer, "127.0.0.1:") || calls[0].TLS != nil {
			t.Errorf("got %+v", calls)
		}
	})
}

func TestServer_LargeMessagesPassUpToTheLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{}, service{ask: echo})), rpc.DialOptions{MaxMessageBytes: 16 << 20})
		large := strings.Repeat("x", 7<<20)
		if got, err := ask(t.Context(), conn, large); err != nil || got != large {
			t.Errorf("7 MiB: %v", err)
		}
		if _, err := ask(t.Context(), conn, strings.Repeat("x", 9<<20)); !errors.Is(err, fault.Invalid) {
			t.Errorf("9 MiB: %v", err)
		}
	})
}

func TestServer_OneTraceCrossesClientAndServer(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		dir := t.TempDir()
		telemetry := func(name string) *obs.Telemetry {
			out, err := obs.Setup(t.Context(), obs.Config{Service: name, Host: "h", DataDir: dir, Stderr: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		caller, called := telemetry("poller"), telemetry("dispatcher")
		addr, stop := rpctest.ServeUntil(t, build(rpc.Options{Logger: called.Logger, TracerProvider: called.TracerProvider()}, service{
			ask: func(ctx context.Context, text string) (string, error) {
				ctx, end := obs.Start(ctx, called.Tracer("test"), "effect", slog.String(obs.KeyWorkItem, text))
				defer end(nil)
				return obs.TraceID(ctx), fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "silence")
			},
		}))
		conn := rpctest.Dial(t, addr, rpc.DialOptions{TracerProvider: caller.TracerProvider()})
		ctx, end := obs.Start(t.Context(), caller.Tracer("test"), "poll")
		if _, err := ask(ctx, conn, "github:o/r#1"); !errors.Is(err, fault.Unavailable) {
			t.Errorf("got %v", err)
		}
		healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}) //nolint:errcheck // It must only leave no span.
		end(nil)
		stop() // A server's span may end after its answer has arrived.
		ids, err := spanfile.FindTraces(obs.TracesDir(dir), obs.KeyWorkItem, "github:o/r#1")
		if err != nil || len(ids) != 1 || string(ids[0]) != obs.TraceID(ctx) {
			t.Fatalf("got %v, %v, want %s", ids, err, obs.TraceID(ctx))
		}
		spans, err := spanfile.ReadTraces(obs.TracesDir(dir), ids...)
		if err != nil {
			t.Fatal(err)
		}
		var chain []string
		for forest := spanfile.Tree(spans); len(forest) == 1; forest = forest[0].Children {
			s := forest[0].Span
			chain = append(chain, s.Service+" "+s.Kind+" "+s.Name)
			if s.Kind == "server" && (!s.Failed() || len(s.Events) != 1 || s.Events[0].Attributes[obs.KeyReason] != "tmux_no_answer") {
				t.Errorf("the server's span: %+v", s)
			}
		}
		name := strings.TrimPrefix(methodAsk, "/")
		want := []string{"poller internal poll", "poller client " + name, "dispatcher server " + name, "dispatcher internal effect"}
		if diff := cmp.Diff(want, chain); diff != "" || len(spans) != 4 {
			t.Errorf("%d spans: %s", len(spans), diff)
		}
	})
}

func TestServer_CallsAreMeasuredOnBothSides(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		called, asked := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
		addr, stop := rpctest.ServeUntil(t, build(rpc.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(called))}, service{
			ask: func(_ context.Context, text string) (string, error) {
				if text == "" {
					return "", fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "silence")
				}
				return text, nil
			},
		}))
		conn := rpctest.Dial(t, addr, rpc.DialOptions{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(asked))})
		for _, text := range []string{"a", "b", ""} {
			ask(t.Context(), conn, text) //nolint:errcheck // What comes of it is measured.
		}
		healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}) //nolint:errcheck // It must only not be measured.
		stop()                                                                            // A server may measure after its answer has arrived.
		want := map[string]uint64{strings.TrimPrefix(methodAsk, "/") + " OK": 2, strings.TrimPrefix(methodAsk, "/") + " UNAVAILABLE": 1}
		for name, reader := range map[string]*sdkmetric.ManualReader{"rpc.server.call.duration": called, "rpc.client.call.duration": asked} {
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			if len(all.ScopeMetrics) != 1 || len(all.ScopeMetrics[0].Metrics) != 1 || all.ScopeMetrics[0].Metrics[0].Name != name {
				t.Fatalf("%s: %+v", name, all.ScopeMetrics)
			}
			got := map[string]uint64{}
			for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints {
				method, _ := p.Attributes.Value("rpc.method")
				status, _ := p.Attributes.Value("rpc.response.status_code")
				got[method.AsString()+" "+status.AsString()] = p.Count
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestServer_AReadBeginsNoTraceAndGoesOnWithOne(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		for _, belongs := range []bool{false, true} {
			dir := t.TempDir()
			telemetry, err := obs.Setup(t.Context(), obs.Config{Service: "s", Host: "h", DataDir: dir, Stderr: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			addr, stop := rpctest.ServeUntil(t, build(rpc.Options{TracerProvider: telemetry.TracerProvider()}, service{
				follow: func(ctx context.Context) error {
					_, end := obs.Start(ctx, telemetry.Tracer("test"), "effect")
					end(nil)
					return nil
				},
			}))
			ctx, end := t.Context(), func(error) {}
			if belongs {
				ctx, end = obs.Start(ctx, telemetry.Tracer("test"), "poll")
			}
			stream := follow(t, ctx, rpctest.Dial(t, addr, rpc.DialOptions{TracerProvider: telemetry.TracerProvider()}))
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			end(nil)
			stop()
			telemetry.Shutdown(t.Context())
			spans, err := spanfile.Read(obs.TracesDir(dir), func(spanfile.Span) bool { return true })
			if want := map[bool]int{true: 4}[belongs]; err != nil || len(spans) != want {
				t.Errorf("in a trace: %v: %d spans %v, want %d", belongs, len(spans), err, want)
			}
		}
	})
}

func TestServer_DeadlineIsSilenceForTheCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		deadline := make(chan bool, 1)
		server := build(rpc.Options{}, service{ask: func(ctx context.Context, _ string) (string, error) {
			_, ok := ctx.Deadline()
			deadline <- ok
			<-ctx.Done()
			return "", ctx.Err()
		}})
		conn := rpctest.Dial(t, rpctest.Serve(t, server), rpc.DialOptions{Name: "the host", Timeout: 50 * time.Millisecond})
		_, err := ask(t.Context(), conn, "")
		if !errors.Is(err, fault.New(fault.Unavailable, fault.ReasonDeadline, "")) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "the host did not answer in time") {
			t.Errorf("got %v", err)
		}
		if !<-deadline {
			t.Error("the call had no deadline")
		}
	})
}

func TestDial_NobodyThereNamesWhoAndWhere(t *testing.T) {
	listener, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	conn := rpctest.Dial(t, addr, rpc.DialOptions{Name: "the dispatcher", Silent: fault.ReasonDispatcherSilent})
	_, err = ask(t.Context(), conn, "")
	if !errors.Is(err, fault.New(fault.Unavailable, fault.ReasonDispatcherSilent, "")) ||
		err.Error() != "cannot reach the dispatcher at "+addr+": connection refused" || status.Code(err) != codes.Unknown {
		t.Errorf("got %v", err)
	}
	deepest := err
	for next := deepest; next != nil; next = errors.Unwrap(next) {
		deepest = next
	}
	if !strings.Contains(deepest.Error(), "Error while dialing") {
		t.Errorf("what the transport said is lost: %v", deepest)
	}
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	_, err = ask(t.Context(), rpctest.Dial(t, socket, rpc.DialOptions{Name: "tmuxd"}), "")
	if err == nil || err.Error() != "cannot reach tmuxd at "+socket+": no such file" {
		t.Errorf("got %v", err)
	}
	for _, target := range []string{"", "unix:", "127.0.0.1", "127.0.0.1:", ":7001", "host:http", "[::1", "http://127.0.0.1:7001"} {
		if conn, err := rpc.Dial(target, rpc.DialOptions{}); !errors.Is(err, fault.New(fault.Invalid, fault.ReasonBadConfig, "")) {
			t.Errorf("%q: %v, %v", target, conn, err)
		}
	}
}

func TestServer_UnknownMethodTellsOfAnotherVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{}, service{ask: echo})), rpc.DialOptions{})
		err := conn.Invoke(t.Context(), "/muxpost.test.v1.Test/Newer", wrapperspb.String(""), new(wrapperspb.StringValue))
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "same version") {
			t.Errorf("got %v", err)
		}
	})
}

func TestServers_ARequestIsAmendedBeforeItsHandlerSeesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		type key struct{}
		seen := make(chan any, 2)
		addr := rpctest.Serve(t, build(rpc.Options{
			Authorize: func(ctx context.Context, _ rpc.Call) (context.Context, error) {
				return context.WithValue(ctx, key{}, "ann"), nil
			},
			Amend: func(ctx context.Context, request any) {
				request.(*wrapperspb.StringValue).Value += " by " + ctx.Value(key{}).(string)
				seen <- request
			},
		}, service{ask: echo, follow: func(context.Context) error { return nil }}))
		conn := rpctest.Dial(t, addr, rpc.DialOptions{})
		if got, err := ask(t.Context(), conn, "hello"); got != "hello by ann" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		follow(t, t.Context(), conn)
		if len(seen) != 2 {
			t.Errorf("%d requests were amended, want that of the stream as well", len(seen))
		}
	})
}
