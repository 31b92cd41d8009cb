package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/identity/identitytest"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
	"muxpost.dev/muxpost/services/dispatcher/internal/hosts"
	"muxpost.dev/muxpost/services/dispatcher/internal/store"
)

// A real tmuxd lets in a dispatcher by its certificate and nobody else, and a dispatcher speaks to the host that it means and to no other.
func TestTLS_AHostOnAnotherMachineIsKnownByItsCertificate(t *testing.T) {
	ours, theirs := identitytest.NewAuthority(t), identitytest.NewAuthority(t)
	files := func(f identitytest.Files) settings.TLS {
		return settings.TLS{CertFile: f.Cert, KeyFile: f.Key, CAFile: ours.File}
	}
	address := startOverTLS(t, files(ours.Issue(t, "host/east")))
	probe := func(name string, by settings.TLS) deliver.Sight {
		t.Helper()
		records := store.New(dbtest.New(t))
		f, err := hosts.NewFleet(hosts.FleetConfig{Hosts: []hosts.Address{{Name: name, Address: address}}, Registry: records, Tokens: records,
			Logger: slog.New(slog.DiscardHandler), TLS: knownBy(by)})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		h, _ := f.On(name)
		var sight deliver.Sight
		for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			// The program has to come up first.
			if sight = h.Probe(t.Context(), item, ""); !strings.Contains(sight.Detail, "connection refused") && !strings.Contains(sight.Detail, "asked again") {
				break
			}
		}
		return sight
	}
	if s := probe("east", files(ours.Issue(t, "service/dispatcher"))); s.Probe != dispatch.ProbeAbsent || s.Host != "east" {
		t.Fatalf("%+v", s)
	}
	for what, row := range map[string]struct {
		name string
		by   settings.TLS
	}{
		"another host is meant":        {"west", files(ours.Issue(t, "service/dispatcher"))},
		"a host asks":                  {"east", files(ours.Issue(t, "host/west"))},
		"a poller asks":                {"east", files(ours.Issue(t, "service/poller"))},
		"another authority's asks":     {"east", files(theirs.Issue(t, "service/dispatcher"))},
		"an old certificate is shown":  {"east", files(ours.IssueUntil(t, "service/dispatcher", time.Now().Add(-time.Minute)))},
		"nobody shows any certificate": {"east", settings.TLS{}},
	} {
		if s := probe(row.name, row.by); s.Probe != dispatch.ProbeUnreachable {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

func TestKnownBy_AnotherMachineIsNeverCalledWithoutACertificate(t *testing.T) {
	if _, err := knownBy(settings.TLS{})("east", "10.0.0.5:7413"); err == nil || !strings.Contains(err.Error(), "dispatcher.tls") {
		t.Errorf("%v", err)
	}
	for _, local := range []string{"unix:/run/t.sock", "127.0.0.1:7413", "localhost:7413", "[::1]:7413"} {
		if c, err := knownBy(settings.TLS{})("east", local); c != nil || err != nil {
			t.Errorf("%s: %v, %v", local, c, err)
		}
	}
}

// startOverTLS starts a tmuxd that other machines may reach, and returns where.
func startOverTLS(t *testing.T, files settings.TLS) string {
	t.Helper()
	bin := programs(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("tmuxd:\n  host: east\n  data_dir: %s\n  log_level: ERROR\n  tls: {listen: %q, cert_file: %s, key_file: %s, ca_file: %s}\n",
		dir, address, files.CertFile, files.KeyFile, files.CAFile)
	file := filepath.Join(dir, "m.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "muxpost-tmuxd"), "--config", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	return address
}
