package fakegithub

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"

	"muxpost.dev/muxpost/core/fault"
)

// send appends to the queue, and starts the one goroutine that empties it. After Close nothing is sent any more.
func (s *Server) send(d *delivery) {
	if s.hooks.ctx.Err() != nil {
		return
	}
	s.hooks.queue = append(s.hooks.queue, d)
	if s.hooks.busy == nil {
		s.hooks.busy = make(chan struct{})
		go s.sendQueue(s.hooks.busy)
	}
}

// sendQueue sends one delivery after the other until there is none, and never one twice: a delivery that failed is not tried again
// ("Handling failed webhook deliveries").
func (s *Server) sendQueue(done chan struct{}) {
	client := &http.Client{Timeout: s.hooks.timeLimit, Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	for {
		s.mu.Lock()
		if len(s.hooks.queue) == 0 || s.hooks.ctx.Err() != nil {
			s.hooks.queue, s.hooks.busy = nil, nil
			close(done)
			s.mu.Unlock()
			return
		}
		d := s.hooks.queue[0]
		s.hooks.queue = s.hooks.queue[1:]
		copied := d.Delivery
		s.mu.Unlock()
		status, err := post(s.hooks.ctx, client, d.hook, copied)
		s.mu.Lock()
		d.Sent, d.Status = true, status
		if err != nil {
			d.Error = err.Error()
		}
		s.mu.Unlock()
	}
}

// post sends one delivery with the headers of "Webhook events and payloads", delivery headers.
func post(ctx context.Context, client *http.Client, h *hook, d Delivery) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(d.Body))
	if err != nil {
		return 0, err
	}
	for name, value := range headersOf(h, d) {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxRequestBytes))
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

func headersOf(h *hook, d Delivery) map[string]string {
	out := map[string]string{
		"Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/fa4e000", "Accept": "*/*",
		"X-GitHub-Event": d.Event, "X-GitHub-Delivery": d.GUID, "X-GitHub-Hook-ID": strconv.FormatInt(h.ID, 10),
	}
	if h.Form {
		out["Content-Type"] = "application/x-www-form-urlencoded"
	}
	if h.repo != nil {
		out["X-GitHub-Hook-Installation-Target-Type"] = "repository"
		out["X-GitHub-Hook-Installation-Target-ID"] = strconv.FormatInt(h.repo.id, 10)
	}
	if h.app != nil {
		out["X-GitHub-Hook-Installation-Target-Type"] = "integration"
		out["X-GitHub-Hook-Installation-Target-ID"] = strconv.FormatInt(h.app.ID, 10)
	}
	if h.Secret != "" {
		out["X-Hub-Signature"] = "sha1=" + signature(sha1.New, h.Secret, d.Body)
		out["X-Hub-Signature-256"] = "sha256=" + signature(sha256.New, h.Secret, d.Body)
	}
	return out
}

// signature follows "Validating webhook deliveries": an HMAC of the body as it is sent.
func signature(kind func() hash.Hash, secret string, body []byte) string {
	mac := hmac.New(kind, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// WaitHooks waits until everything was sent that is not held. It fails with fault.Unavailable when the context ends before.
func (s *Server) WaitHooks(ctx context.Context) error {
	s.mu.Lock()
	busy := s.hooks.busy
	s.mu.Unlock()
	if busy == nil {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, "", "there are deliveries that were not sent", ctx.Err())
	}
}

// closeHooks cuts the delivery that is on its way, forgets those that wait, and returns when the goroutine is gone.
func (s *Server) closeHooks() {
	s.hooks.stop()
	s.mu.Lock()
	busy := s.hooks.busy
	s.mu.Unlock()
	if busy != nil {
		<-busy
	}
}
