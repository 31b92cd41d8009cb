package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/needs"
)

func made(t *testing.T, now time.Time) *Authority {
	t.Helper()
	a, err := Init(filepath.Join(t.TempDir(), "ca"), now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestInit_MakesOneThatOnlyItsOwnerCanUseAndNeverOverwritesIt(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	for name, mode := range map[string]os.FileMode{"": 0o700, keyFile: 0o600} {
		if info, err := os.Stat(filepath.Join(a.dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
	if d := a.Ends().Sub(now); d < Lifetime-time.Minute || d > Lifetime {
		t.Errorf("it lasts %v", d)
	}
	if _, err := Init(a.dir, now); !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("a second time: %v", err)
	}
	// One half of an authority is one as well: whoever has lost the other may still have it somewhere.
	for _, name := range []string{keyFile, certFile} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Init(dir, now); !errors.Is(err, fault.AlreadyExists) {
			t.Errorf("%s alone: %v", name, err)
		}
	}
	if err := os.Chmod(filepath.Join(a.dir, keyFile), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(a.dir); !errors.Is(err, fault.Invalid) {
		t.Errorf("with a key for others: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, fault.NotFound) {
		t.Errorf("without one: %v", err)
	}
}

// hello has a client and a server of these files shake hands.
func hello(t *testing.T, client, server identity.Files, as, to identity.ID) error {
	t.Helper()
	s, err := server.Server(func(id identity.ID) bool { return id == as })
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Client(func(id identity.ID) bool { return id == to })
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.ReadFull(tls.Client(conn, c), make([]byte, 5))
	return err
}

func TestIssue_MakesWhatBothEndsTrust(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	files := map[identity.ID]identity.Files{}
	for _, id := range []identity.ID{identity.Dispatcher, identity.Host("east")} {
		c, err := a.Issue(Order{Name: id}, now)
		if err != nil {
			t.Fatal(err)
		}
		f, err := a.WriteTo(filepath.Join(t.TempDir(), "out"), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{f.Key, f.Cert, f.CA} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		files[id] = f
	}
	east := identity.Host("east")
	if err := hello(t, files[identity.Dispatcher], files[east], identity.Dispatcher, east); err != nil {
		t.Error(err)
	}
	if err := hello(t, files[east], files[identity.Dispatcher], identity.Dispatcher, identity.Dispatcher); err == nil {
		t.Error("a host passes for the dispatcher")
	}
	v, err := files[east].Look()
	if err != nil || v.Name != east || v.Due(now) || !v.Due(v.Ends.Add(-DefaultTerm/4)) || v.Ends.Sub(now) > DefaultTerm {
		t.Errorf("%+v, %v", v, err)
	}
	list, err := a.List()
	if err != nil || len(list) != 2 || list[0].Name != identity.Dispatcher || list[1].Ends.Unix() != v.Ends.Unix() || list[0].Serial == list[1].Serial {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWriteTo_RenewsInPlaceAndNeverReplacesAnothersCertificate(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	a := made(t, now)
	write := func(id identity.ID) error {
		c, err := a.Issue(Order{Name: id}, now)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.WriteTo(dir, c)
		return err
	}
	if err := errors.Join(write("host/east"), write("host/east")); err != nil {
		t.Error(err)
	}
	if err := write("host/west"); !errors.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReplace_WhatDoesNotFitTogetherReplacesNothing(t *testing.T) {
	now := time.Now()
	a, dir := made(t, now), t.TempDir()
	issue := func(a *Authority) Certificate {
		c, err := a.Issue(Order{Name: "host/east"}, now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	files, err := a.WriteTo(dir, issue(a))
	if err != nil {
		t.Fatal(err)
	}
	had, err := files.Look()
	if err != nil {
		t.Fatal(err)
	}
	one, two, other := issue(a), issue(a), made(t, now)
	for what, r := range map[string]func() error{
		"another key":       func() error { return Replace(files, one.Cert, two.Key, a.PEM()) },
		"no certificate":    func() error { return Replace(files, nil, one.Key, a.PEM()) },
		"another authority": func() error { return Replace(files, one.Cert, one.Key, other.PEM()) },
		"no authority":      func() error { return Replace(files, one.Cert, one.Key, nil) },
	} {
		if err := r(); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "nothing was replaced") {
			t.Errorf("%s: %v", what, err)
		}
		if has, err := files.Look(); err != nil || has != had {
			t.Errorf("%s: %+v, %v", what, has, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReplace_WhoeverStopsInTheMiddleLeavesWhatWorks(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	issue := func(ends time.Duration) Certificate {
		c, err := a.Issue(Order{Name: "host/east", Term: ends}, now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	files, err := a.WriteTo(t.TempDir(), issue(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	had, err := files.Look()
	if err != nil {
		t.Fatal(err)
	}
	// Twice: the one that stops second finds what the first has left.
	for range 2 {
		if err := keepKey(files); err != nil {
			t.Fatal(err)
		}
		key := &staged{path: files.Key, data: issue(48 * time.Hour).Key}
		if err := errors.Join(key.write(), key.land()); err != nil {
			t.Fatal(err)
		}
		if has, err := files.Look(); err != nil || has != had {
			t.Errorf("%+v, %v", has, err)
		}
	}
	next := issue(72 * time.Hour)
	if err := Replace(files, next.Cert, next.Key, a.PEM()); err != nil {
		t.Fatal(err)
	}
	if has, err := files.Look(); err != nil || !has.Ends.After(had.Ends) {
		t.Errorf("%+v, %v", has, err)
	}
	if _, err := os.Stat(files.FormerKey()); !os.IsNotExist(err) {
		t.Errorf("the former key is still there: %v", err)
	}
}

// Root acts in the directory of a service's user, which has to be able to use what comes of it: after its restart, too.
func TestWriteTo_WhatRootWritesIsTheDirectorysOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Unmet(t, "only root can write what belongs to another user")
	}
	const nobody = 65534
	data := t.TempDir()
	if err := os.Chown(data, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	a, err := Init(filepath.Join(data, "ca"), now)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(data, "certificates", "host-east")
	for _, what := range []string{"the first", "in the place of another"} {
		c, err := a.Issue(Order{Name: "host/east"}, now)
		if err == nil {
			_, err = a.WriteTo(out, c)
		}
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		err = filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if of := info.Sys().(*syscall.Stat_t); of.Uid != nobody || of.Gid != nobody {
				t.Errorf("%s: %s is of %d:%d", what, path, of.Uid, of.Gid)
			}
			found++
			return nil
		})
		if err != nil || found != 10 {
			t.Errorf("%s: %d files and directories, %v", what, found, err)
		}
	}
}

func TestAddressesIn_AreThoseOfThePartysOwnCertificate(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	a := made(t, now)
	want := []string{"east.example.com", "10.0.0.5", "2001:db8::5"}
	c, err := a.Issue(Order{Name: "host/east", Addresses: want}, now)
	if err != nil {
		t.Fatal(err)
	}
	if got := AddressesIn(dir, "host/east"); got != nil {
		t.Errorf("where there is none: %v", got)
	}
	if _, err := a.WriteTo(dir, c); err != nil {
		t.Fatal(err)
	}
	if got := AddressesIn(dir, "host/east"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := AddressesIn(dir, "host/west"); got != nil {
		t.Errorf("of another party: %v", got)
	}
}

func TestIssue_SignsNothingButOurNames(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	for _, n := range [][2]string{{"service", "root"}, {"service", ""}, {"host", ""}, {"host", "a/b"}, {"host", ".."}, {"operator", "a b"}, {"tmuxd", "east"},
		{"host", strings.Repeat("x", 64)}, {"", ""}} {
		if id, err := Name(n[0], n[1]); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %q, %v", n, id, err)
		}
	}
	for _, term := range []time.Duration{-1, time.Second, MaxTerm + 1} {
		if _, err := a.Issue(Order{Name: "host/a", Term: term}, now); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", term, err)
		}
	}
	// Its own certificate says so too, for the case that its key is used by something else.
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c, err := a.Issue(Order{Name: "host/a", Addresses: []string{"10.0.0.5", "east.example.com"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.pem")
	if err := os.WriteFile(path, c.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	cert, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.0.0.5", "east.example.com", ""} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	foreign := *cert
	uri := *cert.URIs[0]
	uri.Host = "elsewhere"
	foreign.URIs[0] = &uri
	der, err := x509.CreateCertificate(nil, &foreign, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	} else if _, err := parsed.Verify(x509.VerifyOptions{Roots: pool}); err == nil {
		t.Error("a name of another domain was taken")
	}
}

func TestIssue_NothingOutlivesTheAuthority(t *testing.T) {
	now := time.Now()
	a := made(t, now.Add(-Lifetime+time.Hour))
	c, err := a.Issue(Order{Name: "host/a"}, now)
	if err != nil || c.Ends.After(a.Ends()) {
		t.Errorf("%+v, %v", c.Issued, err)
	}
	if _, err := a.Issue(Order{Name: "host/a"}, now.Add(2*time.Hour)); !errors.Is(err, fault.Conflict) {
		t.Errorf("after its end: %v", err)
	}
}

func TestList_LeavesOutALineThatWasCutShort(t *testing.T) {
	a := made(t, time.Now())
	if list, err := a.List(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if got := parseList([]byte("{\"name\":\"host/a\",\"serial\":\"1\"}\n{\"name\":\"host/b")); len(got) != 1 || got[0].Name != "host/a" {
		t.Errorf("%v", got)
	}
}
