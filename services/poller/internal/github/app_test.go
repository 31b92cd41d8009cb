package github

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/poller/internal/poll"
	"muxpost.dev/muxpost/test/fakegithub"
)

// appWorld has an App with installations on acme and other, and two clocks: the server's, and this machine's, which is wrong by skew.
type appWorld struct {
	*world
	keyFile string
	mu      sync.Mutex
	now     time.Time
	skew    time.Duration
	seen    []string // Authorization of every request
}

func (w *appWorld) server() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }

func (w *appWorld) local() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now.Add(w.skew) }

func (w *appWorld) advance(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); w.now = w.now.Add(d) }

func keyPair(t *testing.T) (private, public []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func newAppWorld(t *testing.T) *appWorld {
	t.Helper()
	w := &appWorld{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), keyFile: filepath.Join(t.TempDir(), "key.pem")}
	fake := fakegithub.New(fakegithub.Config{RequireToken: true, Now: w.server})
	private, public := keyPair(t)
	must(t, os.WriteFile(w.keyFile, private, 0o600))
	must(t, fake.AddApp(fakegithub.App{ID: 77, Slug: "muxbot", PublicKeyPEM: public, Installations: map[int64]string{4242: "acme", 9: "other"}}))
	for _, owner := range []string{"acme", "other", "third"} {
		must(t, fake.AddRepo(fakegithub.Repo{Owner: owner, Name: "widgets", Private: true}))
		_, err := fake.AddIssue(owner, "widgets", labelled("of "+owner))
		must(t, err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Header.Get("Authorization"))
		w.mu.Unlock()
		fake.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { fake.Close(); server.Close() })
	w.world = &world{Server: fake, url: server.URL}
	return w
}

func (w *appWorld) app(t *testing.T, installation int64) *Client {
	t.Helper()
	source := settings.App{PrivateKeyFile: w.keyFile}
	key, err := NewToken(w.keyFile, source.PrivateKey)
	must(t, err)
	app, err := NewApp("77", key, installation)
	must(t, err)
	client, err := New(Config{BaseURL: w.url, App: app, Label: "agent", Pulls: true, Now: w.local})
	must(t, err)
	return client
}

func (w *appWorld) posts(path string) int { return w.Counts()["POST "+path].Requests }

const tokens = "/app/installations/4242/access_tokens"

