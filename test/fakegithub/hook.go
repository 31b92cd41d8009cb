package fakegithub

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"muxpost.dev/muxpost/core/fault"
)

const defaultHookTimeout = 10 * time.Second

// Hook is a webhook: where deliveries go, and of which events.
type Hook struct {
	// ID is given by the server.
	ID  int64  `json:"-"`
	URL string `json:"url"`
	// Secret signs the deliveries; without one there is no signature.
	Secret string `json:"secret"`
	// Events are names such as issue_comment; none, or *, means all.
	Events []string `json:"events"`
	// Form sends the payload as a field of a form. GitHub calls that the content type form, and takes it unless it is told json.
	Form bool `json:"form"`
}

// Delivery is one attempt to deliver one event to one hook.
type Delivery struct {
	ID   int64  `json:"id"`
	GUID string `json:"guid"`
	Hook int64  `json:"hook"`
	// Event and Action are such as issue_comment and created; some events have no action.
	Event  string    `json:"event"`
	Action string    `json:"action"`
	MadeAt time.Time `json:"made_at"`
	// Sent is true when the attempt is over. Status is what the receiver answered: 0 when there was no answer, and Error says why.
	Sent       bool   `json:"sent"`
	Status     int    `json:"status"`
	Error      string `json:"error"`
	Redelivery bool   `json:"redelivery"`
	// Body is the payload, as it was signed.
	Body []byte `json:"-"`
}

type hook struct {
	Hook
	repo *repo // either the repository that it belongs to, or the app
	app  *app
}

type delivery struct {
	Delivery
	hook *hook
}

// hooks is what a server knows of webhooks. It is guarded by the server's mutex.
type hooks struct {
	all       []*hook
	made      []*delivery // every one, by id
	queue     []*delivery // that are still to be sent, in order
	held      []*delivery
	hold      bool
	busy      chan struct{} // is closed when the queue is empty; nil while nothing is sent
	ctx       context.Context
	stop      context.CancelFunc
	lastHook  int64
	lastMade  int64
	base      string
	timeLimit time.Duration
}

// AddHook makes a webhook of a repository, and returns its id; a ping goes out at once ("Webhook events and payloads", ping). It fails
// with fault.NotFound for an unknown repository, and with fault.Invalid for an address that is none.
func (s *Server) AddHook(owner, name string, h Hook) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.findRepo(owner, name)
	if err != nil {
		return 0, err
	}
	made, err := s.addHook(r, nil, r.owner, h)
	if err != nil {
		return 0, err
	}
	return made.ID, nil
}

func (s *Server) addHook(r *repo, a *app, by *user, h Hook) (*hook, error) {
	if to, err := url.Parse(h.URL); err != nil || to.Host == "" {
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "a hook needs an address such as http://127.0.0.1:1/, not %q", h.URL)
	}
	if len(h.Events) == 0 {
		h.Events = []string{"*"}
	}
	s.hooks.lastHook++
	made := &hook{Hook: h, repo: r, app: a}
	made.ID, made.Events = s.hooks.lastHook, slices.Clone(h.Events)
	s.hooks.all = append(s.hooks.all, made)
	s.ping(made, by)
	return made, nil
}

// RemoveHook ends a webhook; what it was sent stays in Deliveries. It fails with fault.NotFound.
func (s *Server) RemoveHook(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.hooks.all, func(h *hook) bool { return h.ID == id })
	if at < 0 {
		return fault.Newf(fault.NotFound, "", "there is no hook %d", id)
	}
	s.hooks.all = slices.Delete(s.hooks.all, at, at+1)
	return nil
}

// SetURL says where the server is reached. Payloads of webhooks hold addresses, and no request tells which are meant.
func (s *Server) SetURL(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks.base = base
}

func (h *hook) wants(event string) bool {
	return slices.Contains(h.Events, "*") || slices.Contains(h.Events, event)
}

// deliver puts an event into the queue of what is to be sent.
func (s *Server) deliver(h *hook, event, action string, payload object) {
	body, err := json.Marshal(payload)
	if err != nil {
		return // numbers, strings and times only: cannot fail
	}
	s.enqueue(&delivery{hook: h, Delivery: Delivery{GUID: uuid.NewString(), Hook: h.ID, Event: event, Action: action, Body: h.pack(body)}})
}

