package identity

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity/identitytest"
)

func files(f identitytest.Files) Files { return Files{Cert: f.Cert, Key: f.Key, CA: f.CA} }

func only(id ID) func(ID) bool { return func(got ID) bool { return got == id } }

// meet has a client and a server shake hands, and returns what each says of the other.
func meet(t *testing.T, client, server *tls.Config) (clientErr, serverErr error, seen ID) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		err = conn.(*tls.Conn).Handshake()
		if err == nil {
			state := conn.(*tls.Conn).ConnectionState()
			seen, _ = Of(&state)
			_, err = conn.Write([]byte("hello"))
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := tls.Client(conn, client)
	// With TLS 1.3 a client learns only afterwards that the server refused it.
	_, clientErr = io.ReadFull(c, make([]byte, 5))
	_ = conn.Close()
	return clientErr, <-done, seen
}

func TestTLS_BothEndsAreWhoTheyShouldBe(t *testing.T) {
	ours, theirs := identitytest.NewAuthority(t), identitytest.NewAuthority(t)
	for _, tt := range []struct {
		name           string
		client, server identitytest.Files
		ok             bool
	}{
		{"both as they should be", ours.Issue(t, "service/dispatcher"), ours.Issue(t, "host/a"), true},
		{"another host answers", ours.Issue(t, "service/dispatcher"), ours.Issue(t, "host/b"), false},
		{"a host calls", ours.Issue(t, "host/b"), ours.Issue(t, "host/a"), false},
		{"a client of another authority", theirs.Issue(t, "service/dispatcher"), ours.Issue(t, "host/a"), false},
		{"a server of another authority", ours.Issue(t, "service/dispatcher"), theirs.Issue(t, "host/a"), false},
		{"an old certificate", ours.IssueUntil(t, "service/dispatcher", time.Now().Add(-time.Minute)), ours.Issue(t, "host/a"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Each trusts our authority alone, whoever signed its own certificate.
			client, server := files(tt.client), files(tt.server)
			client.CA, server.CA = ours.File, ours.File
			c, err := client.Client(only(Host("a")))
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.Server(only(Dispatcher))
			if err != nil {
				t.Fatal(err)
			}
			clientErr, serverErr, seen := meet(t, c, s)
			if ok := clientErr == nil && serverErr == nil; ok != tt.ok || ok && seen != Dispatcher {
				t.Errorf("client %v, server %v, seen %q", clientErr, serverErr, seen)
			}
		})
	}
}

func TestTLS_AClientWithoutACertificateIsRefused(t *testing.T) {
	ours := identitytest.NewAuthority(t)
	s, err := files(ours.Issue(t, "host/a")).Server(func(ID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if _, serverErr, _ := meet(t, &tls.Config{InsecureSkipVerify: true}, s); serverErr == nil { //nolint:gosec // that is the test
		t.Error("it was let in")
	}
}

func TestTLS_ARenewedCertificateCountsWithoutARestart(t *testing.T) {
	ours := identitytest.NewAuthority(t)
	old := ours.IssueUntil(t, "host/a", time.Now().Add(-time.Minute))
	s, err := files(old).Server(only(Dispatcher))
	if err != nil {
		t.Fatal(err)
	}
	c, err := files(ours.Issue(t, "service/dispatcher")).Client(only(Host("a")))
	if err != nil {
		t.Fatal(err)
	}
	if clientErr, _, _ := meet(t, c, s); clientErr == nil {
		t.Fatal("an old certificate was taken")
	}
	renewed := ours.Issue(t, "host/a")
	for from, to := range map[string]string{renewed.Key: old.Key, renewed.Cert: old.Cert} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if clientErr, serverErr, _ := meet(t, c, s); clientErr != nil || serverErr != nil {
		t.Errorf("%v, %v", clientErr, serverErr)
	}
	// Half of the next one leaves the last.
	if err := os.WriteFile(old.Cert, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if clientErr, serverErr, _ := meet(t, c, s); clientErr != nil || serverErr != nil {
		t.Errorf("%v, %v", clientErr, serverErr)
	}
}

// A connection goes on with what it began with, while the next handshake of the same running server shows the new certificate.
func TestTLS_AnOldConnectionOutlivesARenewal(t *testing.T) {
	ours := identitytest.NewAuthority(t)
	old, renewed := ours.Issue(t, "host/a"), ours.Issue(t, "host/a")
	s, err := files(old).Server(only(Dispatcher))
	if err != nil {
		t.Fatal(err)
	}
	c, err := files(ours.Issue(t, "service/dispatcher")).Client(only(Host("a")))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	dial := func() *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", listener.Addr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	echo := func(conn *tls.Conn) error {
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 5))
		return err
	}
	shown := func(conn *tls.Conn) string { return conn.ConnectionState().PeerCertificates[0].SerialNumber.String() }
	before := dial()
	defer before.Close()
	if err := echo(before); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{renewed.Key: old.Key, renewed.Cert: old.Cert} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	after := dial()
	defer after.Close()
	if err := echo(after); err != nil || shown(after) == shown(before) {
		t.Errorf("the next handshake: %v, certificate %s and then %s", err, shown(before), shown(after))
	}
	if err := echo(before); err != nil {
		t.Errorf("the old connection: %v", err)
	}
}

func TestFiles_ThatCannotBeUsedAreTold(t *testing.T) {
	ours := identitytest.NewAuthority(t)
	good := files(ours.Issue(t, "host/a"))
	open := files(ours.Issue(t, "host/a"))
	if err := os.Chmod(open.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	missing, empty, nameless := good, good, files(ours.Issue(t, ""))
	missing.Cert = filepath.Join(t.TempDir(), "no.pem")
	empty.CA = filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty.CA, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]Files{"a key for all": open, "no file": missing, "no authority": empty, "no name": nameless} {
		if _, err := f.Server(only(Dispatcher)); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := f.Client(only(Dispatcher)); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
