package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// unixScheme begins an address that is a path.
const unixScheme = "unix:"

// maxSocketPath is the longest path of a unix socket, in bytes.
const maxSocketPath = 107

// Listen opens "host:port" on a loopback address (port 0 chooses a free one) or "unix:/path", a socket that only this user
// can reach. Anything that others could reach is refused with fault.ReasonNotLoopback: nothing listens beyond loopback
// without credentials. An address in use is fault.ReasonAddressTaken, with its holder where the system tells it. A socket
// that a dead process left behind is replaced; one that answers is in use.
func Listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixScheme); ok {
		return listenUnix(path)
	}
	return listenTCP(addr, false)
}

// ListenTLS opens "host:port" on any address, for a server that asks everybody for a certificate (Options.TLS).
func ListenTLS(addr string) (net.Listener, error) { return listenTCP(addr, true) }

// ListenSigned opens "host:port" on any address, or "unix:/path", for a server that takes nothing but what is signed with a secret of the
// sender's, such as webhooks: they come from machines that have no certificate of ours. It gives no secret away and shows nothing to
// whoever has none. That it is reached in plain text is for a proxy in front of it to change.
func ListenSigned(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixScheme); ok {
		return listenUnix(path)
	}
	return listenTCP(addr, true)
}

func listenTCP(addr string, beyond bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%q is not an address", addr).
			WithRemedy("write it as 127.0.0.1:7001 or unix:/path/to/socket")
	}
	if ip, err := netip.ParseAddr(host); !beyond && host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
		return nil, notLoopback(addr)
	}
	listener, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, taken(addr, portHolder(port)).WithRemedy("stop it, or choose another address; ss -ltnp shows who listens")
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot listen on "+addr, err)
	}
	// What localhost means is up to the machine's own tables.
	if !beyond && !isLoopback(listener.Addr()) {
		listener.Close() //nolint:errcheck // It was never used.
		return nil, notLoopback(addr)
	}
	return listener, nil
}

func notLoopback(addr string) error {
	return fault.Newf(fault.Invalid, fault.ReasonNotLoopback,
		"%s could be reached from other machines, and nothing there is asked for credentials", addr).
		WithRemedy("listen on 127.0.0.1, [::1] or a unix socket")
}

func taken(addr, holder string) *fault.Error {
	message := fmt.Sprintf("the address %s is in use", addr)
	if holder != "" {
		message += " by " + holder
	}
	return fault.New(fault.Conflict, fault.ReasonAddressTaken, message)
}

func listenUnix(path string) (net.Listener, error) {
	if path == "" || len(path) > maxSocketPath {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadConfig,
			"the path of a socket has 1 to %d bytes, not %d: %s", maxSocketPath, len(path), path)
	}
	// The last directory of the path may be ours to make; above it there is something wrong if there is nothing.
	_ = os.Mkdir(filepath.Dir(path), 0o700)
	unlock, err := lockSocket(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot make the socket "+path, err).
			WithRemedy("check that its directory exists and that this user may write to it")
	}
	defer unlock()
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: privateSocket}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot listen on "+unixScheme+path, err)
	}
	// Where the mode could not be set before the socket had a name, it is set now.
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close() //nolint:errcheck // It was never used.
		return nil, fault.Wrap(fault.Internal, "", "cannot protect the socket "+path, err)
	}
	return listener, nil
}

// clearSocket removes a socket that nobody listens on, and refuses to touch anything else.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot look at "+path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fault.Newf(fault.Invalid, fault.ReasonBadConfig, "%s exists and is not a socket", path).
			WithRemedy("choose another path, or remove it if it is not needed")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close() //nolint:errcheck // It was only a question.
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return taken(unixScheme+path, "").WithRemedy("stop who listens there, or choose another path; ss -lxnp shows who listens")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot remove the stale socket "+path, err)
	}
	return nil
}
