package fakegithub

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"muxpost.dev/muxpost/core/fault"
)

const installationTokenLife = time.Hour

// App is a GitHub App with its installations.
type App struct {
	ID   int64  `json:"id"`
	Slug string `json:"slug"`
	// ClientID may name the app in a JWT in place of the ID; it has a default.
	ClientID string `json:"client_id"`
	// PublicKeyPEM is what the app's JWTs are checked with.
	PublicKeyPEM PEM `json:"public_key_pem"`
	// Owner is a login; empty means that the app owns itself, which is good enough for most tests.
	Owner string `json:"owner"`
	// Installations maps the id of an installation to the login of the account that it is on.
	Installations map[int64]string `json:"installations"`
	// Hook is the app's own webhook: it tells of all repositories that the app is installed on.
	Hook *Hook `json:"hook"`
}

// PEM is a key as text. In JSON it is a string.
type PEM []byte

// UnmarshalText takes the text as it is: encoding/json would want it in base64.
func (p *PEM) UnmarshalText(text []byte) error {
	*p = slices.Clone(text)
	return nil
}

type app struct {
	App
	key  *rsa.PublicKey
	bot  *user
	made time.Time
}

// grant is what a token stands for: a person, or an installation of an app for an hour.
type grant struct {
	user         *user
	installation *installation
	expires      time.Time // zero for a person's
}

type installation struct {
	id      int64
	account *user
	app     *app
	// only are the names of repositories that a token was narrowed to; nil for all.
	only []string
}

// AddApp registers an app. It fails with fault.Invalid for a key that is no RSA public key, and with fault.AlreadyExists for an id, a slug
// or an installation that there is.
func (s *Server) AddApp(a App) error {
	key, err := jwt.ParseRSAPublicKeyFromPEM(a.PublicKeyPEM)
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the app's key is no RSA public key in PEM", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.ID == 0 || a.Slug == "" {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "an app needs an id and a slug")
	}
	for _, other := range s.apps {
		taken := other.ID == a.ID || other.Slug == a.Slug
		for id := range a.Installations {
			taken = taken || other.Installations[id] != ""
		}
		if taken {
			return fault.Newf(fault.AlreadyExists, "", "there already is an app %d or %q, or an installation of its number", a.ID, a.Slug)
		}
	}
	if a.ClientID == "" {
		a.ClientID = fmt.Sprintf("Iv23fake%012d", a.ID)
	}
	made := &app{App: a, key: key, bot: s.userFor(a.Slug + loginBotSuffix), made: s.now()}
	made.Installations = maps.Clone(a.Installations)
	for _, login := range made.Installations {
		s.userFor(login)
	}
	s.apps = append(s.apps, made)
	if a.Hook == nil {
		return nil
	}
	_, err = s.addHook(nil, made, made.bot, *a.Hook)
	return err
}

// RevokeInstallationTokens has every token of every installation refused from now on.
func (s *Server) RevokeInstallationTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tokens, func(_ string, g *grant) bool { return g.installation != nil })
}

// on finds the app's installation on an account.
func (a *app) on(login string) *installation {
	for _, id := range slices.Sorted(maps.Keys(a.Installations)) {
		if strings.EqualFold(a.Installations[id], login) {
			return &installation{id: id, app: a}
		}
	}
	return nil
}

// covers reports whether a repository is among those that the installation, or a token narrowed further, is for.
func (i *installation) covers(r *repo) bool {
	return strings.EqualFold(i.account.Login, r.Owner) &&
		(i.only == nil || slices.ContainsFunc(i.only, func(name string) bool { return strings.EqualFold(name, r.Name) }))
}

var appRoutes = []route{
	{"GET", "app", func(c *call) (reply, error) { return c.ok(c.appObject(c.app)) }},
	{"GET", "app/installations", (*call).listInstallations},
	{"GET", "app/installations/{id}", withInstallation(func(c *call, i *installation) (reply, error) { return c.ok(c.installationObject(i)) })},
	{"POST", "app/installations/{id}/access_tokens", withInstallation((*call).createInstallationToken)},
	{"GET", "installation/repositories", (*call).listInstallationRepositories},
}

// repoInstallation is served before a repository is looked at: an app may ask where it is installed without seeing what is there.
func (c *call) repoInstallation(owner, name string) (reply, error) {
	r, i := c.s.repos[repoKey(owner, name)], c.app.on(owner)
	if r == nil || i == nil {
		return reply{}, notFound()
	}
	i.account = r.owner
	return c.ok(c.installationObject(i))
}

