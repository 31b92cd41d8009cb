package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/url"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// signer notes for whom a certificate was renewed.
type signer struct {
	Enroller
	renewed []string
}

func (s *signer) Renew(_ context.Context, host string, _ []byte) (authority.Certificate, []byte, error) {
	s.renewed = append(s.renewed, host)
	return authority.Certificate{}, nil, nil
}

// fleet has one host.
type fleet struct{ Hosts }

func (fleet) Statuses() []deliver.HostStatus { return []deliver.HostStatus{{Name: "east"}} }

func TestRenew_IsForTheHostThatCallsAndIsOneOfOurs(t *testing.T) {
	signs := &signer{}
	s := New(Config{Hosts: fleet{}, Enroller: signs, Logger: slog.New(slog.DiscardHandler)})
	by := func(id identity.ID) context.Context {
		t.Helper()
		uri, err := url.Parse(id.URI())
		if err != nil {
			t.Fatal(err)
		}
		shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{uri}}}}
		ctx, _ := access.Guard{}.Authorize(t.Context(), rpc.Call{Method: "/muxpost.dispatcher.v1.DispatcherService/Renew", TLS: shown})
		return ctx
	}
	asked := &dispatcherv1.RenewRequest{Request: []byte("x")}
	for _, tt := range []struct {
		ctx     context.Context
		request *dispatcherv1.RenewRequest
		want    error
	}{
		{by("host/east"), asked, nil},
		{by("host/west"), asked, fault.Denied},
		{by("service/poller"), asked, fault.Unauthenticated},
		{t.Context(), asked, fault.Unauthenticated},
		{by("host/east"), &dispatcherv1.RenewRequest{}, fault.Invalid},
		{by("host/east"), &dispatcherv1.RenewRequest{Request: make([]byte, maxRequest+1)}, fault.Invalid},
	} {
		if _, err := s.Renew(tt.ctx, tt.request); !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	if len(signs.renewed) != 1 || signs.renewed[0] != "east" {
		t.Errorf("renewed for %v", signs.renewed)
	}
}
