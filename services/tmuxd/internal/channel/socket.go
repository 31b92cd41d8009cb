package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// offer is the body of a request that hands over.
type offer struct {
	Text         string `json:"text"`
	Conversation string `json:"conversation"`
	WhenBusy     string `json:"when_busy"`
}

// standing is every answer.
type standing struct {
	// State is absent, queued or taken.
	State        string `json:"state"`
	Conversation string `json:"conversation"`
	Busy         bool   `json:"busy"`
	Dialog       bool   `json:"dialog"`
}

// errAnswered means that an agent answered, and not what it was asked.
var errAnswered = errors.New("it does not say how things stand")

// ask changes nothing: an agent that answers and cannot say is as good as none.
func (s *Sockets) ask(ctx context.Context, l host.Line, id string) (host.Standing, error) {
	is, err := s.call(ctx, l, http.MethodGet, id+"?conversation="+url.QueryEscape(l.Conversation), nil)
	if errors.Is(err, errAnswered) {
		err = fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	return is, err
}

func (s *Sockets) hand(ctx context.Context, l host.Line, o host.Offer) (host.Standing, error) {
	body := offer{Text: o.Text, Conversation: l.Conversation, WhenBusy: "hold"}
	if o.Busy {
		body.WhenBusy = "deliver"
	}
	data, err := json.Marshal(body)
	if err != nil {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	return s.call(ctx, l, http.MethodPut, o.ID, data)
}

// call makes one request on a connection of its own. A connection that is not made, and an answer that refuses the request as such, prove that
// nothing was handed over.
func (s *Sockets) call(ctx context.Context, l host.Line, method, path string, body []byte) (host.Standing, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.Socket(l.Stamp))
	if err != nil {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	defer conn.Close()
	// The one connection is used once: nothing is ever sent a second time behind our back.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/deliveries/"+path, bytes.NewReader(body))
	if err != nil {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return host.Standing{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return host.Standing{}, err
	}
	if res.StatusCode >= 400 && res.StatusCode < 500 {
		return host.Standing{}, fmt.Errorf("%w: it refuses the request: %s", host.ErrNobodyListens, res.Status)
	}
	if res.StatusCode != http.StatusOK {
		return host.Standing{}, fmt.Errorf("%w: %s", errAnswered, res.Status)
	}
	return read(data)
}

// read reads an answer. One that cannot be read proves nothing.
func read(data []byte) (host.Standing, error) {
	var in standing
	if err := json.Unmarshal(data, &in); err != nil {
		return host.Standing{}, fmt.Errorf("%w: its answer is malformed", errAnswered)
	}
	out := host.Standing{Conversation: in.Conversation, Busy: in.Busy, Dialog: in.Dialog}
	switch in.State {
	case "taken":
		out.Taken = true
	case "queued":
		out.Queued = true
	case "absent":
	default:
		return host.Standing{}, fmt.Errorf("%w: its answer has no state that is known", errAnswered)
	}
	return out, nil
}