// pack makes the body of a delivery: the payload, or a form with it ("REST: Create a repository webhook": content_type).
func (h *hook) pack(payload []byte) []byte {
	if !h.Form {
		return payload
	}
	return []byte(url.Values{"payload": {string(payload)}}.Encode())
}

func (s *Server) enqueue(d *delivery) {
	s.hooks.lastMade++
	d.ID, d.MadeAt = s.hooks.lastMade, s.now()
	s.hooks.made = append(s.hooks.made, d)
	if s.hooks.hold {
		s.hooks.held = append(s.hooks.held, d)
		return
	}
	s.send(d)
}

// Deliveries lists every attempt, in the order in which they were made.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Delivery, 0, len(s.hooks.made))
	for _, d := range s.hooks.made {
		out = append(out, d.Delivery)
	}
	return out
}

// Redeliver sends the latest delivery of a GUID again: the same body under the same GUID ("Redelivering webhooks": the redelivery has the
// X-GitHub-Delivery of the original). It fails with fault.NotFound.
func (s *Server) Redeliver(guid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redeliver(guid, guid)
}

// RedeliverAs sends the same body under a GUID of its own, as two hooks with the same address do, and returns it. It fails with
// fault.NotFound.
func (s *Server) RedeliverAs(guid string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	other := uuid.NewString()
	return other, s.redeliver(guid, other)
}

func (s *Server) redeliver(guid, as string) error {
	for _, d := range slices.Backward(s.hooks.made) {
		if d.GUID == guid {
			again := Delivery{GUID: as, Hook: d.Hook, Event: d.Event, Action: d.Action, Body: d.Body, Redelivery: guid == as}
			s.enqueue(&delivery{hook: d.hook, Delivery: again})
			return nil
		}
	}
	return fault.Newf(fault.NotFound, "", "there is no delivery %q", guid)
}

// HoldHooks collects deliveries instead of sending them; false sends what was collected, in the order in which it lies.
func (s *Server) HoldHooks(hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks.hold = hold
	if hold {
		return
	}
	held := s.hooks.held
	s.hooks.held = nil
	for _, d := range held {
		s.send(d)
	}
}

// ShuffleHeld puts what is held into another order, as GitHub promises none ("Best practices for using webhooks": deliveries may arrive
// out of order). The same seed gives the same order.
func (s *Server) ShuffleHeld(seed uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.hooks.held
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
}

// DropHeld loses what is held, and says how much that was. Redeliver can still send it.
func (s *Server) DropHeld() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.hooks.held)
	s.hooks.held = nil
	return n
}

// ping is the first delivery of every hook.
func (s *Server) ping(h *hook, by *user) {
	c := s.eventCall(h.repo)
	payload := object{"zen": "Keep it logically awesome.", "hook_id": h.ID, "hook": c.hook(h), "sender": c.account(by.Login)}
	if h.repo != nil {
		payload["repository"] = c.repository()
	}
	s.deliver(h, "ping", "", payload)
}

// emit makes a delivery for every hook that wants the event. The payload is what is true now, however long it waits to be sent.
func (s *Server) emit(r *repo, by *user, event, action string, fill func(*call) object) {
	var payload object
	for _, h := range s.hooks.all {
		// Only an app's hook tells of an installation ("Webhook payload object common properties": installation).
		var on *installation
		if h.app != nil {
			on = h.app.on(r.Owner)
		}
		if !h.wants(event) || h.repo != r && on == nil {
			continue
		}
		if payload == nil {
			c := s.eventCall(r)
			payload = fill(c)
			payload["repository"], payload["sender"] = c.repository(), c.account(by.Login)
			if r.owner.Type == "Organization" {
				payload["organization"] = c.account(r.Owner)
			}
			if action != "" {
				payload["action"] = action
			}
		}
		sent := maps.Clone(payload)
		if on != nil {
			sent["installation"] = object{"id": on.id, "node_id": nodeID("IN", on.id)}
		}
		s.deliver(h, event, action, sent)
	}
}

// eventCall renders as for an answer, but nobody asked.
func (s *Server) eventCall(r *repo) *call {
	return &call{s: s, repo: r, api: s.hooks.base, web: s.hooks.base}
}
