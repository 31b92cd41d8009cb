// Package rpctest runs servers of internal/rpc for tests: each on a free port of the loopback address, with a client, until
// the test ends. It knows no service: the test registers its own.
package rpctest

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/rpc"
)

// Server is either server of internal/rpc.
type Server interface {
	Serve(context.Context, net.Listener) error
}

// Serve runs a server and returns its address. It is stopped when the test ends, and a stop that is not in good order fails
// the test.
func Serve(t testing.TB, server Server) (addr string) {
	t.Helper()
	addr, stop := ServeUntil(t, server)
	t.Cleanup(stop)
	return addr
}

// ServeUntil is Serve for a test that stops the server itself; stop waits until it has stopped.
func ServeUntil(t testing.TB, server Server) (addr string, stop func()) {
	t.Helper()
	listener, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	return listener.Addr().String(), sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server did not stop in good order: %v", err)
		}
	})
}

// Dial returns a client that is closed when the test ends.
func Dial(t testing.TB, addr string, options rpc.DialOptions) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(addr, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return conn
}
