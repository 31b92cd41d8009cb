package github

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"muxpost.dev/muxpost/core/fault"
)

const (
	// GitHub takes a proof that ends at most ten minutes from its now, and began before it. These leave room on both sides.
	proofBefore = time.Minute
	proofFor    = 8 * time.Minute
	// corrected is how much better the clock has to be known for a refused proof to be made once more.
	corrected = 5 * time.Second
	// refreshBefore is how long before its end an installation's token is replaced; it lives for an hour.
	refreshBefore = 5 * time.Minute
	// maxAppAnswer bounds what is read of an answer to the App itself.
	maxAppAnswer = 1 << 20
)

// App acts as a GitHub App, with a token for each of its installations. It is safe for use by many goroutines.
type App struct {
	id    string
	key   *Token
	fixed int64
	api   *appAPI

	flight singleflight.Group
	mu     sync.Mutex
	tokens map[int64]installToken
	owners map[string]int64
	pem    string
	parsed *rsa.PrivateKey
	slug   string
}

// appAPI is the server, as the App sees it.
type appAPI struct {
	*transport
	timeout time.Duration
}

type installToken struct {
	text string
	ends time.Time // on the server's clock
}

// NewApp returns an App by its id (or client id) and its private key, in PEM. An installation of 0 is found by the owner of what is asked
// for. A key that cannot be used is fault.Invalid.
func NewApp(id string, key *Token, installation int64) (*App, error) {
	a := &App{id: id, key: key, fixed: installation, tokens: map[int64]installToken{}, owners: map[string]int64{}}
	_, err := a.signer()
	return a, err
}

// String says what it is, for people.
func (a *App) String() string {
	if a.fixed != 0 {
		return "app " + a.id + ", installation " + strconv.FormatInt(a.fixed, 10)
	}
	return "app " + a.id
}

// signer returns the key as it is in its file now. The error never holds what stands there.
func (a *App) signer() (*rsa.PrivateKey, error) {
	text := a.key.Get()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parsed != nil && text == a.pem {
		return a.parsed, nil
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(text))
	if err == nil {
		a.pem, a.parsed = text, key
		return key, nil
	}
	if a.parsed != nil { // a file that is being written; the server says whether the old one is still good
		return a.parsed, nil
	}
	return nil, fault.New(fault.Invalid, fault.ReasonBadConfig, "the App's private key is not an RSA key in PEM").
		WithRemedy("take the .pem file that GitHub gave when the key was made, as it is")
}

// proof returns a JWT that says that we are the App, by the server's clock.
func (a *App) proof() (string, error) {
	key, err := a.signer()
	if err != nil {
		return "", err
	}
	now := a.api.clock.server()
	proof, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: a.id, IssuedAt: jwt.NewNumericDate(now.Add(-proofBefore)), ExpiresAt: jwt.NewNumericDate(now.Add(proofFor)),
	}).SignedString(key)
	if err != nil {
		return "", fault.Wrap(fault.Internal, fault.ReasonBadConfig, "the App's key does not sign", err)
	}
	return proof, nil
}

// ask sends a request as the App itself. A proof that is refused because of the time is made once more, by what the answer said of it.
func (a *App) ask(ctx context.Context, method, path, about string, v any) error {
	if err := a.api.alone(ctx); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, a.api.timeout)
	defer cancel()
	for try := 0; ; try++ {
		before := a.api.clock.ahead()
		proof, err := a.proof()
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(asking, method, a.api.base.JoinPath(path).String(), nil)
		if err != nil {
			return fault.Wrap(fault.Internal, "", "cannot ask for "+about, err)
		}
		request.Header.Set("Accept", "application/vnd.github+json")
		request.Header.Set("User-Agent", userAgent())
		response, err := a.api.once(request, proof, "app")
		if err != nil {
			return a.api.silent(ctx, about, a.api.timeout, err)
		}
		if response.StatusCode == http.StatusUnauthorized && try == 0 && (a.api.clock.ahead()-before).Abs() > corrected {
			_ = response.Body.Close()
			continue
		}
		return a.answered(ctx, response, about, v)
	}
}

func (a *App) answered(ctx context.Context, response *http.Response, about string, v any) error {
	defer func() { _ = response.Body.Close() }() // it was read, or is given up
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAppAnswer))
	if err == nil && response.StatusCode < 300 {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return a.api.unreadable(ctx, about, err)
	}
	if response.StatusCode < 300 {
		return nil
	}
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said) // what is no JSON says nothing
	if f := throttled(a.api.base.Host, response.StatusCode, response.Header, said.Message, nil); f != nil {
		return f
	}
	refused := func(kind fault.Kind, what, remedy string) error {
		return fault.Newf(kind, fault.ReasonSourceRefused, "%s refuses the App %s (status %d): %s", a.api.base.Host, a.id, response.StatusCode, what).
			WithRemedy(remedy)
	}
	switch {
	case response.StatusCode >= 500:
		return fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable, "%s answers the App with status %d", a.api.base.Host, response.StatusCode)
	case response.StatusCode == http.StatusUnauthorized && a.api.clock.blame() != "":
		return refused(fault.Denied, a.api.clock.blame(), "set the clock (an NTP service keeps it right); if that is done, check app.id and app.private_key_file")
	case response.StatusCode == http.StatusUnauthorized:
		return refused(fault.Denied, "the id and the private key do not belong together, or the key was deleted",
			"check app.id and app.private_key_file: the App's page lists the keys that it has")
	case response.StatusCode == http.StatusNotFound && strings.Contains(said.Message, "Integration"):
		return refused(fault.Denied, "there is no App of this id", "check app.id: it stands on the App's page, as does the client id")
	case response.StatusCode == http.StatusNotFound:
		return refused(fault.Denied, "it is not installed for "+about, "install the App there, with read access to issues, pull requests, checks and commit statuses")
	case response.StatusCode == http.StatusForbidden:
		return refused(fault.Denied, "its installation for "+about+" is suspended, or may not do this", "look at the App's installations")
	}
	return refused(fault.Invalid, "it does not take the request", "check base_url: is it a server that speaks GitHub's REST API?")
}

