package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

// authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// config returns the configuration of one party, which is known by a name and trusts the authority on both sides.
func (a authority) config(t *testing.T, name string) *tls.Config {
	t.Helper()
	id, err := url.Parse("spiffe://muxpost/" + name)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{id},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestServer_MutualTLSNamesTheCaller(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	onBoth(t, func(t *testing.T, build func(rpc.Options, service) either) {
		type key struct{}
		addr := rpctest.Serve(t, build(rpc.Options{
			TLS: ours.config(t, "tmuxd"),
			Authorize: func(ctx context.Context, call rpc.Call) (context.Context, error) {
				return context.WithValue(ctx, key{}, call.TLS.VerifiedChains[0][0].URIs[0].String()), nil
			},
		}, service{ask: func(ctx context.Context, _ string) (string, error) { return ctx.Value(key{}).(string), nil }}))
		conn := rpctest.Dial(t, addr, rpc.DialOptions{TLS: ours.config(t, "dispatcher")})
		if got, err := ask(t.Context(), conn, ""); got != "spiffe://muxpost/dispatcher" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		nameless := ours.config(t, "nobody")
		nameless.Certificates = nil
		stranger := theirs.config(t, "dispatcher")
		stranger.RootCAs = ours.config(t, "x").RootCAs
		for name, config := range map[string]*tls.Config{
			"without a certificate": nameless, "of another authority": stranger, "in plain text": nil} {
			conn := rpctest.Dial(t, addr, rpc.DialOptions{TLS: config})
			if got, err := ask(t.Context(), conn, ""); !errors.Is(err, fault.Unavailable) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	})
}
