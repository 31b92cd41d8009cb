package main

import (
	"bufio"
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// hostile is what somebody may write upstream, or on a screen.
const hostile = "<script>alert(1)</script>\x1b[31mred\x1b[0m\u202eevil\a\"'><img src=x onerror=alert(2)>"

// consolePoller is a poller with what else the console asks for: keys, links and a second page.
type consolePoller struct {
	*fakePoller
	links []*pollerv1.PullLink
}

func (f *consolePoller) Submit(ctx context.Context, r *pollerv1.SubmitRequest) (*pollerv1.SubmitResponse, error) {
	f.mu.Lock()
	for _, earlier := range f.submitted {
		if earlier.GetIdempotencyKey() == r.GetIdempotencyKey() {
			f.mu.Unlock()
			return &pollerv1.SubmitResponse{Entry: &pollerv1.LedgerEntry{DeliveryId: "daaaa1111", State: pollerv1.LedgerState_LEDGER_STATE_PENDING}, Existed: true}, nil
		}
	}
	f.mu.Unlock()
	return f.fakePoller.Submit(ctx, r)
}

func (f *consolePoller) ListLinks(context.Context, *pollerv1.ListLinksRequest) (*pollerv1.ListLinksResponse, error) {
	return &pollerv1.ListLinksResponse{Links: f.links}, nil
}

func (f *consolePoller) ListLedger(ctx context.Context, r *pollerv1.ListLedgerRequest) (*pollerv1.ListLedgerResponse, error) {
	out, err := f.fakePoller.ListLedger(ctx, r)
	if r.GetPageSize() == 50 && r.GetPageToken() == "" {
		out.NextPageToken = "page two"
	}
	return out, err
}

// consoleTmuxd has a screen.
type consoleTmuxd struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
}

func (consoleTmuxd) Capture(context.Context, *tmuxdv1.CaptureRequest) (*tmuxdv1.CaptureResponse, error) {
	return &tmuxdv1.CaptureResponse{Lines: []string{"the first line", hostile}}, nil
}

// answered is a desk with services that answer the console, and something hostile wherever others write.
type answered struct {
	*desk
	poller     *consolePoller
	dispatcher *fakeDispatcher
}