func TestApp_EachOwnersInstallationHasATokenOfItsOwn(t *testing.T) {
	w := newAppWorld(t)
	client := w.app(t, 0)
	for range 3 {
		for _, owner := range []string{"acme", "other"} {
			l, err := client.Items(t.Context(), owner+"/widgets")
			must(t, err)
			equal(t, "items", titles(l), []string{"of " + owner})
			edits, err := client.Edits(t.Context(), []string{l.Items[0].NodeID})
			must(t, err)
			equal(t, "edits", len(edits), 0)
		}
	}
	equal(t, "tokens", []int{w.posts(tokens), w.posts("/app/installations/9/access_tokens")}, []int{1, 1})
	self, err := client.Self(t.Context())
	must(t, err)
	equal(t, "self", self, "muxbot[bot]")
	_, err = client.Items(t.Context(), "third/widgets")
	if !errors.Is(err, fault.Denied) || !strings.Contains(err.Error(), "not installed for third/widgets") {
		t.Errorf("where it is not installed: %v", err)
	}
	names := map[string]bool{}
	for _, rate := range client.Use().Rates {
		names[rate.Credential+" "+rate.Resource] = true
	}
	for _, want := range []string{"installation 4242 core", "installation 9 core", "installation 9 graphql", "app core"} {
		if !names[want] {
			t.Errorf("no limit of %s in %v", want, names)
		}
	}
	if rate, left, ok := client.Rate("Acme/Widgets"); !ok || rate.Credential != "installation 4242" || left <= 0 {
		t.Errorf("%+v, %v, %v", rate, left, ok)
	}
	// The one that the configuration names.
	fixed := w.app(t, 9)
	if _, err := fixed.Items(t.Context(), "other/widgets"); err != nil {
		t.Error(err)
	}
	if _, err := fixed.Items(t.Context(), "acme/widgets"); !errors.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestApp_TokensAreRefreshedWellBeforeTheyEndAndOnceForAll(t *testing.T) {
	w := newAppWorld(t)
	client := w.app(t, 0)
	read := func() {
		t.Helper()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := client.Items(t.Context(), "acme/widgets"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	for i, d := range []time.Duration{0, 54 * time.Minute, 2 * time.Minute, 56 * time.Minute} {
		w.advance(d)
		read()
		equal(t, fmt.Sprint("tokens after step ", i), w.posts(tokens), []int{1, 1, 2, 3}[i])
	}
	w.RevokeInstallationTokens()
	read()
	equal(t, "tokens once they were revoked", w.posts(tokens) >= 4 && w.posts(tokens) < 8, true)
	equal(t, "lookups of the installation", w.Counts()["GET /repos/acme/widgets/installation"].Requests < 24, true)
}

func TestApp_ATokenThatEndsInTheMiddleOfAListIsReplaced(t *testing.T) {
	w := newAppWorld(t)
	for i := range 120 {
		_, err := w.AddIssue("acme", "widgets", labelled(fmt.Sprint(i)))
		must(t, err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "2" && r.Header.Get("If-None-Match") == "" {
			w.mu.Lock()
			first := !strings.Contains(strings.Join(w.seen, " "), "revoked")
			w.seen = append(w.seen, "revoked")
			w.mu.Unlock()
			if first {
				w.RevokeInstallationTokens()
			}
		}
		w.ServeHTTP(rw, r)
	}))
	defer proxy.Close()
	w.url = proxy.URL
	l, err := w.app(t, 0).Items(t.Context(), "acme/widgets")
	must(t, err)
	equal(t, "items", len(l.Items), 121)
	equal(t, "tokens", w.posts(tokens), 2)
}

func TestApp_AWrongClockIsCorrectedByTheServers(t *testing.T) {
	for _, skew := range []time.Duration{0, 4 * time.Minute, -4 * time.Minute, 26 * time.Hour, -26 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			w := newAppWorld(t)
			w.skew = skew
			client := w.app(t, 0)
			for range 3 {
				l, err := client.Items(t.Context(), "acme/widgets")
				must(t, err)
				equal(t, "items", len(l.Items), 1)
				w.advance(56 * time.Minute)
			}
			equal(t, "tokens", w.posts(tokens), 3)
			if told := client.Use().Skew; (told + skew).Abs() > 2*time.Second {
				t.Errorf("the clock is off by %v, and %v is told", skew, told)
			}
			// A clock that is set while we run.
			w.mu.Lock()
			w.skew = 0
			w.mu.Unlock()
			w.advance(56 * time.Minute)
			_, err := client.Items(t.Context(), "acme/widgets")
			must(t, err)
		})
	}
}

