package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
)

// page is what the frame of every page is made of; Body is the page's own.
type page struct {
	Title string
	// At is the address of the page with what chooses its content: where a form leads back to.
	At string
	// Made is when what it shows was asked for.
	Made stamp
	// Live is true of a page that is fetched again every few seconds.
	Live     bool
	Notice   *notice
	Problems []notice
	Nav      []link
	Body     any

	name string
	code int
}

// link is an entry of the list of pages.
type link struct {
	Title, URL string
	Here       bool
}

// nav are the pages that can be gone to from everywhere.
var nav = []link{
	{Title: "Overview", URL: "/"}, {Title: "Attention", URL: "/attention"}, {Title: "Sessions", URL: "/sessions"}, {Title: "Ledger", URL: "/ledger"},
	{Title: "Events", URL: "/events"}, {Title: "Hosts", URL: "/hosts"}, {Title: "Sources", URL: "/sources"}, {Title: "Teams", URL: "/teams"},
}

// show writes a page. It is made as a whole first, so that one that cannot be made is not half there.
func (c *Console) show(w http.ResponseWriter, r *http.Request, p page) {
	query := r.URL.Query()
	if p.Notice == nil {
		p.Notice = c.notices.find(query.Get(saidKey))
	}
	if query.Del(saidKey); p.At == "" {
		p.At = address(r.URL.Path, query)
	}
	for _, l := range nav {
		l.Here = l.URL == under(r.URL.Path)
		p.Nav = append(p.Nav, l)
	}
	if p.Made == (stamp{}) {
		p.Made = stampOf(c.Now(), c.Now())
	}
	var out bytes.Buffer
	if err := c.pages[p.name].Execute(&out, p); err != nil {
		http.Error(w, "this page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(cmp.Or(p.code, http.StatusOK))
	w.Write(out.Bytes()) //nolint:errcheck // Whoever asked is gone.
}

// under is the entry of the list of pages that a path belongs to.
func under(path string) string {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first {
	case "item", "send":
		return "/sessions"
	case "deliveries":
		return "/ledger"
	default:
		return "/" + first
	}
}

// nothing is the page of what is not there.
func (c *Console) nothing(w http.ResponseWriter, r *http.Request) {
	c.fail(w, r, "Not found", fault.New(fault.NotFound, "", "there is no such page").WithRemedy("the list above has those that there are"))
}

// fail is a page that has nothing but what is wrong.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, title string, err error) {
	c.show(w, r, page{name: "problem", Title: title, code: codeOf(err), Problems: []notice{noticeOf(err)}})
}

// codeOf is the code of an answer that could not be what was asked for.
func codeOf(err error) int {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Invalid, fault.Conflict:
		return http.StatusBadRequest
	case fault.Denied, fault.Unauthenticated:
		return http.StatusForbidden
	default:
		return http.StatusServiceUnavailable
	}
}

// notice is something that a person is told: what came of an order, or what is not known and why.
type notice struct {
	// Word says what kind of thing is not known, where that is more than that it is not.
	Word         string
	Text, Remedy string
	// URL has more about it; empty for nothing.
	URL string
	Bad bool
}

// noticeOf takes an error apart: what is wrong, and what to do about it.
func noticeOf(err error) notice {
	var f *fault.Error
	if errors.As(err, &f) && f.Remedy != "" {
		return notice{Text: f.WithRemedy("").Error(), Remedy: f.Remedy, Bad: true}
	}
	return notice{Text: err.Error(), Bad: true}
}

// saidKey is the name in an address of what came of the order before it.
const saidKey = "said"

// mostNotices is how many notices are kept: each is read a moment after it was written.
const mostNotices = 100

// notices are what came of the latest orders. They are kept here and not in an address, so that nobody can write one into a link.
type notices struct {
	mu  sync.Mutex
	ids []string
	all map[string]notice
}

// keep returns a name for a notice.
func (n *notices) keep(said notice) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]notice{}
	}
	id := secret()[:12]
	n.ids, n.all[id] = append(n.ids, id), said
	if len(n.ids) > mostNotices {
		delete(n.all, n.ids[0])
		n.ids = n.ids[1:]
	}
	return id
}

func (n *notices) find(id string) *notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	if said, ok := n.all[id]; ok {
		return &said
	}
	return nil
}

// asking asks several things at once for one page, and collects what could not be found out.
type asking struct {
	ctx  context.Context
	wait sync.WaitGroup

	mu   sync.Mutex
	told []notice
}

func ask(r *http.Request) *asking { return &asking{ctx: r.Context()} }

// about asks something. What is asked for writes to places of its own.
func (a *asking) about(question func(context.Context) error) {
	a.wait.Go(func() { a.problem(question(a.ctx)) })
}

// problem tells of an error, once however many questions met it.
func (a *asking) problem(errs ...error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			continue
		}
		if n := noticeOf(err); !slices.Contains(a.told, n) {
			a.told = append(a.told, n)
		}
	}
}

// problems waits for all answers.
func (a *asking) problems() []notice {
	a.wait.Wait()
	slices.SortStableFunc(a.told, func(x, y notice) int { return cmp.Compare(x.Text, y.Text) })
	return a.told
}

// keepTime is for how long something is shown that took many questions: less than passes between two looks of one window.
const keepTime = 3 * time.Second

// kept is what was gathered last, for several windows that look at it.
type kept[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time
}

// get returns what was gathered a moment ago, or gathers it, with the time of that. Whoever goes away meanwhile does not spoil it for others.
func (k *kept[T]) get(r *http.Request, now func() time.Time, gather func(context.Context) T) (T, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := now(); k.at.IsZero() || at.Sub(k.at).Abs() >= keepTime {
		k.value, k.at = gather(context.WithoutCancel(r.Context())), at
	}
	return k.value, k.at
}

// forget has it gathered anew: something was done.
func (k *kept[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Time{}
}

// stamp is a time as the command writes it, with the whole of it for who asks, and for programs.
type stamp struct {
	Text, Full, Machine string
}

func stampOf(at, now time.Time) stamp {
	return stamp{Text: (view.Printer{Now: now}).Time(at), Full: at.In(now.Location()).Format(fullTime), Machine: at.UTC().Format(time.RFC3339Nano)}
}

// fullTime writes a time for the tooltip.
const fullTime = "Monday, 2 January 2006, 15:04:05 MST"

// printer writes times and words as the command does.
func (c *Console) printer() view.Printer { return view.Printer{Now: c.Now(), Whole: true} }

// functions are what templates can do besides.
func functions() template.FuncMap {
	return template.FuncMap{
		"clean": view.Clean, "item": itemURL, "delivery": deliveryURL, "upstream": upstreamURL,
		"words": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"coded": url.QueryEscape, // nothing that is not printable stands in a field
		"part":  func(name string, of any) part { return part{name, of} },
		"tone":  func(word string) string { return toneClass(view.ToneOf(word)) },
	}
}

// part is a table with the name by which the script finds it again.
type part struct {
	Name string
	Of   any
}
