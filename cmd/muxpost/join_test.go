package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
)

// registry is a dispatcher that takes any invitation for host east.
type registry struct {
	dispatcherv1connect.UnimplementedDispatcherServiceHandler
	authority *authority.Authority
	enrolled  int
}

func (r *registry) Enroll(_ context.Context, q *dispatcherv1.EnrollRequest) (*dispatcherv1.EnrollResponse, error) {
	public, err := authority.Asked(q.GetRequest())
	if err != nil {
		return nil, err
	}
	c, err := r.authority.Sign(authority.Order{Name: identity.Host("east")}, public, time.Now())
	r.enrolled++
	return &dispatcherv1.EnrollResponse{Name: "east", Certificate: c.Cert, Authority: r.authority.PEM()}, err
}

func (r *registry) Token(context.Context, string) (access.Token, error) {
	return access.Token{}, fault.New(fault.NotFound, "", "no")
}

// open answers other machines, and returns where.
func (r *registry) open(t *testing.T) string {
	t.Helper()
	ca, err := authority.Init(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.authority = ca
	c, err := ca.Issue(authority.Order{Name: identity.Dispatcher}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.WriteTo(t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	api, err := access.Open(access.Config{Listen: "127.0.0.1:0", Remote: "127.0.0.1:0", Files: files, Tokens: r, Logger: slog.New(slog.DiscardHandler)},
		func(s *rpc.ConnectServer) { dispatcherv1connect.RegisterDispatcherServiceHandler(s.RPC(), r) })
	if err != nil {
		t.Fatal(err)
	}
	var group run.Group
	api.Join(&group)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return api.Addresses()[1]
}

func TestJoin_MakesThisMachineAHost(t *testing.T) {
	r := &registry{}
	at := r.open(t)
	d := newDesk(t)
	config := filepath.Join(d.dir, "muxpost.yaml")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	invitation, _ := access.Invite(r.authority.Fingerprint())
	foreign, _ := access.Invite(make([]byte, 32))
	file := filepath.Join(t.TempDir(), "invitation")
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"another authority's": {foreign, fault.Unavailable},
		"none":                {"hello", fault.Invalid},
		"a token":             {strings.Replace(invitation, "muxpostjoin", "muxpost", 1), fault.Invalid},
	} {
		if err := os.WriteFile(file, []byte(tt.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.run(t, "hosts", "join", at, "--token-file", file); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := d.run(t, "hosts", "join", at); !errors.Is(err, fault.Invalid) || r.enrolled != 0 {
		t.Errorf("without an invitation: %v, %d enrolled", err, r.enrolled)
	}
	d.stdin = strings.NewReader(invitation + "\n")
	if err := d.run(t, "hosts", "join", at, "--token-file", "-", "--listen", "10.0.0.7:7411"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"this machine is host east", "muxpost hosts add east THIS-MACHINE:7411"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in %s", want, d.out)
		}
	}
	where := d.where
	where.File = ""
	s, err := settings.Load(where, layout.Tmuxd)
	if err != nil || s.Tmuxd.Host != "east" || s.Tmuxd.RenewFrom != at || s.Tmuxd.TLS.Listen != "10.0.0.7:7411" {
		t.Fatalf("%+v, %v", s.Tmuxd, err)
	}
	files := s.Tmuxd.TLS.Files()
	if v, err := (identity.Files{Cert: files.CertFile, Key: files.KeyFile, CA: files.CAFile}).Look(); err != nil || v.Name != "host/east" {
		t.Errorf("%+v, %v", v, err)
	}
	for _, path := range []string{config, files.CertFile, files.KeyFile, files.CAFile} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	// What is there is not changed: it says what to add.
	if err := os.WriteFile(config, []byte("tmuxd: {host: mine}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.stdin = strings.NewReader(invitation)
	if err := d.run(t, "hosts", "join", at, "--token-file", "-"); err != nil || !strings.Contains(d.out.String(), "see that it says") {
		t.Errorf("%v: %s", err, d.out)
	}
	if text, _ := os.ReadFile(config); string(text) != "tmuxd: {host: mine}\n" {
		t.Errorf("%s", text)
	}
}

// Who joins as root, on a machine where tmuxd is a user of its own, leaves nothing that tmuxd cannot read.
func TestJoin_WhatRootWritesIsTheDirectorysOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Unmet(t, "only root can write what belongs to another user")
	}
	const nobody = 65534
	r := &registry{}
	at := r.open(t)
	d := newDesk(t)
	config := filepath.Join(d.dir, "muxpost.yaml")
	if err := errors.Join(os.Remove(config), os.Chown(d.dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // once more, too
		invitation, _ := access.Invite(r.authority.Fingerprint())
		d.stdin = strings.NewReader(invitation)
		if err := d.run(t, "hosts", "join", at, "--token-file", "-"); err != nil {
			t.Fatal(err)
		}
		certificates := filepath.Join(d.dir, "certificates")
		files := authority.FilesIn(filepath.Join(certificates, "host-east"))
		for _, path := range []string{config, certificates, filepath.Dir(files.Key), files.Cert, files.Key, files.CA} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if of := info.Sys().(*syscall.Stat_t); of.Uid != nobody || of.Gid != nobody {
				t.Errorf("%s is of %d:%d", path, of.Uid, of.Gid)
			}
		}
	}
}
