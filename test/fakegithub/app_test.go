package fakegithub_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/test/fakegithub"
)

const appID, installationID = 77, 4242

// appKey makes a key pair: the private one, and the public one as an app has it.
func appKey(t *testing.T) (*rsa.PrivateKey, []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	return key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (w *world) app(t *testing.T, hook *fakegithub.Hook) *rsa.PrivateKey {
	t.Helper()
	key, public := appKey(t)
	must(t, w.AddApp(fakegithub.App{ID: appID, Slug: "muxbot", PublicKeyPEM: public, Installations: map[int64]string{installationID: "acme", 9: "other"}, Hook: hook}))
	return key
}

func sign(t *testing.T, key *rsa.PrivateKey, issuer any, issued, expires time.Time) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"iss": issuer, "iat": issued.Unix(), "exp": expires.Unix()}).SignedString(key)
	must(t, err)
	return token
}

func (w *world) jwt(t *testing.T, key *rsa.PrivateKey) string {
	t.Helper()
	return sign(t, key, appID, w.clock.Now().Add(-time.Minute), w.clock.Now().Add(9*time.Minute))
}

func (w *world) installationToken(t *testing.T, key *rsa.PrivateKey) *github.InstallationToken {
	t.Helper()
	token, response, err := w.client(t, w.jwt(t, key)).Apps.CreateInstallationToken(t.Context(), installationID, nil)
	must(t, err)
	equal(t, "status", response.StatusCode, http.StatusCreated)
	return token
}

