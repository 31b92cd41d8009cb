package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

// faults are one of each kind and reason, with everything that crosses the wire.
func faults() []*fault.Error {
	var all []*fault.Error
	for _, kind := range fault.Kinds() {
		for _, reason := range append(fault.Reasons(), "") {
			f := fault.Wrap(kind, reason, fmt.Sprintf("the %s thing, größer: %s", kind, reason), errors.New("secret cause"))
			all = append(all, f.WithRemedy("do “this”\nand that").WithRetryAfter(1500*time.Millisecond))
		}
	}
	return all
}

// crossed is what is left of a fault on the other side.
func crossed(f *fault.Error) *fault.Error {
	if f.Kind == fault.Internal {
		return fault.New(f.Kind, f.Reason, "internal error, see the service's log")
	}
	return fault.New(f.Kind, f.Reason, f.Message).WithRemedy(f.Remedy).WithRetryAfter(f.RetryAfter)
}

func assertCrossed(t *testing.T, sent *fault.Error, err error) {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) {
		t.Fatalf("%v %v came back as %T: %v", sent.Kind, sent.Reason, err, err)
	}
	if diff := cmp.Diff(crossed(sent), got, cmpopts.IgnoreUnexported(fault.Error{})); diff != "" {
		t.Errorf("%v %v: %s", sent.Kind, sent.Reason, diff)
	}
	if !errors.Is(err, sent.Kind) || !errors.Is(err, fault.New(sent.Kind, sent.Reason, "")) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v %v came back as %v", sent.Kind, sent.Reason, err)
	}
}

// byIndex is a service that fails with the fault whose index it is asked for.
func byIndex(all []*fault.Error) service {
	return service{ask: func(_ context.Context, text string) (string, error) {
		i, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		return "", fmt.Errorf("wrapped on the way: %w", all[i])
	}}
}

func TestFaults_EveryKindAndReasonCrossesTheWire(t *testing.T) {
	all := faults()
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		conn := rpctest.Dial(t, rpctest.Serve(t, build(rpc.Options{}, byIndex(all))), rpc.DialOptions{})
		for i, f := range all {
			_, err := ask(t.Context(), conn, strconv.Itoa(i))
			assertCrossed(t, f, err)
		}
	})
}

func TestFaults_EveryKindAndReasonReachesConnectClients(t *testing.T) {
	all := faults()
	addr := rpctest.Serve(t, builders(t)["connect"](rpc.Options{}, byIndex(all)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	for name, options := range map[string][]connecthttp.Option{
		"connect": nil, "connect JSON": {connecthttp.WithProtoJSON()}, "grpc": {connecthttp.WithGRPC()}, "grpc-web": {connecthttp.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, "http://"+addr, options...))
			for i, f := range all {
				in := wrapperspb.String(strconv.Itoa(i))
				err := client.CallUnary(t.Context(), connect.Spec{Procedure: methodAsk}, in, new(wrapperspb.StringValue))
				assertCrossed(t, f, rpc.FromConnect(err))
			}
		})
	}
}

func TestToStatus_WhatIsNoFaultIsRedacted(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"a plain error", errors.New("secret"), codes.Internal, "internal error, see the service's log"},
		{"unknown of a library", status.Error(codes.Unknown, "secret"), codes.Internal, "internal error, see the service's log"},
		{"internal of a library", status.Error(codes.Internal, "secret"), codes.Internal, "internal error, see the service's log"},
		{"an answer of another service", connect.NewError(connect.CodeNotFound, "secret").WithRemote(), codes.Internal,
			"internal error, see the service's log"},
		{"a status of a library", fmt.Errorf("secret: %w", status.Error(codes.NotFound, "unknown service")), codes.NotFound, "unknown service"},
		{"a connect error of a library", connect.NewError(connect.CodeResourceExhausted, "too large"), codes.ResourceExhausted, "too large"},
		{"no time left", fmt.Errorf("secret: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "the time for this call ran out"},
		{"given up", fmt.Errorf("secret: %w", context.Canceled), codes.Canceled, "the call was cancelled"},
		{"text that is no text", fault.New(fault.Invalid, "", "a\xffb"), codes.InvalidArgument, "a\uFFFDb"},
		{"no message", fault.New(fault.Denied, "", ""), codes.PermissionDenied, "denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := status.Convert(rpc.ToStatus(t.Context(), tt.err))
			if got.Code() != tt.code || got.Message() != tt.text {
				t.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), tt.code, tt.text)
			}
			var c *connect.Error
			if err := rpc.ToConnect(t.Context(), tt.err); !errors.As(err, &c) || c.Code() != connect.Code(tt.code) || c.Message() != tt.text {
				t.Errorf("for connect: %v", err)
			}
		})
	}
	if rpc.ToStatus(t.Context(), nil) != nil || rpc.ToConnect(t.Context(), nil) != nil {
		t.Error("nil became an error")
	}
}

