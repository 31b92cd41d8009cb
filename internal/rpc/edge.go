package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
)

// busyTime is when whoever was refused because of too many calls may ask again.
const busyTime = time.Second

// edge is what both servers do around every call.
type edge struct {
	options Options
	took    *obs.Histogram
	stop    context.Context // ends when the server is told to stop
	stopNow context.CancelFunc
	// calls and streams are under way; health and reflection are not counted.
	calls, streams atomic.Int64
}

func newEdge(options Options) *edge {
	e := &edge{options: options, took: answered(meterOf(options.MeterProvider))}
	e.stop, e.stopNow = context.WithCancel(context.Background())
	return e
}

// call authorizes and runs a call, and returns its status and the error behind it, or nil. A failed call is logged here and
// nowhere else: its cause does not cross the wire.
func (e *edge) call(ctx context.Context, call Call, next func(context.Context) error) (*status.Status, error) {
	return e.counted(ctx, call, &e.calls, next)
}

// counted is call, counted among those of its kind: above the most, it is refused at once, so that what is under way comes to an end. Whoever
// waited in a queue of ours would give up, ask again, and have his work done twice.
func (e *edge) counted(ctx context.Context, call Call, underWay *atomic.Int64, next func(context.Context) error) (*status.Status, error) {
	begun := time.Now()
	err := recovered(func() error {
		if !isPlumbing(call.Method) {
			defer underWay.Add(-1)
			if n := underWay.Add(1); n > int64(e.options.MaxCalls) {
				return fault.Newf(fault.Throttled, fault.ReasonOverloaded, "this service has %d calls of this kind under way, and takes no more", e.options.MaxCalls).
					WithRemedy("ask again in a moment; if it stays so, look who calls, or run another replica").WithRetryAfter(busyTime)
			}
		}
		ctx, err := e.options.Authorize(ctx, call)
		if err != nil {
			return err
		}
		return next(ctx)
	})
	if err == nil {
		return nil, nil
	}
	s := statusOf(ctx, err)
	if s.Code() == codes.Canceled && ctx.Err() == nil && e.stop.Err() != nil {
		s = build(codes.Unavailable, "the service is stopping", "", nil)
	}
	e.log(ctx, call, s, err, time.Since(begun))
	return s, err
}

// unary is call for one that has an answer, whose duration is measured.
func (e *edge) unary(ctx context.Context, call Call, next func(context.Context) error) (*status.Status, error) {
	begun := time.Now()
	s, err := e.call(ctx, call, next)
	measure(ctx, e.took, call.Method, s, begun)
	return s, err
}

// stream is call for a stream, whose context also ends when the server is told to stop: a stream that follows something
// would never end by itself.
func (e *edge) stream(ctx context.Context, call Call, next func(context.Context) error) (*status.Status, error) {
	return e.counted(ctx, call, &e.streams, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(e.stop, cancel)()
		return next(ctx)
	})
}

// panicked is a recovered panic, as the cause of a fault.
type panicked struct {
	value any
	stack []byte
}

// Error returns the panic's value; the stack is logged as a field of its own.
func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fault.ReasonPanic, "the handler panicked", &panicked{p, debug.Stack()})
		}
	}()
	return fn()
}

// log writes the line for a failed call, and puts on the span what the redacted status does not say.
func (e *edge) log(ctx context.Context, call Call, s *status.Status, err error, took time.Duration) {
	if isPlumbing(call.Method) && fault.ReasonOf(err) != fault.ReasonPanic {
		return
	}
	attrs := []slog.Attr{
		slog.String(obs.KeyMethod, call.Method), slog.String(obs.KeyCode, s.Code().String()),
		slog.String(obs.KeyReason, string(fault.ReasonOf(err))), slog.String(obs.KeyError, err.Error()),
	}
	obs.Event(ctx, "call failed", attrs[1:]...)
	attrs = append(attrs, slog.Duration(obs.KeyDuration, took), slog.String(obs.KeyPeer, call.Peer))
	var p *panicked
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String(obs.KeyStack, string(p.stack)))
	}
	e.options.Logger.LogAttrs(ctx, levelOf(s.Code()), "call failed", attrs...)
}

// levelOf says who should look at a failed call: us, the operator, or only the caller.
func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return slog.LevelWarn
	case codes.Canceled:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// isPlumbing reports whether a method is health or reflection, which are neither traced nor logged.
func isPlumbing(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}
