package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// fleet is a dispatcher that knows hosts, and nothing else.
type fleet struct {
	dispatcherv1.UnimplementedDispatcherServiceServer
	hosts []*dispatcherv1.Host
}

func (f fleet) ListHosts(context.Context, *dispatcherv1.ListHostsRequest) (*dispatcherv1.ListHostsResponse, error) {
	return &dispatcherv1.ListHostsResponse{Hosts: f.hosts}, nil
}

// configured is a desk with another configuration.
func configured(t *testing.T, config string) *desk {
	t.Helper()
	d := newDesk(t)
	if err := os.WriteFile(filepath.Join(d.dir, "muxpost.yaml"), []byte(strings.ReplaceAll(config, "DIR", d.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// Where agents are on other hosts no tmuxd is missed here, and the dispatcher says how the hosts stand. A database that this user may not use is
// there when the services say so.
func TestStatus_OfTheMiddleTellsOfTheHosts(t *testing.T) {
	d := configured(t, `dispatcher: {listen: 'unix:DIR/d', harness: h, hosts: [], database_url: 'postgres:///x?host=DIR'}
poller: {listen: 'unix:DIR/p', dispatcher: 'unix:DIR/d', database_url: 'postgres:///x?host=DIR'}
`)
	if err := d.run(t, "status"); !errors.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "tmuxd") || !strings.Contains(err.Error(), "postgres") {
		t.Errorf("with all down: %v", err)
	}
	hosts := []*dispatcherv1.Host{{Name: "east", Address: "east:7411", Reached: true, Build: &dispatcherv1.Build{Release: "v9"}}, {Name: "west", Address: "west:7411", Detail: "cable"}}
	known := &fleet{hosts: hosts}
	d.serve(t, "d", func(s *rpc.Server) {
		dispatcherv1.RegisterDispatcherServiceServer(s, known)
		s.Health().Set("", true)
	})
	d.serve(t, "p", func(s *rpc.Server) {
		pollerv1.RegisterPollerServiceServer(s, &fakePoller{})
		s.Health().Set("", true)
	})
	if err := d.run(t, "status"); err == nil || !strings.Contains(err.Error(), "away: host west") {
		t.Errorf("with a host away: %v\n%s", err, d.out)
	}
	known.hosts = hosts[:1]
	if err := d.run(t, "status"); err != nil {
		t.Errorf("with all there: %v", err)
	}
	for _, want := range []string{"host east", "v9", "the services reach it, and this user does not"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, d.out)
		}
	}
}

// On a machine that joined as a host tmuxd is all that there should be.
func TestStatus_OfAHostIsThatOfTmuxd(t *testing.T) {
	d := configured(t, "tmuxd: {listen: 'unix:DIR/t', host: east, tls: {listen: '0.0.0.0:7411', cert_file: /c, key_file: /k, ca_file: /a}}\n")
	if err := d.run(t, "status"); err == nil || !strings.Contains(err.Error(), "away: tmuxd (") {
		t.Errorf("without tmuxd: %v", err)
	}
	d.serve(t, "t", func(s *rpc.Server) {
		tmuxdv1.RegisterTmuxdServiceServer(s, tmuxdv1.UnimplementedTmuxdServiceServer{})
		s.Health().Set("", true)
	})
	if err := d.run(t, "status"); err != nil {
		t.Errorf("%v\n%s", err, d.out)
	}
}