func newAnswered(t *testing.T) *answered {
	t.Helper()
	const item = "github:octo/widget#7"
	f := &answered{desk: newDesk(t)}
	row := func(id string, state pollerv1.LedgerState, reason string) *pollerv1.LedgerEntry {
		return &pollerv1.LedgerEntry{DeliveryId: id, WorkItem: item, State: state, Reason: reason, Source: "github", Kind: hostile, Author: hostile, Title: hostile,
			Detail: hostile, Url: "javascript:alert(3)", Pull: "github:octo/widget#8", About: hostile, Commit: hostile, Budget: 3, CreateTime: at(2 * time.Hour),
			UpdateTime: at(2 * time.Hour), NextLook: at(-time.Minute)}
	}
	odd := row("dodd11111", pollerv1.LedgerState_LEDGER_STATE_HELD, hostile)
	odd.WorkItem, odd.Source = hostile, hostile
	f.poller = &consolePoller{fakePoller: &fakePoller{
		entries: []*pollerv1.LedgerEntry{row("daaaa1111", pollerv1.LedgerState_LEDGER_STATE_DROPPED, "spawn_forbidden"),
			row("dbbbb2222", pollerv1.LedgerState_LEDGER_STATE_PENDING, "busy"), row("dcccc3333", pollerv1.LedgerState_LEDGER_STATE_SETTLED, "unconfirmed"), odd},
		sources: []*pollerv1.Source{{Name: hostile, LastError: hostile, Repositories: []string{hostile},
			RepositoryStates: []*pollerv1.SourceRepository{{Repository: hostile, LastError: hostile}}}},
		counts: []*pollerv1.StateCount{{State: pollerv1.LedgerState_LEDGER_STATE_DROPPED, Count: 1}},
		events: []*pollerv1.PollEvent{{Sequence: 4, Type: "poll.source_failed", Time: at(time.Minute), Source: hostile}},
	}, links: []*pollerv1.PullLink{{Pull: "github:octo/widget#8", WorkItem: item, Detail: hostile, Who: hostile, Current: true, CreateTime: at(time.Hour)}}}
	f.dispatcher = &fakeDispatcher{
		session: &dispatcherv1.Session{WorkItem: item, Target: "loop-octo-widget-7", Host: "here", Harness: hostile, ConversationId: hostile, StateDetail: hostile,
			State: dispatcherv1.SessionState_SESSION_STATE_LIVE, Activity: dispatcherv1.SessionActivity_SESSION_ACTIVITY_AWAITING_INPUT,
			ActivityDetail: hostile, ActivitySince: at(time.Hour), UpdateTime: at(time.Hour)},
		delivery: &dispatcherv1.Delivery{DeliveryId: "daaaa1111", WorkItem: item, Outcome: dispatcherv1.Outcome_OUTCOME_DROPPED, Reason: "spawn_forbidden",
			Detail: hostile, Remedy: hostile, Steps: []string{hostile}, UpdateTime: at(time.Hour)},
		pauses: []*dispatcherv1.Pause{{WorkItem: item, Who: hostile, Reason: hostile, CreateTime: at(48 * time.Hour)}},
		parks:  []*dispatcherv1.Park{{WorkItem: item, Deaths: 5, Within: durationpb.New(time.Minute), Detail: hostile, CreateTime: at(time.Hour)}},
		hosts:  []*dispatcherv1.Host{{Name: hostile, Address: hostile, Detail: hostile, Since: at(time.Hour), Labels: map[string]string{hostile: hostile}}},
		events: []*dispatcherv1.Event{{Sequence: 9, Type: "dispatch.dropped", Time: at(time.Minute), WorkItem: item, DeliveryId: "daaaa1111",
			Fields: map[string]string{"reason": hostile, hostile: "x"}}},
	}
	run := &teamv1.Run{RunId: "r1", Team: hostile, Phase: teamv1.Phase_PHASE_FAILED, Detail: hostile, Who: hostile, WorkItem: item, CreateTime: at(time.Hour), EndTime: at(time.Minute)}
	teams := &fakeTeams{whole: &teamv1.GetRunResponse{Run: run, Tasks: []*teamv1.TaskStatus{{TaskId: hostile, Why: hostile, State: teamv1.TaskState_TASK_STATE_FAILED}},
		Attempts: []*teamv1.AttemptStatus{{TaskId: hostile, Worker: hostile}}, History: []*teamv1.HistoryEntry{{What: hostile, Detail: hostile, Time: at(time.Hour)}}}}
	f.serve(t, "p", func(s *rpc.Server) {
		s.Health().Set("", true)
		pollerv1.RegisterPollerServiceServer(s, f.poller)
	})
	f.serve(t, "d", func(s *rpc.Server) {
		s.Health().Set("", true)
		dispatcherv1.RegisterDispatcherServiceServer(s, f.dispatcher)
		teamv1.RegisterTeamServiceServer(s, teams)
	})
	f.serve(t, "t", func(s *rpc.Server) { tmuxdv1.RegisterTmuxdServiceServer(s, consoleTmuxd{}) })
	return f
}

// browser is somebody at a console that runs.
type browser struct {
	http.Client
	t *testing.T
	// base begins every address, and printed is the one that lets in.
	base, printed string

	mu   sync.Mutex
	said string // what the command wrote after the address
}

