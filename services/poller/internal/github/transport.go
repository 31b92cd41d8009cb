package github

import (
	"bytes"
	"compress/flate"
	"container/list"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	gh "github.com/google/go-github/v90/github"

	"muxpost.dev/muxpost/services/poller/internal/poll"
)

const (
	// maxBody bounds an answer. A hundred comments of the greatest length fit.
	maxBody = 64 << 20
	// What the cache keeps: the newest answers up to either bound, compressed. Larger ones than a quarter of it are not kept.
	maxCachedAnswers = 50_000
	maxCachedBytes   = 64 << 20
	// maxKept bounds an answer that is kept, before it is compressed.
	maxKept = 16 << 20
)

// errNoBody means that a request's body was sent and cannot be had again.
var errNoBody = errors.New("the body cannot be sent again")

// transport adds the token, makes requests conditional, bounds bodies, and counts.
type transport struct {
	base       *url.URL
	credential credential
	next       http.RoundTripper
	cache      *cache
	clock      *clock
	meter      *meter
}

// RoundTrip sends a request. An answer of 304 comes out as the 200 that it repeats, with the new answer's head. One that is refused because
// of its token is sent once more where there is another token by now.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != t.base.Host || r.URL.Scheme != t.base.Scheme {
		return t.send(r, "", "")
	}
	if err := t.alone(r.Context()); err != nil {
		return nil, err
	}
	owner := ownerOf(repositoryOf(r.Context()))
	token, name, err := t.credential.token(r.Context(), owner)
	if err != nil {
		return nil, err
	}
	response, err := t.send(r, token, name)
	if err != nil || response.StatusCode != http.StatusUnauthorized || !t.credential.refused(owner, token) {
		return response, err
	}
	again, err := rewound(r)
	if err != nil {
		return response, nil //nolint:nilerr // The answer stands: the request cannot be sent again.
	}
	_ = response.Body.Close() // it is answered anew
	if token, name, err = t.credential.token(r.Context(), owner); err != nil {
		return nil, err
	}
	return t.send(again, token, name)
}

// alone is fault.Throttled while the server is not to be asked.
func (t *transport) alone(ctx context.Context) error {
	if left := poll.LeftAlone(ctx); left > 0 {
		return limitFault(t.base.Host, "it is left alone until that is over", left.Truncate(time.Second)+time.Second)
	}
	return nil
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

// once sends a request with a token, if there is one, and learns from the answer's head. name is whose limits it counts against.
func (t *transport) once(r *http.Request, token, name string) (*http.Response, error) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	began := t.clock.now()
	response, err := t.next.RoundTrip(r)
	if err != nil {
		t.meter.silent(r.Context())
		return nil, err
	}
	if r.URL.Host == t.base.Host {
		t.clock.learn(response.Header, began, t.clock.now())
		t.meter.answered(r.Context(), name, response)
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxBody}
	return response, nil
}

// send is once, with what the cache knows.
func (t *transport) send(r *http.Request, token, name string) (*http.Response, error) {
	r = r.Clone(r.Context())
	key := r.URL.String()
	kept, ok := t.cache.get(key)
	if ok = ok && r.Method == http.MethodGet && !poll.WantsFull(r.Context()); ok {
		r.Header.Set("If-None-Match", kept.etag)
	}
	response, err := t.once(r, token, name)
	if err != nil {
		return nil, err
	}
	if ok && response.StatusCode == http.StatusNotModified {
		body, err := kept.open()
		_ = response.Body.Close() // a 304 has no body
		if err != nil {
			return nil, err
		}
		response.StatusCode, response.Status = http.StatusOK, "200 OK"
		response.Body, response.ContentLength = repeated{body}, -1
		if response.Header.Get("Link") == "" && kept.link != "" {
			response.Header.Set("Link", kept.link)
		}
		return response, nil
	}
	if etag := response.Header.Get("ETag"); etag != "" && response.StatusCode == http.StatusOK && r.Method == http.MethodGet {
		link, body := response.Header.Get("Link"), response.Body.(*boundedBody)
		body.keep = &bytes.Buffer{}
		body.done = func(data []byte) { t.cache.put(newAnswer(key, etag, link, data)) }
	}
	return response, nil
}

// repeated is the body of an answer that was kept, and that did not change since.
type repeated struct{ io.ReadCloser }

// isRepeated reports whether an answer is one that was kept.
func isRepeated(response *gh.Response) bool {
	_, ok := response.Body.(repeated)
	return ok
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
	if b.keep.Len()+n > maxKept {
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

// answer is one that may be repeated. Its body is compressed: a page of pull requests has two megabytes, nearly all of them addresses.
type answer struct {
	key, etag, link string
	body            []byte
}

func newAnswer(key, etag, link string, data []byte) *answer {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed) // the level is one that there is
	_, _ = w.Write(data)                              // memory takes it
	_ = w.Close()
	return &answer{key: key, etag: etag, link: link, body: bytes.Clone(packed.Bytes())}
}

// open returns the body as it was.
func (a *answer) open() (io.ReadCloser, error) {
	data, err := io.ReadAll(flate.NewReader(bytes.NewReader(a.body)))
	return io.NopCloser(bytes.NewReader(data)), err
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
	if len(a.body) > maxCachedBytes/4 {
		return
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