func TestApp_WhatIsRefusedForGoodSaysWhy(t *testing.T) {
	w := newAppWorld(t)
	private, _ := keyPair(t)
	must(t, os.WriteFile(w.keyFile, private, 0o600)) // another App's key
	w.skew = -7 * time.Minute
	_, err := w.app(t, 0).Items(t.Context(), "acme/widgets")
	if !errors.Is(err, fault.Denied) || !strings.Contains(err.Error(), "clock is 7m") || !strings.Contains(err.Error(), "behind") || !strings.Contains(err.Error(), "app.private_key_file") {
		t.Errorf("a wrong key and a wrong clock: %v", err)
	}
	w.skew = 0
	_, err = w.app(t, 0).Items(t.Context(), "acme/widgets")
	if !errors.Is(err, fault.Denied) || strings.Contains(err.Error(), "clock") || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("a wrong key: %v", err)
	}
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindSecondaryLimit, RetryAfter: 7}))
	var f *fault.Error
	if _, err := w.app(t, 0).Items(t.Context(), "acme/widgets"); !errors.As(err, &f) || f.Kind != fault.Throttled || f.RetryAfter != 7*time.Second {
		t.Errorf("a limit: %v", err)
	}
	must(t, w.Inject(fakegithub.Fault{Kind: fakegithub.KindBadGateway}))
	if _, err := w.app(t, 0).Items(t.Context(), "acme/widgets"); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a bad gateway: %v", err)
	}
	key, err := NewToken(w.keyFile, func() (string, error) {
		return "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n", nil
	})
	must(t, err)
	if _, err := NewApp("77", key, 0); !errors.Is(err, fault.Invalid) || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestApp_AKeyThatChangesIsReadAgain(t *testing.T) {
	w := newAppWorld(t)
	good, err := os.ReadFile(w.keyFile)
	must(t, err)
	bad, _ := keyPair(t)
	must(t, os.WriteFile(w.keyFile, bad, 0o600))
	client := w.app(t, 0)
	if _, err := client.Items(t.Context(), "acme/widgets"); !errors.Is(err, fault.Denied) {
		t.Errorf("got %v", err)
	}
	must(t, os.WriteFile(w.keyFile+".new", append(good, '\n'), 0o600))
	must(t, os.Rename(w.keyFile+".new", w.keyFile))
	_, err = client.Items(t.Context(), "acme/widgets")
	must(t, err)
	// One that is damaged later leaves the good one.
	must(t, os.WriteFile(w.keyFile, []byte("-----BEGIN"), 0o600))
	w.advance(time.Hour)
	_, err = client.Items(t.Context(), "acme/widgets")
	must(t, err)
}

func TestApp_NoSecretIsInAnErrorOrInWhatIsTold(t *testing.T) {
	w := newAppWorld(t)
	client := w.app(t, 0)
	_, err := client.Items(t.Context(), "acme/widgets")
	must(t, err)
	var texts []string
	for _, f := range []fakegithub.Fault{{Kind: fakegithub.KindStatus, Status: 401, Times: 2}, {Kind: fakegithub.KindForbidden}, {Kind: fakegithub.KindTruncate},
		{Kind: fakegithub.KindRateLimit}, {Kind: fakegithub.KindStatus, Status: 500}, {Kind: fakegithub.KindStatus, Status: 302, Header: map[string]string{"Location": "http://elsewhere.invalid"}}} {
		must(t, w.Inject(f))
		_, err := client.Items(poll.Full(t.Context()), "acme/widgets")
		if err == nil {
			t.Errorf("%+v: no error", f)
			continue
		}
		texts = append(texts, err.Error())
		w.ClearFaults()
	}
	texts = append(texts, fmt.Sprintf("%+v %v", client.Use(), client.transport.credential))
	all := strings.Join(texts, "\n")
	for _, header := range w.seen {
		if _, secret, _ := strings.Cut(header, " "); secret != "" && strings.Contains(all, secret) {
			t.Errorf("a token is told:\n%s", all)
		}
	}
}

func TestApp_OnAServerOfOnesOwn(t *testing.T) {
	w := newAppWorld(t)
	for base, want := range map[string]string{"": "/graphql", "/api/v3/": "/api/graphql"} {
		before := w.url
		w.url += base
		client := w.app(t, 0)
		equal(t, "queries go to", graphOf(client.base).Path, want)
		l, err := client.Items(t.Context(), "acme/widgets")
		must(t, err)
		_, err = client.Edits(t.Context(), []string{l.Items[0].NodeID})
		must(t, err)
		w.url = before
	}
	client, err := New(Config{BaseURL: "https://github.example.com", Label: "agent"})
	must(t, err)
	equal(t, "queries", graphOf(client.base).String(), "https://github.example.com/api/graphql")
}

func TestAnswer_IsKeptCompressed(t *testing.T) {
	body := bytes.Repeat([]byte(`{"url":"https://api.github.com/repos/acme/widgets/pulls/1"},`), 30_000)
	a := newAnswer("k", "e", "", body)
	if len(a.body)*10 > len(body) {
		t.Errorf("%d bytes are kept in %d", len(body), len(a.body))
	}
	r, err := a.open()
	must(t, err)
	var again bytes.Buffer
	_, err = again.ReadFrom(r)
	must(t, err)
	equal(t, "the same", bytes.Equal(again.Bytes(), body), true)
}
