package rpc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	listener, err := rpc.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func TestListen_NothingButLoopback(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1.example.com:0",
		"LOCALHOST.:0", "*:0"} {
		if listener, err := rpc.Listen(addr); !errors.Is(err, fault.New(fault.Invalid, fault.ReasonNotLoopback, "")) {
			t.Errorf("%s: %v, %v", addr, listener, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "unix:",
		"unix:/no/such/directory/s", "unix:/" + strings.Repeat("x", 107)} {
		if listener, err := rpc.Listen(addr); !errors.Is(err, fault.New(fault.Invalid, fault.ReasonBadConfig, "")) {
			t.Errorf("%q: %v, %v", addr, listener, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0", "127.1.2.3:0"} {
		listen(t, addr)
	}
}

func TestListenSigned_AnyAddressOrASocketOfItsOwner(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "hooks.sock")
	for _, addr := range []string{"0.0.0.0:0", "127.0.0.1:0", "unix:" + socket} {
		listener, err := rpc.ListenSigned(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if info, err := os.Stat(socket); addr == "unix:"+socket && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%v, %v", info, err)
		}
		listener.Close()
	}
	for _, addr := range []string{"", "127.0.0.1", "unix:"} {
		if _, err := rpc.ListenSigned(addr); !errors.Is(err, fault.New(fault.Invalid, fault.ReasonBadConfig, "")) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestListen_TakenAddressNamesItsHolder(t *testing.T) {
	addr := listen(t, "127.0.0.1:0").Addr().String()
	_, err := rpc.Listen(addr)
	if !errors.Is(err, fault.New(fault.Conflict, fault.ReasonAddressTaken, "")) || !strings.Contains(err.Error(), addr) {
		t.Fatalf("got %v", err)
	}
	if _, procErr := os.Stat("/proc/net/tcp"); procErr == nil && !strings.Contains(err.Error(), "rpc.test (process ") {
		t.Errorf("the holder is not named: %v", err)
	}
}

func TestListen_SocketIsPrivateAndReplacedOnlyWhenItIsDead(t *testing.T) {
	// A umask that takes nothing away, so that the mode is our own doing.
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, "unix:"+path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := rpc.Listen("unix:" + path); fault.ReasonOf(err) != fault.ReasonAddressTaken || !strings.Contains(err.Error(), path) {
		t.Errorf("a socket that answers: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the socket should have been left behind: %v", err)
	}
	listen(t, "unix:"+path)
	other := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Listen("unix:" + other); !errors.Is(err, fault.Invalid) {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(other); err != nil || string(data) != "precious" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestListen_OnlyOneOfManyReplacesADeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead := listen(t, "unix:"+path).(*net.UnixListener)
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	won := make(chan net.Listener, 8)
	for range cap(won) {
		group.Go(func() {
			listener, err := rpc.Listen("unix:" + path)
			if err == nil {
				won <- listener
			} else if fault.ReasonOf(err) != fault.ReasonAddressTaken {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	close(won)
	if len(won) != 1 {
		t.Errorf("%d listeners on one socket", len(won))
	}
	for listener := range won {
		listener.Close()
	}
}

func TestListen_UnixSocketIsServedAndDialled(t *testing.T) {
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		addr := "unix:" + filepath.Join(t.TempDir(), "s")
		listener := listen(t, addr)
		server := build(rpc.Options{}, service{ask: echo})
		rpctest.Serve(t, onListener{server, listener})
		conn := rpctest.Dial(t, addr, rpc.DialOptions{})
		if got, err := ask(t.Context(), conn, "hello"); got != "hello" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// onListener serves on a listener of its own instead of the one it is given.
type onListener struct {
	rpctest.Server
	listener net.Listener
}

func (s onListener) Serve(ctx context.Context, other net.Listener) error {
	if err := other.Close(); err != nil {
		return err
	}
	return s.Server.Serve(ctx, s.listener)
}