// aboutKey is the key of what a request is about.
type aboutKey struct{}

// about has requests of a context know which repository they are about.
func about(ctx context.Context, repository string) context.Context {
	return context.WithValue(ctx, aboutKey{}, repository)
}

// repositoryOf returns the repository that a context's requests are about; empty for none.
func repositoryOf(ctx context.Context) string {
	repository, _ := ctx.Value(aboutKey{}).(string)
	return repository
}

func ownerOf(repository string) string {
	owner, _, _ := strings.Cut(strings.ToLower(repository), "/")
	return owner
}

// token returns the token of an owner's installation, and refreshes it well before it ends, once for all who ask.
func (a *App) token(ctx context.Context, owner string) (token, name string, err error) {
	id, err := a.installation(ctx, owner)
	if err != nil {
		return "", "", err
	}
	name = installationName(id)
	a.mu.Lock()
	known := a.tokens[id]
	a.mu.Unlock()
	now := a.api.clock.server()
	if known.text != "" && now.Before(known.ends.Add(-refreshBefore)) {
		return known.text, name, nil
	}
	fresh, err := together(ctx, a, name, func(ctx context.Context) (any, error) { return a.renew(ctx, id, repositoryOf(ctx)) })
	if err != nil {
		if known.text != "" && now.Before(known.ends) && a.holds(id, known.text) {
			return known.text, name, nil // it is good for a while; the next request tries again
		}
		return "", "", err
	}
	return fresh.(installToken).text, name, nil
}

func (a *App) holds(id int64, token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens[id].text == token
}

// together does something once for all who ask for it at a time. It goes on when the one who asked first gives up.
func together(ctx context.Context, a *App, key string, do func(context.Context) (any, error)) (any, error) {
	result := a.flight.DoChan(key, func() (any, error) { return do(context.WithoutCancel(ctx)) })
	select {
	case r := <-result:
		return r.Val, r.Err
	case <-ctx.Done():
		// What ended is the time of the request that needs it: whether that of whoever asked did, too, is seen where the request was made.
		return nil, a.api.silent(context.WithoutCancel(ctx), "a token of the App", a.api.timeout, ctx.Err())
	}
}

// renew gets a token, unless another one did meanwhile.
func (a *App) renew(ctx context.Context, id int64, about string) (installToken, error) {
	a.mu.Lock()
	known := a.tokens[id]
	a.mu.Unlock()
	if known.text != "" && a.api.clock.server().Before(known.ends.Add(-refreshBefore)) {
		return known, nil
	}
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	path := fmt.Sprintf("app/installations/%d/access_tokens", id)
	if err := a.ask(ctx, http.MethodPost, path, cmp.Or(about, installationName(id)), &answer); err != nil {
		return installToken{}, err
	}
	fresh := installToken{answer.Token, answer.Expires}
	if fresh.text == "" || fresh.ends.IsZero() {
		return installToken{}, fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable, "%s gives the App no token", a.api.base.Host)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[id] = fresh
	return fresh, nil
}

// installation returns the App's installation for an owner. What belongs to nobody in particular goes to any that is known.
func (a *App) installation(ctx context.Context, owner string) (int64, error) {
	if id, ok := a.known(owner); ok {
		return id, nil
	}
	repository := repositoryOf(ctx)
	if repository == "" {
		return 0, fault.New(fault.Unavailable, fault.ReasonSourceUnreachable, "no installation of the App is known yet")
	}
	found, err := together(ctx, a, "owner "+owner, func(ctx context.Context) (any, error) {
		var answer struct {
			ID int64 `json:"id"`
		}
		err := a.ask(ctx, http.MethodGet, "repos/"+repository+"/installation", repository, &answer)
		return answer.ID, err
	})
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[owner] = found.(int64)
	return found.(int64), nil
}

func (a *App) known(owner string) (id int64, ok bool) {
	if a.fixed != 0 {
		return a.fixed, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, ok = a.owners[owner]; ok || owner != "" {
		return id, ok
	}
	for _, id := range a.owners {
		return id, true
	}
	return 0, false
}

// nameFor returns the name under which the limits of an owner's installation are kept; empty while it is not known.
func (a *App) nameFor(owner string) string {
	if id, ok := a.known(owner); ok {
		return installationName(id)
	}
	return ""
}

func installationName(id int64) string { return "installation " + strconv.FormatInt(id, 10) }

// refused forgets a token that the server does not take, and the installation that it is of: it may be another by now.
func (a *App) refused(owner, token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, known := range a.tokens {
		if known.text == token {
			delete(a.tokens, id)
		}
	}
	delete(a.owners, owner)
	return token != ""
}

// login returns the account in whose name the App writes.
func (a *App) login(ctx context.Context) (string, bool, error) {
	a.mu.Lock()
	slug := a.slug
	a.mu.Unlock()
	if slug == "" {
		var answer struct {
			Slug string `json:"slug"`
		}
		if err := a.ask(ctx, http.MethodGet, "app", "itself", &answer); err != nil {
			return "", true, err
		}
		slug = answer.Slug
		a.mu.Lock()
		a.slug = slug
		a.mu.Unlock()
	}
	if slug == "" {
		return "", true, nil
	}
	return slug + botSuffix, true, nil
}
