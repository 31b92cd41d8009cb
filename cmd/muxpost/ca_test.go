package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/settings"
)

func TestCA_IssuesListsAndIsTrusted(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "ca", "issue", "host", "east"); !errors.Is(err, fault.NotFound) {
		t.Errorf("without an authority: %v", err)
	}
	if err := d.run(t, "ca", "init"); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t, "ca", "init"); !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("a second time: %v", err)
	}
	if err := d.run(t, "ca", "show"); err != nil || !strings.Contains(d.out.String(), "nothing was issued yet") {
		t.Errorf("%v: %s", err, d.out)
	}
	if err := d.run(t, "ca", "issue", "host", "east"); err != nil || !strings.Contains(d.out.String(), "host/east until Apr 3") {
		t.Errorf("%v: %s", err, d.out)
	}
	dir := filepath.Join(d.dir, "certificates", "host-east")
	if v, err := authority.FilesIn(dir).Look(); err != nil || !v.Ends.Equal(now.Add(30*24*time.Hour)) {
		t.Errorf("%+v, %v", v, err)
	}
	out := filepath.Join(t.TempDir(), "d")
	if err := d.run(t, "ca", "issue", "service", "dispatcher", "--expires", "90d", "--out", out, "--json"); err != nil {
		t.Fatal(err)
	}
	var files issuedFiles
	if err := json.Unmarshal(d.out.Bytes(), &files); err != nil || files.CertFile != filepath.Join(out, "cert.pem") || !files.Ends.Equal(now.Add(90*24*time.Hour)) {
		t.Errorf("%+v, %v", files, err)
	}
	if err := d.run(t, "ca", "issue", "host", "west", "--out", out); !errors.Is(err, fault.Conflict) {
		t.Errorf("over the dispatcher's: %v", err)
	}
	for _, line := range [][]string{{"tmuxd", "east"}, {"host", "../east"}, {"host", "east", "--expires", "soon"}, {"host", "east", "--expires", "400d"}, {"host"}} {
		if err := d.run(t, append([]string{"ca", "issue"}, line...)...); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", line, err)
		}
	}
	d.now = func() time.Time { return now.Add(29 * 24 * time.Hour) }
	if err := d.run(t, "ca", "show"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"host/east", "due", "service/dispatcher", "valid", "the authority ends"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in %s", want, d.out)
		}
	}
	if err := d.run(t, "ca", "trust"); err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(authority.FilesIn(dir).CA); err != nil || d.out.String() != string(want) {
		t.Errorf("%v: %s", err, d.out)
	}
}

// The weekly renewal names no address, and curl still has to recognise the server afterwards.
func TestCA_IssuingAgainKeepsTheAddresses(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "ca", "init"); err != nil {
		t.Fatal(err)
	}
	dir, elsewhere := filepath.Join(d.dir, "certificates", "service-dispatcher"), filepath.Join(t.TempDir(), "d")
	serials := map[string]bool{}
	for _, row := range []struct {
		what, dir string
		args      []string
		names     []string
		told      string
	}{
		{"the first", dir, []string{"--address", "muxpost.example.com,10.0.0.5"}, []string{"muxpost.example.com", "10.0.0.5"}, ""},
		{"again", dir, nil, []string{"muxpost.example.com", "10.0.0.5"}, "kept from the certificate before: muxpost.example.com, 10.0.0.5"},
		{"again, for programs", dir, []string{"--json"}, []string{"muxpost.example.com", "10.0.0.5"}, "kept from the certificate before: muxpost.example.com, 10.0.0.5"},
		{"at another place", elsewhere, []string{"--out", elsewhere}, nil, ""},
		{"with another name", dir, []string{"--address", "other.example.com"}, []string{"other.example.com"}, ""},
		{"with none", dir, []string{"--address", ""}, nil, ""},
		{"again, and there are none", dir, nil, nil, ""},
	} {
		if err := d.run(t, append([]string{"ca", "issue", "service", "dispatcher"}, row.args...)...); err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		cert, err := authority.Read(authority.FilesIn(row.dir).Cert)
		if err != nil {
			t.Fatal(err)
		}
		serial := cert.SerialNumber.String()
		if got := authority.AddressesIn(row.dir, identity.Dispatcher); !slices.Equal(got, row.names) || serials[serial] {
			t.Errorf("%s: %v, serial %s", row.what, got, serial)
		}
		serials[serial] = true
		if told := d.out.String() + d.err.String(); !strings.Contains(told, row.told) || row.told == "" && strings.Contains(told, "kept") {
			t.Errorf("%s: %s", row.what, told)
		}
		if slices.Contains(row.args, "--json") && !json.Valid(d.out.Bytes()) {
			t.Errorf("%s: %s", row.what, d.out)
		}
	}
}

func TestDoctor_SaysWhenACertificateEndsSoon(t *testing.T) {
	d := newDesk(t)
	look := func() (level, text string) {
		t.Helper()
		s, err := settings.Load(d.where)
		if err != nil {
			t.Fatal(err)
		}
		doc := &doctor{services: &services{Settings: s}, app: d.app}
		doc.certificates(t.Context())
		if len(doc.findings) != 1 {
			t.Fatalf("%+v", doc.findings)
		}
		return doc.findings[0].Level, doc.findings[0].Detail
	}
	if level, text := look(); level != levelOK || !strings.Contains(text, "none is configured") {
		t.Errorf("%s %s", level, text)
	}
	for _, line := range [][]string{{"ca", "init"}, {"ca", "issue", "service", "dispatcher"}} {
		if err := d.run(t, line...); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(d.dir, "muxpost.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.dir, "certificates", "service-dispatcher") + "/"
	tls := "dispatcher: {tls: {cert_file: " + dir + "cert.pem, key_file: " + dir + "key.pem, ca_file: " + dir + "ca.pem}, "
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "dispatcher: {", tls, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int][2]string{1: {levelOK, "2 certificates looked at"}, 21: {levelWarn, "ends in 9d"}, 31: {levelFail, "ended 24h00m ago"}} {
		d.now = func() time.Time { return now.Add(time.Duration(days) * 24 * time.Hour) }
		if level, text := look(); level != want[0] || !strings.Contains(text, want[1]) {
			t.Errorf("after %d days: %s %s", days, level, text)
		}
	}
	if err := os.Chmod(dir+"key.pem", 0o644); err != nil {
		t.Fatal(err)
	}
	if level, text := look(); level != levelFail || !strings.Contains(text, "read by others") {
		t.Errorf("%s %s", level, text)
	}
}
