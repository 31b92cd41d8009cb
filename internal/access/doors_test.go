package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/db/tokens"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
	"muxpost.dev/muxpost/internal/run"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1/dispatcherv1connect"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// echo says in a pause who asked for it.
type echo struct {
	dispatcherv1connect.UnimplementedDispatcherServiceHandler
}

func (echo) Pause(_ context.Context, r *dispatcherv1.PauseRequest) (*dispatcherv1.PauseResponse, error) {
	return &dispatcherv1.PauseResponse{Pause: &dispatcherv1.Pause{Who: r.GetWho()}}, nil
}

func (echo) Deliver(context.Context, *dispatcherv1.DeliverRequest) (*dispatcherv1.DeliverResponse, error) {
	return &dispatcherv1.DeliverResponse{}, nil
}

func (echo) AddHost(context.Context, *dispatcherv1.AddHostRequest) (*dispatcherv1.AddHostResponse, error) {
	return &dispatcherv1.AddHostResponse{}, nil
}

func (echo) Enroll(context.Context, *dispatcherv1.EnrollRequest) (*dispatcherv1.EnrollResponse, error) {
	return &dispatcherv1.EnrollResponse{}, nil
}

func (echo) Renew(ctx context.Context, _ *dispatcherv1.RenewRequest) (*dispatcherv1.RenewResponse, error) {
	host, _ := access.HostOf(ctx)
	return &dispatcherv1.RenewResponse{Certificate: []byte(host)}, nil
}

// house is an API with both doors, and an authority that issues certificates.
type house struct {
	authority     *authority.Authority
	kept          *tokens.Store
	socket, other string
}

