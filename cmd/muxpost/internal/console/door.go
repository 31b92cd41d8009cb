package console

import (
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// closedPage is what who is not let in sees. It is fixed, so that it can be answered whatever was asked.
//
//go:embed templates/closed.html
var closedPage []byte

// door lets in who has the cookie. Who comes with the token gets the cookie for it, and the token is worth nothing from then on: what is left of it in
// a browser's history or on a terminal lets nobody in.
type door struct {
	// cookie is the cookie's name. It has the port in it: a browser has one jar for all ports of a machine, and there may be several consoles.
	cookie, session, token string

	mu   sync.Mutex
	used bool
}

func newDoor(addr net.Addr) *door {
	port := ""
	if tcp, ok := addr.(*net.TCPAddr); ok {
		port = fmt.Sprintf("_%d", tcp.Port)
	}
	return &door{cookie: "muxpost_console" + port, session: secret(), token: secret()}
}

// secret returns 256 random bits as they can stand in an address.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // It never fails.
	return base64.RawURLEncoding.EncodeToString(b)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// knows reports whether a request has the cookie.
func (d *door) knows(r *http.Request) bool {
	for _, c := range r.CookiesNamed(d.cookie) {
		if same(c.Value, d.session) {
			return true
		}
	}
	return false
}

// take reports whether the token is given, for the first time.
func (d *door) take(given string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used || !same(given, d.token) {
		return false
	}
	d.used = true
	return true
}

// wrap lets through to next who has the cookie. Whoever comes with a token goes on to an address without it.
func (d *door) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch known := d.knows(r); {
		case known && !query.Has("token"):
			next.ServeHTTP(w, r)
		case known, r.Method == http.MethodGet && d.take(query.Get("token")):
			if !known {
				// The connection is one within this machine, in plain text: a cookie that is "secure" would not come back.
				http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // as above
			}
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusForbidden)
			w.Write(closedPage) //nolint:errcheck // Whoever asked is gone.
		}
	})
}
