package fakegithub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

var hookRoutes = []route{
	{"GET", "repos/{owner}/{repo}/hooks", asAdmin((*call).listHooks)},
	{"POST", "repos/{owner}/{repo}/hooks", asAdmin((*call).createHook)},
	{"GET", "repos/{owner}/{repo}/hooks/{id}", withHook(func(c *call, h *hook) (reply, error) { return c.ok(c.hook(h)) })},
	{"DELETE", "repos/{owner}/{repo}/hooks/{id}", withHook((*call).deleteHook)},
	{"POST", "repos/{owner}/{repo}/hooks/{id}/pings", withHook((*call).pingHook)},
	{"GET", "repos/{owner}/{repo}/hooks/{id}/deliveries", withHook((*call).listDeliveries)},
	{"GET", "repos/{owner}/{repo}/hooks/{id}/deliveries/{delivery}", withHook((*call).getDelivery)},
	{"POST", "repos/{owner}/{repo}/hooks/{id}/deliveries/{delivery}/attempts", withHook((*call).attemptDelivery)},
}

// asAdmin lets nobody see the hooks but owners and collaborators; to others they are not there.
func asAdmin(handle func(*call) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		if !c.mayWrite() {
			return reply{}, notFound()
		}
		return handle(c)
	}
}

func withHook(handle func(*call, *hook) (reply, error)) func(*call) (reply, error) {
	return asAdmin(func(c *call) (reply, error) {
		for _, h := range c.s.hooks.all {
			if h.repo == c.repo && strconv.FormatInt(h.ID, 10) == c.vars["id"] {
				return handle(c, h)
			}
		}
		return reply{}, notFound()
	})
}

func (c *call) listHooks() (reply, error) {
	all := slices.DeleteFunc(slices.Clone(c.s.hooks.all), func(h *hook) bool { return h.repo != c.repo })
	return paginate(c, all, c.hook)
}

// hook renders a hook; its secret is never shown ("REST: Get a repository webhook").
func (c *call) hook(h *hook) object {
	config := object{"url": h.URL, "content_type": "json", "insecure_ssl": "0"}
	if h.Form {
		config["content_type"] = "form"
	}
	if h.Secret != "" {
		config["secret"] = "********"
	}
	out := object{"type": "App", "id": h.ID, "name": "web", "active": true, "events": h.Events, "config": config}
	if h.repo != nil {
		self := fmt.Sprintf("%s/hooks/%d", c.repoURL(), h.ID)
		out["type"], out["url"], out["ping_url"], out["deliveries_url"] = "Repository", self, self+"/pings", self+"/deliveries"
	}
	return out
}

// createHook follows "REST: Create a repository webhook": the content type is form unless json is asked for, and the only event push.
func (c *call) createHook() (reply, error) {
	var in struct {
		Events []string
		Config struct {
			URL, Secret string
			ContentType string `json:"content_type"`
		}
	}
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if len(in.Events) == 0 {
		in.Events = []string{"push"}
	}
	made, err := c.s.addHook(c.repo, nil, c.user, Hook{URL: in.Config.URL, Secret: in.Config.Secret, Events: in.Events, Form: in.Config.ContentType != "json"})
	if err != nil {
		return reply{}, invalid("Hook", "url", "invalid", "url must be an address")
	}
	return reply{status: http.StatusCreated, value: c.hook(made)}, nil
}

func (c *call) deleteHook(h *hook) (reply, error) {
	c.s.hooks.all = slices.DeleteFunc(c.s.hooks.all, func(other *hook) bool { return other == h })
	return reply{status: http.StatusNoContent}, nil
}

func (c *call) pingHook(h *hook) (reply, error) {
	c.s.ping(h, c.user)
	return reply{status: http.StatusNoContent}, nil
}

// listDeliveries follows "REST: List deliveries for a repository webhook": the newest first, in pages by a cursor, and nothing older than
// three days ("Viewing webhook deliveries"). What is still to be sent is no delivery yet.
func (c *call) listDeliveries(h *hook) (reply, error) {
	size := min(positive(c.query.Get("per_page"), 30), 100)
	before, _ := strconv.ParseInt(c.query.Get("cursor"), 10, 64)
	oldest := c.s.now().Add(-3 * 24 * time.Hour)
	page, link := []object{}, ""
	for _, d := range slices.Backward(c.s.hooks.made) {
		if d.hook != h || !d.Sent || d.MadeAt.Before(oldest) || before != 0 && d.ID >= before {
			continue
		}
		if len(page) == size {
			query := url.Values{"per_page": {strconv.Itoa(size)}, "cursor": {fmt.Sprint(page[size-1]["id"])}}
			link = fmt.Sprintf(`<%s?%s>; rel="next"`, c.self(), query.Encode())
			break
		}
		page = append(page, c.delivery(d))
	}
	return reply{status: http.StatusOK, value: page, link: link}, nil
}

func (c *call) delivery(d *delivery) object {
	status := http.StatusText(d.Status)
	if d.Status == 0 {
		status = "failed to connect to host"
	}
	out := object{"id": d.ID, "guid": d.GUID, "delivered_at": d.MadeAt, "redelivery": d.Redelivery, "duration": 0.1, "status": status,
		"status_code": d.Status, "event": d.Event, "action": orNull(d.Action), "installation_id": nil, "repository_id": nil}
	if d.hook.repo != nil {
		out["repository_id"] = d.hook.repo.id
	}
	return out
}

func (c *call) findDelivery(h *hook) (*delivery, error) {
	for _, d := range c.s.hooks.made {
		if d.hook == h && strconv.FormatInt(d.ID, 10) == c.vars["delivery"] {
			return d, nil
		}
	}
	return nil, notFound()
}

// getDelivery follows "REST: Get a delivery for a repository webhook": with what was sent.
func (c *call) getDelivery(h *hook) (reply, error) {
	d, err := c.findDelivery(h)
	if err != nil {
		return reply{}, err
	}
	payload := d.Body
	if form, err := url.ParseQuery(string(d.Body)); h.Form && err == nil {
		payload = []byte(form.Get("payload"))
	}
	out := c.delivery(d)
	out["url"] = h.URL
	out["request"] = object{"headers": headersOf(h, d.Delivery), "payload": json.RawMessage(payload)}
	out["response"] = object{"headers": object{}, "payload": nil}
	return c.ok(out)
}

// attemptDelivery follows "REST: Redeliver a delivery for a repository webhook": 202, and the same GUID again.
func (c *call) attemptDelivery(h *hook) (reply, error) {
	d, err := c.findDelivery(h)
	if err != nil {
		return reply{}, err
	}
	if err := c.s.redeliver(d.GUID, d.GUID); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusAccepted, value: object{}}, nil
}
