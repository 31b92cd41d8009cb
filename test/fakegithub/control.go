package fakegithub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// serveControl answers /_fake/. It wants JSON by name, so that no web page can send a request here unasked.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		return
	}
	at := slices.IndexFunc(controls, func(c control) bool {
		return c.method == r.Method && c.path == strings.TrimPrefix(r.URL.Path, controlPrefix)
	})
	if at < 0 {
		var all []string
		for _, c := range controls {
			all = append(all, c.method+" "+c.path)
		}
		http.Error(w, "there are "+strings.Join(all, ", "), http.StatusNotFound)
		return
	}
	out, err := controls[at].act(s, body)
	if err != nil {
		http.Error(w, fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, err), http.StatusBadRequest)
		return
	}
	if out == nil {
		out = object{"ok": true}
	}
	w.Header().Set("Content-Type", contentTypeJSON)
	_ = json.NewEncoder(w).Encode(out) // a client that went away is not ours to report
}

// control is what people may ask for beside the API. Without an answer of its own it answers that it is done.
type control struct {
	method, path string
	act          func(*Server, []byte) (any, error)
}

var controls = []control{
	{"POST", "faults", with(func(s *Server, f Fault) (any, error) { return nil, s.Inject(f) })},
	{"DELETE", "faults", plain(func(s *Server) any { s.ClearFaults(); return nil })},
	{"GET", "counts", plain(func(s *Server) any { return s.Counts() })},
	{"DELETE", "counts", plain(func(s *Server) any { s.ResetCounts(); return nil })},
	{"POST", "seed", with(func(s *Server, seed Seed) (any, error) { return nil, s.Load(seed) })},
	{"POST", "push", with((*Server).controlPush)},
	{"GET", "deliveries", plain(func(s *Server) any { return s.Deliveries() })},
	{"POST", "deliveries", with((*Server).controlDeliveries)},
}

func with[T any](act func(*Server, T) (any, error)) func(*Server, []byte) (any, error) {
	return func(s *Server, body []byte) (any, error) {
		var in T
		if err := strictJSON(body, &in); err != nil {
			return nil, err
		}
		return act(s, in)
	}
}

func plain(act func(*Server) any) func(*Server, []byte) (any, error) {
	return func(s *Server, _ []byte) (any, error) { return act(s), nil }
}

// pushRequest moves the head of a pull request; there is no git to push to.
type pushRequest struct {
	// Repo is owner/name.
	Repo   string `json:"repo"`
	Number int    `json:"number"`
	SHA    string `json:"sha"`
}

func (s *Server) controlPush(in pushRequest) (any, error) {
	owner, name, _ := strings.Cut(in.Repo, "/")
	return nil, s.PushHead(owner, name, in.Number, in.SHA)
}

// deliveriesRequest is what may be done to deliveries, in this order; what is left out is not done.
type deliveriesRequest struct {
	// Redeliver and RedeliverAs are GUIDs: one is sent again under the same, the other under another.
	Redeliver   string `json:"redeliver"`
	RedeliverAs string `json:"redeliver_as"`
	// Shuffle is a seed for the new order of what is held.
	Shuffle *uint64 `json:"shuffle"`
	Drop    bool    `json:"drop"`
	Hold    *bool   `json:"hold"`
}

func (s *Server) controlDeliveries(in deliveriesRequest) (any, error) {
	out := object{"ok": true}
	if in.Redeliver != "" {
		if err := s.Redeliver(in.Redeliver); err != nil {
			return nil, err
		}
	}
	if in.RedeliverAs != "" {
		guid, err := s.RedeliverAs(in.RedeliverAs)
		if err != nil {
			return nil, err
		}
		out["guid"] = guid
	}
	if in.Shuffle != nil {
		s.ShuffleHeld(*in.Shuffle)
	}
	if in.Drop {
		out["dropped"] = s.DropHeld()
	}
	if in.Hold != nil {
		s.HoldHooks(*in.Hold)
	}
	return out, nil
}
