package console

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDoor_TheTokenIsTakenOnceAndGoesNowhere(t *testing.T) {
	d := newDoor(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711})
	served := 0
	handler := d.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	ask := func(method, target string, cookies ...*http.Cookie) *http.Response {
		t.Helper()
		r, w := httptest.NewRequest(method, target, nil), httptest.NewRecorder()
		for _, c := range cookies {
			r.AddCookie(c)
		}
		before := served
		handler.ServeHTTP(w, r)
		if let := served > before; let != (w.Code == http.StatusOK) {
			t.Errorf("%s %s: %d, and let through: %v", method, target, w.Code, let)
		}
		for name, values := range w.Header() {
			if strings.Contains(strings.Join(values, " "), d.token) {
				t.Errorf("%s %s: %s has the token", method, target, name)
			}
		}
		if strings.Contains(w.Body.String(), d.token) || strings.Contains(w.Body.String(), d.session) {
			t.Errorf("%s %s: the page has a secret", method, target)
		}
		return w.Result()
	}
	with := "/?token=" + d.token
	for _, refused := range []struct{ method, target string }{
		{"GET", "/"}, {"GET", "/?token="}, {"GET", "/?token=" + d.session}, {"POST", with}, {"HEAD", with}, {"GET", "/?token=" + d.token[1:]},
	} {
		if got := ask(refused.method, refused.target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s: %d", refused.method, refused.target, got.StatusCode)
		}
	}
	first := ask("GET", "//evil.example/x"+with[1:])
	if first.StatusCode != http.StatusSeeOther || first.Header.Get("Location") != "/" || len(first.Cookies()) != 1 {
		t.Fatalf("%d, %v", first.StatusCode, first.Header)
	}
	cookie := first.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" || !strings.HasSuffix(cookie.Name, "_4711") {
		t.Errorf("%+v", cookie)
	}
	if again := ask("GET", with); again.StatusCode != http.StatusForbidden || len(again.Cookies()) != 0 {
		t.Errorf("the token was taken twice: %d", again.StatusCode)
	}
	if got := ask("GET", with, cookie); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/" {
		t.Errorf("who is known and comes by the printed address: %d", got.StatusCode)
	}
	if got := ask("POST", "/pause", cookie); got.StatusCode != http.StatusOK {
		t.Errorf("who is known: %d", got.StatusCode)
	}
	cookie.Value = d.token
	if got := ask("GET", "/", cookie); got.StatusCode != http.StatusForbidden {
		t.Errorf("a cookie with another secret: %d", got.StatusCode)
	}
}

func TestBack_LeadsToPagesOfOursAlone(t *testing.T) {
	c := &Console{Config: Config{Now: time.Now}}
	for to, want := range map[string]string{
		"/attention": "/attention?", "/ledger?state=held&page=x": "/ledger?page=x&", "": "/?", "//evil.example/": "/?", "https://evil.example/": "/?",
		`/\evil.example`: "/?", "javascript:alert(1)": "/?", "attention": "/?", "/ok?said=forged": "/ok?said=", "http:/x": "/?",
	} {
		w := httptest.NewRecorder()
		c.back(w, httptest.NewRequest(http.MethodPost, "/pause", nil), to, notice{Text: "told"})
		got := w.Header().Get("Location")
		if !strings.HasPrefix(got, want) || strings.Contains(got, "forged") || strings.Contains(got, "told") || strings.HasPrefix(got, "//") {
			t.Errorf("back to %q leads to %q", to, got)
		}
	}
}

func TestNotices_AreBounded(t *testing.T) {
	var n notices
	first := n.keep(notice{Text: "first"})
	for range mostNotices {
		n.keep(notice{Text: "later"})
	}
	if n.find(first) != nil || len(n.all) != mostNotices || len(n.ids) != mostNotices {
		t.Errorf("%d are kept", len(n.all))
	}
}

func TestURLs_OfWhatIsNothingOfOursAreEmpty(t *testing.T) {
	for _, text := range []string{"", "-", "all", "<script>", "octo/widget#7", "../../x", "javascript:alert(1)"} {
		if got := itemURL(text) + deliveryURL(text) + upstreamURL(text) + webURL(text); got != "" {
			t.Errorf("%q leads to %s", text, got)
		}
	}
	for got, want := range map[string]string{
		itemURL("github:octo/widget#7"):         "/item?of=github%3Aocto%2Fwidget%237",
		upstreamURL("github:octo/widget#7"):     "https://github.com/octo/widget/issues/7",
		upstreamURL("github:ghe.example/o/r#1"): "https://ghe.example/o/r/issues/1",
		webURL("https://github.com/o/r/pull/8"): "https://github.com/o/r/pull/8",
		deliveryURL("daaaa1111"):                "/deliveries/daaaa1111",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