func (h house) files(t *testing.T, id identity.ID) identity.Files {
	t.Helper()
	c, err := h.authority.Issue(authority.Order{Name: id, Addresses: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.authority.WriteTo(t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newHouse(t *testing.T) house {
	t.Helper()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "the page") //nolint:errcheck // Whoever asked is gone.
	})
	ca, err := authority.Init(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := house{authority: ca, kept: tokens.New(dbtest.New(t)), socket: "unix:" + dir + "/d"}
	api, err := access.Open(access.Config{Listen: h.socket, Remote: "127.0.0.1:0", Files: h.files(t, identity.Dispatcher), Tokens: h.kept,
		Logger: slog.New(slog.DiscardHandler), Metrics: page}, func(s *rpc.ConnectServer) { dispatcherv1connect.RegisterDispatcherServiceHandler(s.RPC(), echo{}) })
	if err != nil {
		t.Fatal(err)
	}
	h.other = api.Addresses()[1]
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
	return h
}

// dial returns a client with the certificate of a party, or with none.
func (h house) dial(t *testing.T, id identity.ID, token string) *grpc.ClientConn {
	t.Helper()
	files := identity.Files{CA: h.files(t, identity.Dispatcher).CA}
	if id != "" {
		files = h.files(t, id)
	}
	config, err := files.Client(func(id identity.ID) bool { return id == identity.Dispatcher })
	if err != nil {
		t.Fatal(err)
	}
	options := rpc.DialOptions{TLS: config}
	if token != "" {
		options.Credentials = access.Bearer(token)
	}
	return rpctest.Dial(t, h.other, options)
}

func (h house) token(t *testing.T, name string, role access.Role) (text, id string) {
	t.Helper()
	text, id, hash := access.New()
	if _, err := h.kept.Create(t.Context(), access.Token{ID: id, Name: name, Role: role, Hash: hash, Who: "root"}); err != nil {
		t.Fatal(err)
	}
	return text, id
}

func pause(t *testing.T, conn *grpc.ClientConn) (who string, err error) {
	t.Helper()
	answer, err := dispatcherv1.NewDispatcherServiceClient(conn).Pause(t.Context(), &dispatcherv1.PauseRequest{All: true, Who: "the boss"})
	return answer.GetPause().GetWho(), err
}

func TestDoors_OtherMachinesNeedAServicesCertificateOrAToken(t *testing.T) {
	h := newHouse(t)
	reader, _ := h.token(t, "eve", access.Read)
	operator, id := h.token(t, "ann", access.Operate)
	for name, tt := range map[string]struct {
		party identity.ID
		token string
		want  error
		who   string
	}{
		"nobody":                           {"", "", fault.Unauthenticated, ""},
		"a host":                           {identity.Host("east"), "", fault.Unauthenticated, ""},
		"a person's certificate alone":     {"operator/ann", "", fault.Unauthenticated, ""},
		"the poller":                       {identity.Poller, "", nil, "the boss"}, // who wrote the order on a ticket
		"a token":                          {"", operator, nil, "ann"},
		"a token and a certificate":        {"operator/bob", operator, nil, "ann"},
		"a token that may only look":       {"", reader, fault.Denied, ""},
		"nonsense in the place of a token": {"", "x", fault.Unauthenticated, ""},
	} {
		if who, err := pause(t, h.dial(t, tt.party, tt.token)); !errors.Is(err, tt.want) || who != tt.who {
			t.Errorf("%s: %q, %v", name, who, err)
		}
	}
	for name, tt := range map[string]struct {
		party         identity.ID
		token         string
		deliver, host error
	}{
		"the poller delivers and adds no hosts": {identity.Poller, "", nil, fault.Denied},
		"an operator does neither":              {"", operator, fault.Denied, fault.Denied},
	} {
		c := dispatcherv1.NewDispatcherServiceClient(h.dial(t, tt.party, tt.token))
		_, deliver := c.Deliver(t.Context(), &dispatcherv1.DeliverRequest{})
		_, host := c.AddHost(t.Context(), &dispatcherv1.AddHostRequest{})
		if !errors.Is(deliver, tt.deliver) || !errors.Is(host, tt.host) {
			t.Errorf("%s: %v, %v", name, deliver, host)
		}
	}
	// A certificate is renewed for the host that shows the one before, and for nobody else, whatever his role.
	admin, _ := h.token(t, "root", access.Admin)
	for name, tt := range map[string]struct {
		party identity.ID
		token string
		host  string
	}{"a host": {"host/east", "", "east"}, "the poller": {identity.Poller, "", ""}, "an admin": {"", admin, ""}, "a person": {"operator/ann", "", ""}} {
		answer, err := dispatcherv1.NewDispatcherServiceClient(h.dial(t, tt.party, tt.token)).Renew(t.Context(), &dispatcherv1.RenewRequest{})
		if string(answer.GetCertificate()) != tt.host || (tt.host == "") != errors.Is(err, fault.Unauthenticated) {
			t.Errorf("renewed for %s: %q, %v", name, answer.GetCertificate(), err)
		}
	}
	// Whoever has an invitation has no certificate yet; the call checks it itself.
	if _, err := dispatcherv1.NewDispatcherServiceClient(h.dial(t, "", "")).Enroll(t.Context(), &dispatcherv1.EnrollRequest{}); err != nil {
		t.Errorf("enroll: %v", err)
	}
	if _, err := healthpb.NewHealthClient(h.dial(t, "", "")).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	// On this machine nobody needs anything; with a token it is who has it.
	if who, err := pause(t, rpctest.Dial(t, h.socket, rpc.DialOptions{})); err != nil || who != "the boss" {
		t.Errorf("on this machine: %q, %v", who, err)
	}
	if who, err := pause(t, rpctest.Dial(t, h.socket, rpc.DialOptions{Credentials: access.Bearer(operator)})); err != nil || who != "ann" {
		t.Errorf("on this machine with a token: %q, %v", who, err)
	}
	// A revoked token ends at once, on a connection that is open too.
	conn := h.dial(t, "", operator)
	if _, err := pause(t, conn); err != nil {
		t.Fatal(err)
	}
	if _, changed, err := h.kept.Revoke(t.Context(), id, "root"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if _, err := pause(t, conn); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("after it was revoked: %v", err)
	}
}

func TestDoors_OthersAnswerToScriptsAsWell(t *testing.T) {
	h := newHouse(t)
	operator, _ := h.token(t, "script", access.Operate)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(h.authority.PEM())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	ask := func(path, token, origin string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+h.other+path, strings.NewReader(`{"all":true}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close() //nolint:errcheck // It was read.
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	const path = "/muxpost.dispatcher.v1.DispatcherService/Pause"
	if code, text := ask(path, operator, ""); code != http.StatusOK || !strings.Contains(text, `"who":"script"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(path, "", ""); code != http.StatusUnauthorized || !strings.Contains(text, "muxpost tokens create") {
		t.Errorf("without a token: %d %s", code, text)
	}
	if code, _ := ask(path, operator, "https://evil.example"); code != http.StatusForbidden {
		t.Errorf("from a page: %d", code)
	}
	// Only TLS is spoken there.
	plain := rpctest.Dial(t, h.other, rpc.DialOptions{Credentials: access.Bearer(operator)})
	if _, err := pause(t, plain); !errors.Is(err, fault.Unavailable) {
		t.Errorf("in plain text: %v", err)
	}
}

func TestDoors_MetricsAreForWhoeverMayRead(t *testing.T) {
	h := newHouse(t)
	reader, _ := h.token(t, "prometheus", access.Read)
	_, revoked := h.token(t, "gone", access.Read)
	if _, _, err := h.kept.Revoke(t.Context(), revoked, "root"); err != nil {
		t.Fatal(err)
	}
	get := func(url string, transport *http.Transport, token string) (int, string) {
		t.Helper()
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close() //nolint:errcheck // It was read.
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	for name, tt := range map[string]struct {
		party identity.ID
		token string
		want  int
	}{
		"nobody": {"", "", http.StatusUnauthorized}, "nonsense": {"", "x", http.StatusUnauthorized}, "a host": {identity.Host("east"), "", http.StatusUnauthorized},
		"a token that may read": {"", reader, http.StatusOK}, "a service": {identity.Poller, "", http.StatusOK},
	} {
		files := identity.Files{CA: h.files(t, identity.Dispatcher).CA}
		if tt.party != "" {
			files = h.files(t, tt.party)
		}
		config, err := files.Client(func(id identity.ID) bool { return id == identity.Dispatcher })
		if err != nil {
			t.Fatal(err)
		}
		code, text := get("https://"+h.other+"/metrics", &http.Transport{TLSClientConfig: config}, tt.token)
		if code != tt.want || strings.Contains(text, "the page") != (tt.want == http.StatusOK) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	socket := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(h.socket, "unix:"))
	}}
	if code, text := get("http://localhost/metrics", socket, ""); code != http.StatusOK || text != "the page" {
		t.Errorf("on this machine: %d %s", code, text)
	}
}

func TestOpen_LeavesNothingOpenWhenOneDoorCannotBe(t *testing.T) {
	dir := t.TempDir()
	config := access.Config{Listen: "127.0.0.1:0", Remote: "127.0.0.1:0", Files: identity.Files{Cert: dir + "/no", Key: dir + "/no", CA: dir + "/no"},
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := access.Open(config, func(*rpc.ConnectServer) {}); !errors.Is(err, fault.Invalid) {
		t.Error(err)
	}
	// Beyond this machine there is no plain text, whatever the configuration says.
	config.Listen, config.Remote = "0.0.0.0:0", ""
	if _, err := access.Open(config, func(*rpc.ConnectServer) {}); fault.ReasonOf(err) != fault.ReasonNotLoopback {
		t.Error(err)
	}
}