func TestApp_SpeaksAsItselfAndAsAnInstallation(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	must(t, w.AddRepo(fakegithub.Repo{Owner: "acme", Name: "secret", Private: true}))
	must(t, w.AddRepo(fakegithub.Repo{Owner: "elsewhere", Name: "public"}))
	key, ctx := w.app(t, nil), t.Context()
	n := w.issue(t, fakegithub.Issue{Title: "bug"})
	as := w.client(t, w.jwt(t, key))
	me, _, err := as.Apps.Get(ctx, "")
	must(t, err)
	equal(t, "the app", []any{me.GetID(), me.GetSlug()}, []any{int64(appID), "muxbot"})
	all, _, err := as.Apps.ListInstallations(ctx, nil)
	must(t, err)
	equal(t, "installations", []any{len(all), all[1].GetID(), all[1].GetAccount().GetLogin()}, []any{2, int64(installationID), "Acme"})
	found, _, err := as.Apps.GetRepositoryInstallation(ctx, "acme", "widgets")
	must(t, err)
	equal(t, "of a repository", []any{found.GetID(), found.GetAccount().GetLogin(), found.GetAppSlug()}, []any{int64(installationID), "Acme", "muxbot"})
	_, _, err = as.Apps.GetRepositoryInstallation(ctx, "elsewhere", "public")
	equal(t, "not installed", messageOf(t, err), "404 Not Found")
	_, _, err = as.Apps.CreateInstallationToken(ctx, 1, nil)
	equal(t, "no such installation", messageOf(t, err), "404 Not Found")

	token := w.installationToken(t, key)
	equal(t, "expires", token.GetExpiresAt().Time.Equal(w.clock.Now().UTC().Truncate(time.Second).Add(time.Hour)), true)
	equal(t, "prefix", strings.HasPrefix(token.GetToken(), "ghs_"), true)
	bot := w.client(t, token.GetToken())
	made, response, err := bot.Issues.CreateComment(ctx, "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("hello")})
	must(t, err)
	equal(t, "acts as", []string{made.GetUser().GetLogin(), made.GetUser().GetType()}, []string{"muxbot[bot]", "Bot"})
	equal(t, "its own limit", response.Rate.Remaining, 4999)
	_, _, err = bot.Repositories.Get(ctx, "acme", "secret")
	must(t, err)
	_, _, err = bot.Repositories.Get(ctx, "elsewhere", "public")
	equal(t, "another account", messageOf(t, err), "404 Not Found")
	repos, _, err := bot.Apps.ListRepos(ctx, nil)
	must(t, err)
	equal(t, "repositories", repos.GetTotalCount(), 2)
	_, _, err = bot.Users.Get(ctx, "")
	equal(t, "no person", messageOf(t, err), "403 Resource not accessible by integration")
	_, _, err = bot.Apps.Get(ctx, "")
	equal(t, "no JWT", messageOf(t, err), "401 A JSON web token could not be decoded")

	narrow, _, err := as.Apps.CreateInstallationToken(ctx, installationID, &github.InstallationTokenOptions{Repositories: []string{"widgets"}})
	must(t, err)
	_, _, err = w.client(t, narrow.GetToken()).Repositories.Get(ctx, "acme", "secret")
	equal(t, "a narrowed token", messageOf(t, err), "404 Not Found")
	_, response, err = as.Apps.CreateInstallationToken(ctx, installationID, &github.InstallationTokenOptions{Repositories: []string{"nothing"}})
	equal(t, "narrowed to nothing", []any{err != nil, response.StatusCode}, []any{true, 422})

	w.clock.Advance(time.Hour)
	_, _, err = bot.Repositories.Get(ctx, "acme", "widgets")
	equal(t, "expired", messageOf(t, err), "401 Bad credentials")
	fresh := w.client(t, w.installationToken(t, key).GetToken())
	_, _, err = fresh.Repositories.Get(ctx, "acme", "widgets")
	must(t, err)
	w.RevokeInstallationTokens()
	_, _, err = fresh.Repositories.Get(ctx, "acme", "widgets")
	equal(t, "revoked", messageOf(t, err), "401 Bad credentials")
	_, _, err = w.client(t, "tok-carol").Repositories.Get(ctx, "acme", "widgets")
	must(t, err)
}

func TestApp_RefusesJWTsInGitHubsWords(t *testing.T) {
	w := newWorld(t, fakegithub.Config{})
	key, now := w.app(t, nil), w.clock.Now()
	stranger, _ := appKey(t)
	early, late := now.Add(-time.Minute), now.Add(9*time.Minute)
	hmac, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": appID, "iat": early.Unix(), "exp": late.Unix()}).SignedString([]byte("x"))
	must(t, err)
	const (
		undecodable = "401 A JSON web token could not be decoded"
		badExpiry   = "401 'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"
		badIssued   = "401 'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	)
	for name, tc := range map[string]struct{ token, want string }{
		"number":         {sign(t, key, appID, early, late), ""},
		"text":           {sign(t, key, fmt.Sprint(appID), early, late), ""},
		"client id":      {sign(t, key, "Iv23fake000000000077", early, late), ""},
		"no token":       {"", undecodable},
		"a person's":     {"tok-carol", undecodable},
		"another key":    {sign(t, stranger, appID, early, late), undecodable},
		"another method": {hmac, undecodable},
		"unknown app":    {sign(t, key, 5, early, late), "404 Integration not found"},
		"no issuer":      {sign(t, key, nil, early, late), "401 Missing 'issuer' claim ('iss') in assertion"},
		"expired":        {sign(t, key, appID, early, now.Add(-time.Second)), badExpiry},
		"too long":       {sign(t, key, appID, early, now.Add(10*time.Minute+2*time.Second)), "401 'Expiration time' claim ('exp') is too far in the future"},
		"in the future":  {sign(t, key, appID, now.Add(2*time.Second), late), badIssued},
	} {
		_, _, err := w.client(t, tc.token).Apps.Get(t.Context(), "")
		got := ""
		if err != nil {
			got = messageOf(t, err)
		}
		equal(t, name, got, tc.want)
	}
}

func TestApp_HasItsHook(t *testing.T) {
	w, r := newWorld(t, fakegithub.Config{}), newReceiver(t, "s")
	w.SetURL(w.url)
	key := w.app(t, &fakegithub.Hook{URL: r.URL, Secret: "s"})
	w.hook(t, fakegithub.Hook{URL: r.URL, Secret: "s", Events: []string{"issues"}})
	r.take(w)
	n := w.issue(t, fakegithub.Issue{Title: "bug"})
	equal(t, "the app's and the repository's", r.take(w), []string{"issues.opened", "issues.opened"})
	equal(t, "the repository's has no installation", last[*github.IssuesEvent](t, r).Installation == nil, true)
	equal(t, "targets", []string{r.headers[2].Get("X-GitHub-Hook-Installation-Target-Type"), r.headers[3].Get("X-GitHub-Hook-Installation-Target-Type")},
		[]string{"integration", "repository"})
	_, _, err := w.client(t, w.installationToken(t, key).GetToken()).Issues.CreateComment(t.Context(), "acme", "widgets", n, &github.IssueComment{Body: github.Ptr("hi")})
	must(t, err)
	equal(t, "a comment", r.take(w), []string{"issue_comment.created"})
	event := last[*github.IssueCommentEvent](t, r)
	equal(t, "who", []any{event.GetInstallation().GetID(), event.GetSender().GetLogin(), event.GetSender().GetType()}, []any{int64(installationID), "muxbot[bot]", "Bot"})

	_, public := appKey(t)
	equal(t, "taken", fault.KindOf(w.AddApp(fakegithub.App{ID: appID, Slug: "x", PublicKeyPEM: public})), fault.AlreadyExists)
	equal(t, "no key", fault.KindOf(w.AddApp(fakegithub.App{ID: 1, Slug: "x"})), fault.Invalid)
}
