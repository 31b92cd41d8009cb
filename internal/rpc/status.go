package rpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// Domain marks an ErrorInfo as ours.
const Domain = "muxpost.dev"

// Keys of the metadata of our ErrorInfo.
const (
	metadataRemedy = "remedy"
	metadataTrace  = "trace_id"
)

// reasonPrefix begins every name of the enum muxpost.fault.v1.Reason.
const reasonPrefix = "REASON_"

// maxText bounds a message or a remedy on the wire, in bytes: both travel in HTTP headers.
const maxText = 2048

// codeOf is the one table of kinds and codes.
var codeOf = map[fault.Kind]codes.Code{
	fault.Internal:        codes.Internal,
	fault.Invalid:         codes.InvalidArgument,
	fault.NotFound:        codes.NotFound,
	fault.Conflict:        codes.FailedPrecondition,
	fault.AlreadyExists:   codes.AlreadyExists,
	fault.Fenced:          codes.Aborted,
	fault.Throttled:       codes.ResourceExhausted,
	fault.Unavailable:     codes.Unavailable,
	fault.Unauthenticated: codes.Unauthenticated,
	fault.Denied:          codes.PermissionDenied,
}

// ReasonName returns the name of a reason in the enum muxpost.fault.v1.Reason.
func ReasonName(reason fault.Reason) string {
	if reason == "" {
		return reasonPrefix + "UNSPECIFIED"
	}
	return reasonPrefix + strings.ToUpper(string(reason))
}

// reasonOf is the inverse of ReasonName. A reason of a newer peer is kept as it is.
func reasonOf(name string) fault.Reason {
	name, ok := strings.CutPrefix(name, reasonPrefix)
	if !ok || name == "UNSPECIFIED" {
		return ""
	}
	return fault.Reason(strings.ToLower(name))
}

// ToStatus returns err as a gRPC status error, or nil. A fault keeps its kind, reason, message, remedy and time to retry,
// and loses its cause. Internal faults and all errors that are no faults lose their text too: the message says where to look
// and names the trace of ctx. A status or a connect error of a library passes, unless it says Unknown or Internal.
func ToStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return statusOf(ctx, err).Err()
}

// FromStatus rebuilds the fault behind a gRPC status error, so that errors.Is works across a process. A status of another
// origin becomes the kind that comes nearest: what never answered is Unavailable, and a deadline or a cancellation is too,
// with the context's error as its cause. Nil, io.EOF and errors that are already faults are returned as they are.
func FromStatus(err error) error {
	var f *fault.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &f) {
		return err
	}
	if s, ok := status.FromError(err); ok {
		return faultOf(s)
	}
	return faultOf(status.FromContextError(err))
}

// statusOf chooses the status for an error that is not nil.
func statusOf(ctx context.Context, err error) *status.Status {
	var f *fault.Error
	if errors.As(err, &f) && (f.Kind != fault.Internal || !gaveUp(ctx, err)) {
		return statusOfFault(ctx, f)
	}
	if s := libraryStatus(err); s != nil && s.Code() != codes.Unknown && s.Code() != codes.Internal && s.Code() != codes.OK {
		return s
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return build(codes.DeadlineExceeded, "the time for this call ran out", fault.ReasonDeadline, nil)
	case errors.Is(err, context.Canceled):
		return build(codes.Canceled, "the call was cancelled", "", nil)
	}
	return internal(ctx, "")
}

// gaveUp reports whether err only says that the caller is gone. It is no fault of ours, even where a store wrapped it as one.
func gaveUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// libraryStatus returns the status of an error that a library made: grpc, or connect on this side of the wire.
func libraryStatus(err error) *status.Status {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus()
	}
	var c *connect.Error
	if errors.As(err, &c) && !c.IsRemote() {
		return statusOfConnect(c)
	}
	return nil
}

func statusOfFault(ctx context.Context, f *fault.Error) *status.Status {
	code, ok := codeOf[f.Kind]
	if !ok || code == codes.Internal {
		return internal(ctx, f.Reason)
	}
	message := f.Message
	if message == "" {
		message = f.Kind.Error()
	}
	metadata := map[string]string{}
	if f.Remedy != "" {
		metadata[metadataRemedy] = text(f.Remedy)
	}
	var more []protoadapt.MessageV1
	if f.RetryAfter > 0 {
		more = append(more, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	return build(code, message, f.Reason, metadata, more...)
}

// internal says nothing but where to look.
func internal(ctx context.Context, reason fault.Reason) *status.Status {
	message, metadata := "internal error, see the service's log", map[string]string{}
	if id := obs.TraceID(ctx); id != "" {
		message += " (trace " + id + ")"
		metadata[metadataTrace] = id
	}
	return build(codes.Internal, message, reason, metadata)
}

func build(code codes.Code, message string, reason fault.Reason, metadata map[string]string, more ...protoadapt.MessageV1) *status.Status {
	s := status.New(code, text(message))
	info := &errdetails.ErrorInfo{Reason: ReasonName(reason), Domain: Domain, Metadata: metadata}
	if detailed, err := s.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		return detailed
	}
	return s
}

// text makes a text fit for the wire: valid UTF-8 of bounded length.
func text(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// faultOf rebuilds the fault behind a status that is not OK.
func faultOf(s *status.Status) error {
	info, retry := details(s)
	message := s.Message()
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.DeadlineExceeded:
		return fault.Wrap(fault.Unavailable, fault.ReasonDeadline, "no answer in time", context.DeadlineExceeded)
	case codes.Canceled:
		return fault.Wrap(fault.Unavailable, "", "the call was given up", context.Canceled)
	case codes.Unimplemented:
		return fault.New(fault.Invalid, fault.ReasonUnknownCall, "the other side does not know this call: "+message).
			WithRemedy("use the same version of muxpost on both sides")
	}
	kind := kindOf(s.Code(), info != nil)
	if kind == fault.Throttled && info == nil && retry == 0 {
		// This is how the libraries say that a message is larger than they take, and waiting does not make it smaller.
		kind = fault.Invalid
	}
	f := fault.New(kind, reasonOf(info.GetReason()), message).WithRemedy(info.GetMetadata()[metadataRemedy])
	if retry > 0 {
		f = f.WithRetryAfter(retry)
	}
	return f
}

// details returns our ErrorInfo, if there is one, and the time to wait before a retry.
func details(s *status.Status) (info *errdetails.ErrorInfo, retry time.Duration) {
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				info = d
			}
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		}
	}
	return info, retry
}

// kindOf returns the kind for a code. A code of another origin may mean less than ours does: only our own Aborted is a fence.
func kindOf(code codes.Code, ours bool) fault.Kind {
	for _, kind := range fault.Kinds() {
		if codeOf[kind] == code && (ours || kind != fault.Fenced) {
			return kind
		}
	}
	switch code {
	case codes.Aborted:
		return fault.Conflict
	case codes.OutOfRange:
		return fault.Invalid
	}
	return fault.Internal
}
