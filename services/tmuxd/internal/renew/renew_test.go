package renew

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
)

// office is a dispatcher that renews certificates, but for hosts that it does not have.
type office struct {
	dispatcherv1connect.UnimplementedDispatcherServiceHandler
	authority *authority.Authority
	has       string
	asked     []string
}

func (o *office) Renew(ctx context.Context, r *dispatcherv1.RenewRequest) (*dispatcherv1.RenewResponse, error) {
	host, _ := access.HostOf(ctx)
	o.asked = append(o.asked, host)
	if host != o.has {
		return nil, fault.New(fault.Denied, "", "not among the hosts")
	}
	public, err := authority.Asked(r.GetRequest())
	if err != nil {
		return nil, err
	}
	c, err := o.authority.Sign(authority.Order{Name: identity.Host(host)}, public, time.Now())
	return &dispatcherv1.RenewResponse{Certificate: c.Cert, Authority: o.authority.PEM()}, err
}

type noTokens struct{}

func (noTokens) Token(context.Context, string) (access.Token, error) {
	return access.Token{}, fault.New(fault.NotFound, "", "no")
}

// open opens the office, and returns its address for other machines.
func (o *office) open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	api, err := access.Open(access.Config{Listen: "unix:" + dir + "/d", Remote: "127.0.0.1:0", Files: o.files(t, identity.Dispatcher, time.Hour), Tokens: noTokens{},
		Logger: slog.New(slog.DiscardHandler)}, func(s *rpc.ConnectServer) { dispatcherv1connect.RegisterDispatcherServiceHandler(s.RPC(), o) })
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

func (o *office) files(t *testing.T, id identity.ID, term time.Duration) identity.Files {
	t.Helper()
	c, err := o.authority.Issue(authority.Order{Name: id, Term: term}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f, err := o.authority.WriteTo(t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOnce_RenewsWhatIsDueAndNothingElse(t *testing.T) {
	ca, err := authority.Init(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := &office{authority: ca, has: "east"}
	at := o.open(t)
	once := func(f identity.Files, now time.Time) error {
		return Once(t.Context(), Config{Files: f, Dispatcher: at, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	}
	fresh, due, stranger := o.files(t, "host/east", time.Hour), o.files(t, "host/east", time.Minute), o.files(t, "host/west", time.Minute)
	if err := once(fresh, time.Now()); err != nil || len(o.asked) != 0 {
		t.Errorf("a fresh one: %v, asked by %v", err, o.asked)
	}
	before, _ := due.Look()
	key, _ := os.ReadFile(due.Key)
	if err := once(due, time.Now()); err != nil {
		t.Fatal(err)
	}
	after, err := due.Look()
	if err != nil || after.Name != "host/east" || !after.Ends.After(before.Ends.Add(time.Hour)) {
		t.Errorf("%+v and then %+v, %v", before, after, err)
	}
	if next, _ := os.ReadFile(due.Key); string(next) == string(key) {
		t.Error("the key stayed the same")
	}
	for _, path := range []string{due.Cert, due.Key, due.CA} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	// The next one is asked for with the new one.
	if err := once(due, after.Ends.Add(-time.Hour)); err != nil || len(o.asked) != 2 {
		t.Errorf("%v, asked by %v", err, o.asked)
	}
	old, _ := os.ReadFile(stranger.Cert)
	if err := once(stranger, time.Now()); !errors.Is(err, fault.Denied) {
		t.Errorf("a host that is not among the hosts: %v", err)
	}
	if now, _ := os.ReadFile(stranger.Cert); string(now) != string(old) {
		t.Error("its certificate was replaced")
	}
	if err := once(o.files(t, "host/east", time.Minute), time.Now().Add(time.Hour)); !errors.Is(err, fault.Conflict) {
		t.Errorf("one that ended: %v", err)
	}
	// Nobody but a host may ask: not the dispatcher's certificate, nor none.
	if err := once(o.files(t, "operator/ann", time.Minute), time.Now()); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("a person: %v", err)
	}
}