// openConsole runs the console of a desk until the test ends, and opens its first page.
func openConsole(t *testing.T, d *desk) *browser {
	t.Helper()
	read, write := io.Pipe()
	d.stdout = write
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := d.console(ctx, "127.0.0.1:0")
		write.Close()
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the end of the console: %v", err)
		}
	})
	lines := bufio.NewReader(read)
	first, _ := lines.ReadString('\n')
	b := &browser{t: t, printed: regexp.MustCompile(`http://\S+`).FindString(first)}
	if b.printed == "" {
		t.Fatalf("it does not say where it is: %q", first)
	}
	go func() {
		for {
			line, err := lines.ReadString('\n')
			b.mu.Lock()
			b.said += line
			b.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	b.base, _, _ = strings.Cut(b.printed, "/?")
	b.Jar, _ = cookiejar.New(nil)
	if code, page := b.get(strings.TrimPrefix(b.printed, b.base)); code != http.StatusOK {
		t.Fatalf("the printed address: %d\n%s", code, page)
	}
	return b
}

// do sends a request, as a browser that has the cookie.
func (b *browser) do(r *http.Request) (int, string) {
	b.t.Helper()
	answer, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if policy := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'; script-src 'self';") ||
		answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("Referrer-Policy") != "no-referrer" {
		b.t.Errorf("%s %s: the headers are %v", r.Method, r.URL, answer.Header)
	}
	return answer.StatusCode, string(page)
}

func (b *browser) request(method, path string, form url.Values) *http.Request {
	b.t.Helper()
	r, err := http.NewRequest(method, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func (b *browser) get(path string) (int, string) {
	b.t.Helper()
	return b.do(b.request(http.MethodGet, path, nil))
}

// post sends a form as the page would, and returns where that led.
func (b *browser) post(path string, form ...string) (int, string) {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	r := b.request(http.MethodPost, path, values)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(r)
}

var linkTo = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// crawl follows every link of every page from the first one on, and returns the pages by their addresses.
func (b *browser) crawl() map[string]string {
	b.t.Helper()
	pages, next := map[string]string{}, []string{"/"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if _, seen := pages[path]; seen {
			continue
		}
		code, page := b.get(path)
		if code != http.StatusOK {
			b.t.Errorf("%s: %d\n%s", path, code, page)
		}
		pages[path] = page
		for _, m := range linkTo.FindAllStringSubmatch(page, -1) {
			if to := html.UnescapeString(m[1]); strings.HasPrefix(to, "/") {
				next = append(next, to)
			}
		}
	}
	return pages
}

func TestConsole_EveryLinkLeadsToAPage(t *testing.T) {
	b := openConsole(t, newAnswered(t).desk)
	pages := b.crawl()
	for _, want := range []string{"/", "/attention", "/sessions", "/item?of=github%3Aocto%2Fwidget%237", "/ledger", "/ledger?page=page+two", "/ledger?state=dropped",
		"/deliveries/daaaa1111", "/deliveries/daaaa1111/trace", "/events", "/hosts", "/sources", "/teams", "/teams/r1", "/assets/console.css", "/assets/console.js"} {
		if pages[want] == "" {
			t.Errorf("nothing leads to %s", want)
		}
	}
	for path, page := range pages {
		if !strings.HasPrefix(path, "/assets/") && (!strings.Contains(page, "<h1>") || !strings.HasSuffix(strings.TrimSpace(page), "</html>")) {
			t.Errorf("%s is not whole:\n%s", path, page)
		}
		if strings.Contains(page, " style=") || strings.Contains(page, "<style") || strings.Contains(page, " onclick") {
			t.Errorf("%s has what the policy forbids", path)
		}
	}
}

func TestConsole_ShowsWhatOthersWroteAsText(t *testing.T) {
	b := openConsole(t, newAnswered(t).desk)
	times := 0
	for path, page := range b.crawl() {
		if strings.HasPrefix(path, "/assets/") {
			continue
		}
		for _, bad := range []string{"<script>", "<img", "\x1b", "\u202e", "\a", `href="javascript:`, `"'>`, "ZgotmplZ"} {
			if i := strings.Index(page, bad); i >= 0 {
				t.Errorf("%s has %q in\n%s", path, bad, page[max(0, i-200):min(len(page), i+200)])
			}
		}
		times += strings.Count(page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	}
	if times < 40 {
		t.Errorf("what was written is shown %d times only", times)
	}
	if _, page := b.get("/item?of=github%3Aocto%2Fwidget%237"); !strings.Contains(page, "the first line\n&lt;script&gt;") {
		t.Errorf("the screen is not shown:\n%s", page)
	}
}

func TestConsole_LetsOneBrowserInOnce(t *testing.T) {
	b := openConsole(t, newAnswered(t).desk)
	token := b.printed[strings.Index(b.printed, "=")+1:]
	if len(token) < 40 {
		t.Fatalf("the token is %q", token)
	}
	other := &browser{t: t, base: b.base}
	if code, page := other.get("/?token=" + token); code != http.StatusForbidden || !strings.Contains(page, "muxpost console") {
		t.Errorf("a second browser: %d\n%s", code, page)
	}
	if code, page := b.get("/?token=" + token); code != http.StatusOK || strings.Contains(page, token) {
		t.Errorf("the same browser again: %d", code)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Contains(b.said, token) {
		t.Errorf("the token is told twice:\n%s", b.said)
	}
}

func TestConsole_RefusesWhoHasNoCookieAnotherNameOrAnotherOrigin(t *testing.T) {
	f := newAnswered(t)
	b := openConsole(t, f.desk)
	stranger := &browser{t: t, base: b.base}
	for _, path := range []string{"/", "/ledger", "/nothing", "/assets/console.js", "/deliveries/daaaa1111"} {
		if code, page := stranger.get(path); code != http.StatusForbidden || !strings.Contains(page, "<code>muxpost console</code>") {
			t.Errorf("without a cookie %s: %d\n%s", path, code, page)
		}
	}
	if code, _ := stranger.post("/pause"); code != http.StatusForbidden {
		t.Errorf("without a cookie, an order: %d", code)
	}
	for _, host := range []string{"evil.example", "127.0.0.1.evil.example:80", "192.0.2.1"} {
		r := b.request(http.MethodGet, "/", nil)
		r.Host = host
		if code, _ := b.do(r); code != http.StatusForbidden {
			t.Errorf("as %s: %d", host, code)
		}
	}
	for name, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		r := b.request(http.MethodPost, "/send", url.Values{"item": {"github:octo/widget#7"}, "text": {"hello"}, "key": {"k"}})
		r.Header.Set(name, value)
		if code, _ := b.do(r); code != http.StatusForbidden {
			t.Errorf("with %s: %s: %d", name, value, code)
		}
	}
	r := b.request(http.MethodPost, "/pause", url.Values{})
	r.Header.Set("Sec-Fetch-Site", "same-site") // another port of this machine
	if code, _ := b.do(r); code != http.StatusForbidden {
		t.Errorf("from another port: %d", code)
	}
	if code, _ := b.get("/pause"); code != http.StatusNotFound {
		t.Errorf("an order by GET: %d", code)
	}
	if len(f.poller.submitted) != 0 || len(f.dispatcher.pauses) != 1 {
		t.Errorf("%v, %v", f.poller.submitted, f.dispatcher.pauses)
	}
}

func TestConsole_OrdersWhatTheCommandsOrder(t *testing.T) {
	f := newAnswered(t)
	b := openConsole(t, f.desk)
	for _, order := range []struct {
		path string
		form []string
		want string
	}{
		{"/deliveries/dbbbb2222/retry", []string{"back", "/attention"}, "is on its way already"},
		{"/deliveries/dcccc3333/retry", []string{"again", "1", "reason", "looked"}, "is typed once more, as dagain111"},
		{"/deliveries/daaaa1111/retry", []string{"back", "/deliveries/daaaa1111"}, "is tried again, with 3 new tries"},
		{"/deliveries/dcccc3333/done", nil, "is done and is not tried again"},
		{"/deliveries/dcccc3333/retry", nil, "it was settled by policy"},
		{"/deliveries/dnone1111/retry", nil, "no such event"},
		{"/deliveries/%3Cscript%3E/retry", nil, "no delivery id"},
		{"/deliveries/dbbbb2222/cancel", nil, "is cancelled and is not delivered any more"},
		{"/attention/ack", []string{"id", "daaaa1111", "state", "dropped spawn_forbidden", "delivery", "daaaa1111"}, "is left out of the list"},
		{"/pause", []string{"all", "1", "reason", "an upgrade"}, "all work items are paused"},
		{"/unpause", []string{"all", "1"}, "ended: the pause of all work items"},
		{"/pause", []string{"item", "octo/widget"}, "Not done"},
		{"/unpark", []string{"item", "github:octo/widget#7", "back", "/attention"}, "is not parked any more"},
		{"/unpark", nil, "no work item is named"},
		{"/pause", []string{"item", ""}, "no work item is named"},
	} {
		code, page := b.post(order.path, order.form...)
		if code != http.StatusOK || !strings.Contains(page, order.want) {
			t.Errorf("%s %v: %d, and not %q in\n%s", order.path, order.form, code, order.want, page)
		}
	}
	if got := f.poller.retried; len(got) != 5 || got[1].GetReason() != "looked" || !got[1].GetTypeAgain() || got[0].GetWho() == "" {
		t.Errorf("%v", got)
	}
	if got := f.poller.acks; len(got) != 1 || got[0].GetState() != "dropped spawn_forbidden" || got[0].GetWho() == "" {
		t.Errorf("%v", got)
	}
}

func TestConsole_AcknowledgesAnEntryAsThePageShowedIt(t *testing.T) {
	b := openConsole(t, newAnswered(t).desk)
	_, page := b.get("/attention")
	before := strings.Count(page, "<article")
	article := regexp.MustCompile(`(?s)<article data-part="daaaa1111">.*?</article>`).FindString(page)
	form := []string{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`).FindAllStringSubmatch(article, -1) {
		form = append(form, m[1], html.UnescapeString(m[2]))
	}
	code, page := b.post("/attention/ack", form...)
	if code != http.StatusOK || !strings.Contains(page, "is left out of the list") || strings.Contains(page, `<article data-part="daaaa1111">`) ||
		strings.Count(page, "<article") != before-1 || !strings.Contains(page, "1 more is acknowledged") {
		t.Errorf("%v: %d\n%s", form, code, page)
	}
}

var keyOf = regexp.MustCompile(`name="key" value="([^"]+)"`)

func TestConsole_SendsAMessageOnceHoweverOftenItsFormIsSent(t *testing.T) {
	f := newAnswered(t)
	b := openConsole(t, f.desk)
	_, page := b.get("/item?of=github%3Aocto%2Fwidget%237")
	key := keyOf.FindStringSubmatch(page)
	if key == nil {
		t.Fatalf("no form:\n%s", page)
	}
	for i, want := range []string{"sent to github:octo/widget#7 as delivery", "this was sent before"} {
		code, page := b.post("/send", "item", "github:octo/widget#7", "text", "please\r\nrebase", "key", key[1])
		if code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("the %dth time: %d\n%s", i, code, page)
		}
		if next := keyOf.FindStringSubmatch(page); next == nil || next[1] == key[1] {
			t.Error("the next message has the key of this one")
		}
	}
	if got := f.poller.submitted; len(got) != 1 || got[0].GetText() != "please\r\nrebase" || got[0].GetWorkItem() != "github:octo/widget#7" {
		t.Errorf("%v", got)
	}
}

func TestConsole_WhatCannotBeSentStaysInTheForm(t *testing.T) {
	b := openConsole(t, newDesk(t)) // nobody answers
	code, page := b.post("/send", "item", "github:octo/widget#7", "text", "a long story </textarea>", "key", "k-1")
	if code != http.StatusServiceUnavailable || !strings.Contains(page, "a long story &lt;/textarea&gt;</textarea>") || !strings.Contains(page, `value="k-1"`) ||
		!strings.Contains(page, "sending it again from this page is safe") {
		t.Errorf("%d\n%s", code, page)
	}
	if code, page := b.post("/send", "item", "github:octo/widget#7", "text", " ", "key", "k-1"); code != http.StatusBadRequest || !strings.Contains(page, "Not done") {
		t.Errorf("nothing to send: %d\n%s", code, page)
	}
	if code, page := b.post("/send", "item", "github:octo/widget#7", "text", strings.Repeat("x", 5<<20), "key", "k-1"); code != http.StatusBadRequest || !strings.Contains(page, "larger than") {
		t.Errorf("too much to send: %d", code)
	}
}

func TestConsole_WithoutAServiceShowsTheRest(t *testing.T) {
	d := newDesk(t)
	d.serve(t, "p", func(s *rpc.Server) {
		s.Health().Set("", true)
		pollerv1.RegisterPollerServiceServer(s, &consolePoller{fakePoller: &fakePoller{
			entries: []*pollerv1.LedgerEntry{{DeliveryId: "daaaa1111", WorkItem: "github:octo/widget#7", State: pollerv1.LedgerState_LEDGER_STATE_HELD, CreateTime: at(time.Hour)}},
			counts:  []*pollerv1.StateCount{{State: pollerv1.LedgerState_LEDGER_STATE_HELD, Count: 1}},
		}})
	})
	b := openConsole(t, d)
	for path, wants := range map[string][]string{
		"/":                               {"dispatcher", "What to do: ", "daaaa1111", "1 <span class=\"warn\">held</span>"},
		"/ledger":                         {"daaaa1111"},
		"/sessions":                       {"Not known:", "the dispatcher", "What to do: ", "muxpost up"},
		"/attention":                      {"Not known:", "the dispatcher"},
		"/events":                         {"Not known:", "the dispatcher"},
		"/hosts":                          {"Not known:", "the dispatcher"},
		"/teams":                          {"Not known:", "the dispatcher"},
		"/deliveries/daaaa1111":           {"held", "not known", "the dispatcher"},
		"/item?of=github:octo/widget%237": {"daaaa1111", "Not known:", "the dispatcher"},
	} {
		code, page := b.get(path)
		for _, want := range wants {
			if code != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s: %d, and not %q in\n%s", path, code, want, page)
			}
		}
	}
	for path, want := range map[string]int{"/deliveries/dnone1111": http.StatusServiceUnavailable, "/deliveries/x": http.StatusBadRequest, "/item?of=x": http.StatusBadRequest,
		"/nothing": http.StatusNotFound, "/ledger?state=odd": http.StatusBadRequest, "/teams/r9": http.StatusServiceUnavailable} {
		if code, page := b.get(path); code != want || !strings.Contains(page, "<nav") {
			t.Errorf("%s: %d\n%s", path, code, page)
		}
	}
}

func TestConsole_ListensOnLoopbackAlone(t *testing.T) {
	d := newDesk(t)
	for _, address := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80"} {
		if err := d.run(t, "console", "--listen", address); fault.ReasonOf(err) != fault.ReasonNotLoopback {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"unix:/tmp/x.sock", "nonsense"} {
		if err := d.run(t, "console", "--listen", address); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", address, err)
		}
	}
	taken, err := listenConsole("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := d.run(t, "console", "--listen", taken.Addr().String()); fault.ReasonOf(err) != fault.ReasonAddressTaken {
		t.Errorf("one that is taken: %v", err)
	}
}
