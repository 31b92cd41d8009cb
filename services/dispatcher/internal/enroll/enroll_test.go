package enroll

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/tokens"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

func newEnroller(t *testing.T) (*Enroller, *strings.Builder) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	if _, err := authority.Init(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	return New(Config{Dir: dir, Invitations: tokens.New(dbtest.New(t)), Logger: slog.New(slog.NewTextHandler(log, nil)), Now: time.Now}), log
}

func request(t *testing.T) []byte {
	t.Helper()
	_, asked, err := authority.Request()
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

func TestEnroll_AnInvitationIsOneHostsAndCountsOnce(t *testing.T) {
	e, log := newEnroller(t)
	text, ends, err := e.Invite(t.Context(), "east", "ann", time.Time{})
	if err != nil || time.Until(ends) > time.Hour {
		t.Fatal(ends, err)
	}
	// What is wrong with the request does not use it up.
	for _, bad := range [][]byte{nil, []byte("x"), request(t)[:100]} {
		if _, _, err := e.Enroll(t.Context(), text, bad); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
	}
	c, ca, err := e.Enroll(t.Context(), text, request(t))
	if err != nil || c.Name != identity.Host("east") || len(c.Key) != 0 {
		t.Fatalf("%+v, %v", c.Issued, err)
	}
	block, _ := pem.Decode(c.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Error(err)
	}
	if _, _, err := e.Enroll(t.Context(), text, request(t)); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("a second time: %v", err)
	}
	if strings.Contains(log.String(), strings.Split(text, "_")[2]) || !strings.Contains(log.String(), "a host joined") {
		t.Errorf("%s", log)
	}
}

func TestEnroll_WhatDoesNotCountIsRefused(t *testing.T) {
	e, _ := newEnroller(t)
	text, _, err := e.Invite(t.Context(), "east", "ann", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := e.Invite(t.Context(), "west", "ann", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	e.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	ended, _, err := e.Invite(t.Context(), "north", "ann", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	e.Now = time.Now
	if _, _, err := e.Enroll(t.Context(), ended, request(t)); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("after its end: %v", err)
	}
	part, wrong := strings.Split(other, "_"), strings.Split(text, "_")
	wrong[2] = part[2]
	if _, _, err := e.Enroll(t.Context(), strings.Join(wrong, "_"), request(t)); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("with the secret of another: %v", err)
	}
	for _, bad := range []string{"", "x", "muxpostjoin___", "muxpost_" + strings.TrimPrefix(other, "muxpostjoin_"), other[:len(other)-2]} {
		if _, _, err := e.Enroll(t.Context(), bad, request(t)); !errors.Is(err, fault.Invalid) || bad != "" && bad != "x" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, _, err := e.Invite(t.Context(), "../east", "ann", time.Time{}); !errors.Is(err, fault.Invalid) {
		t.Error(err)
	}
	for _, ends := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(48 * time.Hour)} {
		if _, _, err := e.Invite(t.Context(), "east", "ann", ends); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", ends, err)
		}
	}
	e.Dir = t.TempDir()
	if _, _, err := e.Invite(t.Context(), "east", "ann", time.Time{}); !errors.Is(err, fault.Conflict) {
		t.Errorf("without an authority: %v", err)
	}
	// That there is none does not use an invitation up.
	if _, _, err := e.Enroll(t.Context(), other, request(t)); !errors.Is(err, fault.Conflict) {
		t.Error(err)
	}
}
