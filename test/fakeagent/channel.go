package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxOffer bounds a delivery with its JSON, in bytes.
const maxOffer = 8 << 20

// standing is how things stand with a delivery, as the channel protocol says it.
type standing struct {
	State        string `json:"state"`
	Conversation string `json:"conversation"`
	Busy         bool   `json:"busy"`
	Dialog       bool   `json:"dialog"`
}

// asked is a request that came over the channel: a question, or an offer when it has a text.
type asked struct {
	delivery string
	text     string
	deliver  bool // also while a turn runs
	answer   chan<- standing
}

// standing says how things stand with a delivery.
func (m *model) standing(delivery string) standing {
	s := standing{State: "absent", Busy: m.busy(), Dialog: m.dialog != noDialog}
	if m.ready && m.doom == "" && !m.locked {
		s.Conversation = m.session
	}
	switch {
	case m.deliveries[delivery]:
		s.State = "taken"
	case slices.ContainsFunc(m.queue, func(q message) bool { return q.delivery == delivery }):
		s.State = "queued"
	}
	return s
}

// hand takes a delivery past the composer, unless it is here already or cannot be taken now. A text is never a command here.
func (m *model) hand(delivery, text string, deliver bool) []effect {
	s := m.standing(delivery)
	if s.State != "absent" || s.Conversation == "" || s.Dialog || s.Busy && !deliver {
		return nil
	}
	if s.Busy {
		m.queue = append(m.queue, message{text, delivery})
		return []effect{record("queued", text)}
	}
	return m.startTurn(message{text, delivery})
}

// knows makes a resumed conversation remember what was handed to it.
func (m *model) knows(deliveries []string) {
	for _, d := range deliveries {
		m.deliveries[d] = true
	}
}

// requested answers a request. What was taken is on the disk before anybody is told.
func (t *terminal) requested(a asked) (*effect, error) {
	var exit *effect
	var err error
	if a.text != "" {
		t.model.now = t.now()
		exit, err = t.transcript.perform(t.model.hand(a.delivery, a.text, a.deliver))
	}
	a.answer <- t.model.standing(a.delivery)
	return exit, err
}

var deliveryPath = regexp.MustCompile(`^/v1/deliveries/([a-z0-9_-]+)$`)

// listen serves the channel protocol on a socket, whose requests go to the returned channel. An empty path serves nothing.
func listen(path string) (requests <-chan asked, stop func(), err error) {
	if path == "" {
		return nil, func() {}, nil
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("the channel cannot be served: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, nil, fmt.Errorf("the channel cannot be made private: %w", err)
	}
	out := make(chan asked)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, out) })}
	go func() { _ = server.Serve(listener) }() // it ends with the program
	return out, func() { _ = server.Close() }, nil
}

// serve answers one request.
func serve(w http.ResponseWriter, r *http.Request, out chan<- asked) {
	path := deliveryPath.FindStringSubmatch(r.URL.Path)
	if path == nil {
		http.NotFound(w, r)
		return
	}
	var offer struct {
		Text     string `json:"text"`
		WhenBusy string `json:"when_busy"`
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOffer)).Decode(&offer)
		if err != nil || strings.TrimSpace(offer.Text) == "" || !utf8.ValidString(offer.Text) {
			http.Error(w, "a text is needed", http.StatusBadRequest)
			return
		}
	default:
		http.Error(w, "only GET and PUT", http.StatusMethodNotAllowed)
		return
	}
	answer := make(chan standing, 1)
	select {
	case out <- asked{path[1], offer.Text, offer.WhenBusy == "deliver", answer}:
	case <-r.Context().Done():
		return
	}
	s := <-answer
	if slices.Contains(strings.Fields(offer.Text), "zz:mute") {
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // who asked may be gone
}