func withInstallation(handle func(*call, *installation) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		id, err := strconv.ParseInt(c.vars["id"], 10, 64)
		login := c.app.Installations[id]
		if err != nil || login == "" {
			return reply{}, notFound()
		}
		return handle(c, &installation{id: id, account: c.s.userFor(login), app: c.app})
	}
}

func (c *call) listInstallations() (reply, error) {
	var all []*installation
	for _, id := range slices.Sorted(maps.Keys(c.app.Installations)) {
		all = append(all, &installation{id: id, account: c.s.userFor(c.app.Installations[id]), app: c.app})
	}
	return paginate(c, all, c.installationObject)
}

// appObject follows "REST: Get the authenticated app".
func (c *call) appObject(a *app) object {
	owner := a.Owner
	if owner == "" {
		owner = a.Slug + loginBotSuffix
	}
	return object{
		"id": a.ID, "slug": a.Slug, "node_id": nodeID("A", a.ID), "client_id": a.ClientID, "name": a.Slug, "owner": c.account(owner), "description": "",
		"external_url": "", "html_url": c.web + "/apps/" + a.Slug, "created_at": a.made, "updated_at": a.made, "permissions": permissions(),
		"events": []string{}, "installations_count": len(a.Installations),
	}
}

func permissions() object {
	return object{"metadata": "read", "issues": "write", "pull_requests": "write", "checks": "read", "statuses": "read", "actions": "read", "contents": "read"}
}

func (c *call) installationObject(i *installation) object {
	return object{
		"id": i.id, "account": c.account(i.account.Login), "app_id": i.app.ID, "app_slug": i.app.Slug, "client_id": i.app.ClientID,
		"target_id": i.account.id, "target_type": i.account.Type, "repository_selection": "all", "permissions": permissions(), "events": []string{},
		"access_tokens_url": fmt.Sprintf("%s/app/installations/%d/access_tokens", c.api, i.id), "repositories_url": c.api + "/installation/repositories",
		"html_url": fmt.Sprintf("%s/settings/installations/%d", c.web, i.id), "created_at": i.app.made, "updated_at": i.app.made,
		"single_file_name": nil, "suspended_at": nil, "suspended_by": nil,
	}
}

// createInstallationToken follows "REST: Create an installation access token for an app": it lives for an hour, and can be narrowed to some
// repositories, which must be there.
func (c *call) createInstallationToken(i *installation) (reply, error) {
	var in struct {
		Repositories  []string
		RepositoryIDs []int64 `json:"repository_ids"`
	}
	if len(c.body) > 0 {
		if err := c.decode(&in); err != nil {
			return reply{}, err
		}
	}
	selection := "all"
	if len(in.Repositories)+len(in.RepositoryIDs) > 0 {
		selection, i.only = "selected", in.Repositories
		for _, id := range in.RepositoryIDs {
			if r := c.s.repoByID(strconv.FormatInt(id, 10)); r != nil {
				i.only = append(i.only, r.Name)
			} else {
				i.only = append(i.only, "")
			}
		}
		for _, name := range i.only {
			if c.s.repos[repoKey(i.account.Login, name)] == nil {
				return reply{}, &problem{status: http.StatusUnprocessableEntity,
					message: "There is at least one repository that does not exist or is not accessible to the parent installation."}
			}
		}
	}
	token, expires := "ghs_"+rand.Text()+rand.Text()[:10], c.s.now().Add(installationTokenLife)
	c.s.tokens[token] = &grant{user: i.app.bot, installation: i, expires: expires}
	return reply{status: http.StatusCreated, value: object{
		"token": token, "expires_at": expires, "permissions": permissions(), "repository_selection": selection}}, nil
}

// listInstallationRepositories follows "REST: List repositories accessible to the app installation".
func (c *call) listInstallationRepositories() (reply, error) {
	if c.installation == nil {
		return reply{}, &problem{status: http.StatusForbidden, message: "You must authenticate with an installation access token in order to list repositories for an installation."}
	}
	var all []*repo
	for _, key := range slices.Sorted(maps.Keys(c.s.repos)) {
		if r := c.s.repos[key]; c.installation.covers(r) {
			all = append(all, r)
		}
	}
	return paginateUnder(c, "repositories", all, func(r *repo) object {
		other := *c
		other.repo = r
		return other.repository()
	})
}
