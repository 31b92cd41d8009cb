// Package fakemodel is a model of one's own for tests with real coding agents: it speaks the parts of OpenAI's Responses and Chat
// Completions APIs that agents use, on loopback, and keeps what reached it. A test judges a delivery by what the model received and not by
// the screen.
//
// It answers by the request alone, in plain words and at once. Words that begin with zz: in the newest text of the user direct the answer:
//
//	zz:dur=6       the answer takes so many seconds, spread over its words
//	zz:len=30      the answer has so many words
//	zz:tool=CMD    the answer is a call of the agent's shell with the rest of the line; who gets its result is answered in words
//	zz:http=401    the answer is an error with this status
//	zz:hang=3      nothing is answered for so many seconds
//
// Requests that an agent makes for itself, a title for a conversation for instance, offer no tools: they are answered at once whatever
// their text says, and recorded as such.
//
// The package knows nothing of muxpost's services, and of the agents only their configuration and the names of their shells. It holds
// nothing back from anybody who reaches it.
package fakemodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

const (
	modelName       = "fake-1"
	maxRequestBytes = 64 << 20
	headersWithin   = 10 * time.Second
	stopWithin      = 5 * time.Second
)

// Config is what a Server is made from. The zero value listens on a free port and writes no log.
type Config struct {
	// Listen is a loopback address; empty means 127.0.0.1:0, and port 0 a free one.
	Listen string
	// Log gets one line of JSON for every Message.
	Log io.Writer
}

// Server is the model. It is safe for use by many goroutines.
type Server struct {
	web    *http.Server
	url    string
	stop   context.CancelFunc
	served chan error

	mu       sync.Mutex
	log      io.Writer
	logErr   error
	requests int
	received []Message
	seen     map[string]bool
	changed  chan struct{} // closed, and replaced, when received grows
}

// Start listens and serves until Close.
func Start(cfg Config) (*Server, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	listener, err := listenOnLoopback(cfg.Listen)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		url: "http://" + listener.Addr().String(), stop: stop, served: make(chan error, 1), log: cfg.Log,
		seen: map[string]bool{}, changed: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", serveModels)
	mux.HandleFunc("POST /v1/responses", s.serve(readResponses, writeResponses))
	mux.HandleFunc("POST /v1/chat/completions", s.serve(readChat, writeChat))
	s.web = &http.Server{Handler: mux, ReadHeaderTimeout: headersWithin, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { s.served <- s.web.Serve(listener) }()
	return s, nil
}

// URL is where the server is, as http://address:port; the APIs are below /v1.
func (s *Server) URL() string { return s.url }

// Close cuts the answers that are under way and stops the server. Its error is also that of a log that could not be written.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := s.web.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.web.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(err, s.logErr)
}

// listenOnLoopback takes literal addresses and localhost only: a name could come to mean another interface.
func listenOnLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the address to listen on is host:port, such as 127.0.0.1:0", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fault.Newf(fault.Denied, fault.ReasonNotLoopback, "fakemodel has no protection and does not listen on %q", address).
			WithRemedy("use 127.0.0.1 or [::1]")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonAddressTaken, "fakemodel cannot listen on "+address, err)
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil, errors.Join(fault.Newf(fault.Denied, fault.ReasonNotLoopback, "%s is not a loopback address here", address), listener.Close())
	}
	return listener, nil
}

// Received returns what reached the model so far, in the order of arrival.
func (s *Server) Received() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// Wait returns nil as soon as enough is true of what was received; it is asked again whenever something arrives. When ctx ends before
// that, the error says what was there.
func (s *Server) Wait(ctx context.Context, enough func([]Message) bool) error {
	for {
		s.mu.Lock()
		received, changed := slices.Clone(s.received), s.changed
		s.mu.Unlock()
		if enough(received) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the model waited in vain, having received %d messages %s: %w", len(received), summary(received), ctx.Err())
		}
	}
}

// serve records a request and answers it. An answer that cannot be finished is cut off, so that no client takes it for a whole one.
func (s *Server) serve(read func(body) (request, error), write func(context.Context, http.ResponseWriter, request, answer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The whole body is read first: net/http notices a client that went away only after that, and a hang depends on it.
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, "the request is too large or was cut short")
			return
		}
		req, err := read(body(data))
		if err != nil {
			refuse(w, http.StatusBadRequest, "the request cannot be read: "+err.Error())
			return
		}
		req.conversation = conversation(r.Header)
		s.record(req)
		will := direct(req)
		if err := pause(r.Context(), will.hang); err != nil {
			panic(http.ErrAbortHandler)
		}
		if will.status != 0 {
			refuse(w, will.status, will.problem)
			return
		}
		if err := write(r.Context(), w, req, will); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func serveModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{"object": "list", "data": []object{
		{"id": modelName, "object": "model", "created": 0, "owned_by": "fake"},
	}})
}

// refuse answers with an error in the form that both APIs have.
func refuse(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, object{"error": object{"message": message, "type": "fake_error", "param": nil, "code": nil}})
}

func writeJSON(w http.ResponseWriter, status int, value object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // a client that went away is its own affair
}

// pause waits for d, in the time of a test that asked for it.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