func TestToStatus_CallerThatLeftIsNoInternalFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	wrapped := fault.Wrap(fault.Internal, fault.ReasonDatabase, "query", context.Canceled)
	if got := status.Code(rpc.ToStatus(ctx, wrapped)); got != codes.Internal {
		t.Errorf("while the caller waits: %v", got)
	}
	cancel()
	if got := status.Code(rpc.ToStatus(ctx, wrapped)); got != codes.Canceled {
		t.Errorf("after the caller left: %v", got)
	}
}

func TestToStatus_LongTextsAreCut(t *testing.T) {
	long := strings.Repeat("ö", 100_000)
	var f *fault.Error
	err := rpc.FromStatus(rpc.ToStatus(t.Context(), fault.New(fault.Invalid, "", long).WithRemedy(long)))
	if !errors.As(err, &f) || len(f.Message) > 3000 || len(f.Remedy) > 3000 || !strings.HasSuffix(f.Message, "ö…") {
		t.Errorf("%d and %d bytes", len(f.Message), len(f.Remedy))
	}
}

func TestFromStatus_ForeignErrorsBecomeTheNearestKind(t *testing.T) {
	for code, want := range map[codes.Code]fault.Kind{
		codes.Unknown: fault.Internal, codes.Internal: fault.Internal, codes.DataLoss: fault.Internal, codes.Unavailable: fault.Unavailable,
		codes.InvalidArgument: fault.Invalid, codes.OutOfRange: fault.Invalid, codes.Unimplemented: fault.Invalid, codes.NotFound: fault.NotFound,
		codes.AlreadyExists: fault.AlreadyExists, codes.FailedPrecondition: fault.Conflict, codes.Aborted: fault.Conflict,
		codes.ResourceExhausted: fault.Invalid, codes.Unauthenticated: fault.Unauthenticated, codes.PermissionDenied: fault.Denied,
		codes.DeadlineExceeded: fault.Unavailable, codes.Canceled: fault.Unavailable, codes.Code(77): fault.Internal,
	} {
		if err := rpc.FromStatus(status.Error(code, "text")); !errors.Is(err, want) {
			t.Errorf("%v became %v, want %v", code, fault.KindOf(err), want)
		}
		if code > codes.Unauthenticated {
			continue
		}
		if err := rpc.FromConnect(connect.NewError(connect.Code(code), "text")); !errors.Is(err, want) {
			t.Errorf("connect's %v became %v, want %v", code, fault.KindOf(err), want)
		}
	}
	for _, err := range []error{nil, io.EOF, fault.New(fault.NotFound, "", "x")} {
		if got := rpc.FromStatus(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
		if got := rpc.FromConnect(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, context.Canceled} {
		if got := rpc.FromStatus(err); !errors.Is(got, fault.Unavailable) || !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestReasonName_IsTheNameOfTheEnum(t *testing.T) {
	if got := rpc.ReasonName(fault.ReasonBadConfig); got != "REASON_BAD_CONFIG" {
		t.Error(got)
	}
	if got := rpc.ReasonName(""); got != "REASON_UNSPECIFIED" {
		t.Error(got)
	}
}
