package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// gate stands between the dispatcher and tmuxd and passes every call on as it is, whatever it says. A test can have something happen right
// before a call about one work item, or have the answer to it be lost.
type gate struct {
	address string
	conn    *grpc.ClientConn

	mu    sync.Mutex
	rules []*gateRule
	calls []gateCall
}

// gateRule is what happens at the next call of a method about an item.
type gateRule struct {
	method, item string
	before       func()
	lose, done   bool
}

// gateCall is one call that passed.
type gateCall struct {
	method  string
	message []byte
}

// before has do happen right before the next call of the method about the item.
func (g *gate) before(item, method string, do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules = append(g.rules, &gateRule{method: method, item: item, before: do})
}

// lose has the answer to the next call of the method about the item be lost, once it was given.
func (g *gate) lose(item, method string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules = append(g.rules, &gateRule{method: method, item: item, lose: true})
}

// count says how many calls of the method there were about the item.
func (g *gate) count(item, method string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if c.method == method && bytes.Contains(c.message, []byte(item)) {
			n++
		}
	}
	return n
}

// take notes a call and returns the rule for it, if there is one.
func (g *gate) take(method string, message []byte) *gateRule {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, gateCall{method, message})
	for _, r := range g.rules {
		if !r.done && r.method == method && bytes.Contains(message, []byte(r.item)) {
			r.done = true
			return r
		}
	}
	return &gateRule{}
}

func (g *gate) serve(w *world) {
	w.t.Helper()
	path := filepath.Join(w.Dir, "gate.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	g.address = "unix:" + path
	// tmuxd comes up after the gate, and calls wait for it.
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}
	g.conn, err = grpc.NewClient(w.Address("tmuxd"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(soon),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true)))
	if err != nil {
		w.t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(g.pass))
	go func() { _ = srv.Serve(listener) }()
	w.t.Cleanup(func() {
		srv.Stop()
		g.conn.Close()
	})
}

// pass passes on one request and every answer to it.
func (g *gate) pass(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	var request rawMessage
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	rule := g.take(filepath.Base(method), request)
	if rule.before != nil {
		rule.before()
	}
	ctx := in.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if rule.lose {
		ctx = context.WithoutCancel(ctx)
	}
	out, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(out.SendMsg(&request), out.CloseSend()); err != nil {
		return err
	}
	for {
		var answer rawMessage
		switch err := out.RecvMsg(&answer); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case rule.lose:
			return status.Error(codes.Unavailable, "the answer is lost")
		}
		if err := in.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// rawMessage is a message that nobody reads on its way.
type rawMessage []byte

// rawCodec passes messages on as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*rawMessage), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*rawMessage) = bytes.Clone(data)
	return nil
}
