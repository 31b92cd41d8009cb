package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

// act does what a form orders, and leads back to the page that it stood on, with a word on what came of it. Whoever orders it may be gone meanwhile:
// it is done all the same.
func (c *Console) act(w http.ResponseWriter, r *http.Request, do func(context.Context) (string, error)) {
	said, err := do(context.WithoutCancel(r.Context()))
	n := notice{Text: said}
	if err != nil {
		n = noticeOf(err)
	}
	c.status.forget()
	c.matters.forget()
	c.back(w, r, r.PostFormValue("back"), n)
}

// back leads to a page of ours with a notice. What is no such page is the overview.
func (c *Console) back(w http.ResponseWriter, r *http.Request, to string, n notice) {
	target := url.URL{Path: "/"}
	if u, err := url.Parse(to); err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/") && !strings.HasPrefix(u.Path, "//") &&
		!strings.Contains(to, `\`) {
		target.Path, target.RawQuery = u.Path, u.RawQuery
	}
	query := target.Query()
	query.Set(saidKey, c.notices.keep(n))
	target.RawQuery = query.Encode()
	http.Redirect(w, r, target.String(), http.StatusSeeOther)
}

// reason is why, in the words of who orders it.
func reason(r *http.Request) string { return strings.TrimSpace(r.PostFormValue("reason")) }

// onDelivery does something with the delivery that the address names.
func (c *Console) onDelivery(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, p pollerv1.PollerServiceClient, id string) (string, error)) {
	id := r.PathValue("id")
	c.act(w, r, func(ctx context.Context) (said string, err error) {
		if deliveryURL(id) == "" {
			return "", fault.New(fault.Invalid, fault.ReasonBadDeliveryID, "that is no delivery id")
		}
		err = c.Services.Poller(ctx, func(ctx context.Context, p pollerv1.PollerServiceClient) (err error) {
			said, err = do(ctx, p, id)
			return err
		})
		return said, err
	})
}

func (c *Console) retry(w http.ResponseWriter, r *http.Request) {
	again := r.PostFormValue("again") != ""
	c.onDelivery(w, r, func(ctx context.Context, p pollerv1.PollerServiceClient, id string) (string, error) {
		answer, err := p.Retry(ctx, &pollerv1.RetryRequest{DeliveryId: id, Who: c.Who, Reason: reason(r), TypeAgain: again})
		if err != nil {
			return "", err
		}
		return view.Retried(id, answer, again), nil
	})
}

func (c *Console) done(w http.ResponseWriter, r *http.Request) {
	c.onDelivery(w, r, func(ctx context.Context, p pollerv1.PollerServiceClient, id string) (string, error) {
		answer, err := p.Settle(ctx, &pollerv1.SettleRequest{DeliveryId: id, Who: c.Who, Reason: reason(r)})
		if err != nil {
			return "", err
		}
		return view.Settled(id, answer), nil
	})
}

func (c *Console) cancel(w http.ResponseWriter, r *http.Request) {
	c.onDelivery(w, r, func(ctx context.Context, p pollerv1.PollerServiceClient, id string) (string, error) {
		answer, err := p.Cancel(ctx, &pollerv1.CancelRequest{DeliveryId: id, Who: c.Who, Reason: reason(r)})
		if err != nil {
			return "", err
		}
		return view.Cancelled(id, answer), nil
	})
}

// acknowledge leaves an entry out of the list until it is no longer as it was on the page: if it has changed since, it stays.
func (c *Console) acknowledge(w http.ResponseWriter, r *http.Request) {
	id := r.PostFormValue("id")
	c.act(w, r, func(ctx context.Context) (string, error) {
		state, err := url.QueryUnescape(r.PostFormValue("state"))
		if err != nil {
			return "", fault.New(fault.Invalid, fault.ReasonBadArgument, "the form has no state that can be read").WithRemedy("load its page again")
		}
		err = c.Services.Poller(ctx, func(ctx context.Context, p pollerv1.PollerServiceClient) error {
			_, err := p.Acknowledge(ctx, &pollerv1.AcknowledgeRequest{EntryId: id, State: state, DeliveryId: r.PostFormValue("delivery"), Who: c.Who, Reason: reason(r)})
			return err
		})
		return fmt.Sprintf("%s is left out of the list until it is no longer as it was: %s", view.Clip(id, 100), view.Clip(state, 200)), err
	})
}

func (c *Console) pause(w http.ResponseWriter, r *http.Request) {
	c.act(w, r, func(ctx context.Context) (said string, err error) {
		ref, err := scopeOf(r)
		if err != nil {
			return "", err
		}
		err = c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) error {
			answer, err := d.Pause(ctx, &dispatcherv1.PauseRequest{WorkItem: ref.String(), All: ref.IsZero(), Reason: reason(r), Who: c.Who})
			said = c.printer().PauseLine(answer.GetPause()) + "; what is under way is finished, and nothing else is begun"
			return err
		})
		return said, err
	})
}

func (c *Console) unpause(w http.ResponseWriter, r *http.Request) {
	c.act(w, r, func(ctx context.Context) (said string, err error) {
		ref, err := scopeOf(r)
		if err != nil {
			return "", err
		}
		err = c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) error {
			answer, err := d.Unpause(ctx, &dispatcherv1.UnpauseRequest{WorkItem: ref.String(), All: ref.IsZero(), Who: c.Who})
			ended := answer.GetPause()
			if said = "it was not paused"; ended != nil {
				said = "ended: the pause of " + cmp.Or(view.Clean(ended.GetWorkItem()), "all work items") + ", which stood" + c.printer().PauseStory(ended)
			}
			return err
		})
		return said, err
	})
}

func (c *Console) unpark(w http.ResponseWriter, r *http.Request) {
	c.act(w, r, func(ctx context.Context) (said string, err error) {
		ref, err := itemOf(r)
		if err != nil {
			return "", err
		}
		err = c.Services.Dispatcher(ctx, func(ctx context.Context, d dispatcherv1.DispatcherServiceClient) error {
			answer, err := d.Unpark(ctx, &dispatcherv1.UnparkRequest{WorkItem: ref.String(), Who: c.Who})
			if said = ref.String() + " was not parked"; answer.GetPark() != nil {
				said = ref.String() + " is not parked any more; what waits goes in within about a minute"
			}
			return err
		})
		return said, err
	})
}

// newKey is the idempotency key of a message that is still to be written.
func newKey() string { return "console-" + secret()[:22] }

// send sends a message. The key is the form's: sent twice, it is one message. What cannot be sent stays in the form, under the same key.
func (c *Console) send(w http.ResponseWriter, r *http.Request) {
	ref, err := itemOf(r)
	if err != nil {
		c.fail(w, r, "Message", err)
		return
	}
	text, key := r.PostFormValue("text"), r.PostFormValue("key")
	var answer *pollerv1.SubmitResponse
	switch _, _, err = prompt.Clean(text); {
	case err != nil:
	case key == "":
		err = fault.New(fault.Invalid, fault.ReasonBadArgument, "the form has no key").WithRemedy("load its page again")
	default:
		err = c.Services.Poller(context.WithoutCancel(r.Context()), func(ctx context.Context, p pollerv1.PollerServiceClient) (err error) {
			answer, err = p.Submit(ctx, &pollerv1.SubmitRequest{WorkItem: ref.String(), Text: text, IdempotencyKey: key})
			return err
		})
	}
	if err != nil {
		n := noticeOf(err)
		if fault.KindOf(err) == fault.Unavailable {
			n.Remedy = "whether it was taken is not known; sending it again from this page is safe. " + n.Remedy
		}
		if fault.KindOf(err) == fault.Conflict {
			key = newKey() // it was used for another message: the next one is a message of its own
		}
		c.showItem(w, r, ref, key, text, page{Notice: &n, code: codeOf(err)})
		return
	}
	id := answer.GetEntry().GetDeliveryId()
	said := notice{Text: "sent to " + ref.String() + " as delivery " + id, URL: deliveryURL(id)}
	if answer.GetExisted() {
		said.Text = "this was sent before: it is delivery " + id + ", " + view.LedgerState(answer.GetEntry().GetState())
	}
	c.status.forget()
	c.matters.forget()
	c.back(w, r, itemURL(ref.String()), said)
}
