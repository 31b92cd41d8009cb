package github

import (
	"bytes"
	"container/list"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
)

const (
	// maxBody bounds an answer. A hundred comments of the greatest length fit.
	maxBody = 64 << 20
	// What the cache keeps: the newest answers up to either bound. Larger ones than a quarter of it are not kept.
	maxCachedAnswers = 2000
	maxCachedBytes   = 32 << 20
)

// errNoBody means that a request's body was sent and cannot be had again.
var errNoBody = errors.New("the body cannot be sent again")

// transport adds the token, makes requests conditional, and bounds bodies.
type transport struct {
	base  *url.URL
	token *Token
	next  http.RoundTripper
	cache *cache
}

// RoundTrip sends a request. An answer of 304 comes out as the 200 that it repeats, with the new answer's head. One that is refused because
// of its token is sent once more where there is another token by now.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != t.base.Host || r.URL.Scheme != t.base.Scheme {
		return t.send(r, "")
	}
	token := t.token.Get()
	response, err := t.send(r, token)
	if err != nil || response.StatusCode != http.StatusUnauthorized || token == "" || !t.token.Refused(token) {
		return response, err
	}
	again, err := rewound(r)
	if err != nil {
		return response, nil //nolint:nilerr // The answer stands: the request cannot be sent again.
	}
	_ = response.Body.Close() // it is answered anew
	return t.send(again, t.token.Get())
}

// rewound returns a request with its body from the beginning.
func rewound(r *http.Request) (*http.Request, error) {
	again := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return again, nil
	}
	if r.GetBody == nil {
		return nil, errNoBody
	}
	var err error
	again.Body, err = r.GetBody()
	return again, err
}

// send sends a request with a token, if there is one.
func (t *transport) send(r *http.Request, token string) (*http.Response, error) {
	r = r.Clone(r.Context())
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	key := r.URL.String()
	kept, ok := t.cache.get(key)
	if ok = ok && r.Method == http.MethodGet; ok {
		r.Header.Set("If-None-Match", kept.etag)
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if ok && response.StatusCode == http.StatusNotModified {
		_ = response.Body.Close() // a 304 has no body
		response.StatusCode, response.Status = http.StatusOK, "200 OK"
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(kept.body)), int64(len(kept.body))
		if response.Header.Get("Link") == "" && kept.link != "" {
			response.Header.Set("Link", kept.link)
		}
		return response, nil
	}
	body := &boundedBody{ReadCloser: response.Body, left: maxBody}
	response.Body = body
	if etag := response.Header.Get("ETag"); etag != "" && response.StatusCode == http.StatusOK && r.Method == http.MethodGet {
		link := response.Header.Get("Link")
		body.keep = &bytes.Buffer{}
		body.done = func(data []byte) { t.cache.put(&answer{key: key, etag: etag, link: link, body: data}) }
	}
	return response, nil
}

// boundedBody ends with an error beyond its bound, and hands over what was read once the true end was seen: an answer that was
// cut short is never kept.
type boundedBody struct {
	io.ReadCloser
	left int64
	keep *bytes.Buffer
	done func([]byte)
}

// Read reads; errTooLarge is the bound's.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	if b.keep == nil {
		return n, err
	}
	if b.keep.Len()+n > maxCachedBytes/4 {
		b.keep = nil
		return n, err
	}
	b.keep.Write(p[:n])
	if err == io.EOF {
		b.done(b.keep.Bytes())
		b.keep = nil
	}
	return n, err
}

// Close reads what is left of a small answer, so that its end is seen also when the JSON ended before it.
func (b *boundedBody) Close() error {
	_, _ = io.CopyN(io.Discard, b, 4096) // what cannot be read here is not kept, and that is all
	return b.ReadCloser.Close()
}

// answer is one that may be repeated.
type answer struct {
	key, etag, link string
	body            []byte
}

// cache keeps the answers that were used last.
type cache struct {
	mu    sync.Mutex
	order *list.List // of *answer, the last used first
	byKey map[string]*list.Element
	bytes int
}

func newCache() *cache { return &cache{order: list.New(), byKey: map[string]*list.Element{}} }

func (c *cache) get(key string) (*answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	if e == nil {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*answer), true
}

func (c *cache) put(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[a.key]; e != nil {
		c.drop(e)
	}
	c.byKey[a.key] = c.order.PushFront(a)
	c.bytes += len(a.body)
	for c.order.Len() > maxCachedAnswers || c.bytes > maxCachedBytes {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	a := c.order.Remove(e).(*answer)
	delete(c.byKey, a.key)
	c.bytes -= len(a.body)
}
