package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/attention"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

//go:embed templates assets
var files embed.FS

const (
	// headTime and bodyTime bound how long a browser may take to send a request, and answerTime how long a page may take: several services may be
	// silent, each for as long as it is waited for.
	headTime   = 5 * time.Second
	bodyTime   = 30 * time.Second
	answerTime = 90 * time.Second
	// stopTime is how long pages that are under way may take once the console is to end.
	stopTime = 3 * time.Second
	// maxForm is the largest form that is read: a message, whose every byte may take three.
	maxForm = 3*prompt.MaxText + 1<<16
)

// Services are the clients of the command. Each bounds a call, and says of silence what to do about it.
type Services interface {
	Poller(ctx context.Context, call func(context.Context, pollerv1.PollerServiceClient) error) error
	Dispatcher(ctx context.Context, call func(context.Context, dispatcherv1.DispatcherServiceClient) error) error
	Teams(ctx context.Context, call func(context.Context, teamv1.TeamServiceClient) error) error
	// Tmuxd calls the tmuxd of this machine.
	Tmuxd(ctx context.Context, call func(context.Context, tmuxdv1.TmuxdServiceClient) error) error
}

// Reports are what the command has more to do for than to ask: it gathers, and judges, as its other commands do.
type Reports interface {
	Status(ctx context.Context) Status
	Attention(ctx context.Context) Attention
	// Story is what is known of a delivery; fault.NotFound means that nobody knows it.
	Story(ctx context.Context, id string) (Story, error)
	// Trace is every step of a delivery, as text; fault.NotFound means that there is none here.
	Trace(id string) (string, error)
	// Events are the newest of a work item or a delivery, or of all where both are empty, in order of time, with the errors of who did not answer.
	Events(ctx context.Context, item, delivery string, most int) ([]*dispatcherv1.Event, []error)
}

// Status is how everything stands. What is nil is not known: Away or Problems say why.
type Status struct {
	Services view.Table
	// Away says who does not serve; nil when everybody does.
	Away    error
	Sources []view.Fact
	// Agents says how many run on this machine.
	Agents string
	// Ledger and Sessions count by state, of which LedgerStates and SessionStates are all in their order.
	Ledger, Sessions            map[string]int
	LedgerStates, SessionStates []string
	Pauses                      []Pause
	// Shadow is true while the dispatcher only looks.
	Shadow   bool
	Problems []string
}

// Pause is something that is held back.
type Pause struct {
	// WorkItem is empty for all.
	WorkItem, Text string
}

// Attention is what needs a person.
type Attention struct {
	Entries []attention.Entry
	// Hidden is how many are left out because somebody has seen them.
	Hidden   int
	Problems []string
	// Away says why the list may lack something.
	Away error
	// Waiting are events that are on their way, as many as were looked at.
	Waiting []*pollerv1.LedgerEntry
}

// Story is what is known of one delivery. Entry and Delivery are nil where that part is not known, of which Problems tell.
type Story struct {
	Entry    *pollerv1.LedgerEntry
	Delivery *dispatcherv1.Delivery
	Facts    []view.Fact
	Problems []error
}

// Config says what the pages are made of.
type Config struct {
	Services Services
	Reports  Reports
	Now      func() time.Time
	// Who is told to the services as who does something.
	Who string
	// Host is the name of this machine's tmuxd, whose screens can be shown; empty for none.
	Host string
}

// Console is the pages.
type Console struct {
	Config

	door    *door
	addr    net.Addr
	pages   map[string]*template.Template
	notices notices
	status  kept[Status]
	matters kept[Attention]
}

// New returns the console that will listen at an address.
func New(config Config, addr net.Addr) (*Console, error) {
	c := &Console{Config: config, addr: addr, door: newDoor(addr), pages: map[string]*template.Template{}}
	sources, err := fs.Glob(files, "templates/page_*.html")
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		t, err := template.New("layout.html").Funcs(functions()).ParseFS(files, "templates/layout.html", "templates/parts.html", source)
		if err != nil {
			return nil, err
		}
		c.pages[source[len("templates/page_"):len(source)-len(".html")]] = t
	}
	return c, nil
}

// Address is where the pages are, with what lets one browser in. It is a secret until it is used.
func (c *Console) Address() string { return fmt.Sprintf("http://%s/?token=%s", c.addr, c.door.token) }

// Handler answers everything. What comes for another name than this machine's, or from a page that is not ours, gets no further than the guard; who
// has no cookie, no further than the door.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, page := range map[string]http.HandlerFunc{
		"GET /{$}": c.overview, "GET /attention": c.attention, "GET /sessions": c.sessions, "GET /item": c.item, "GET /ledger": c.ledger,
		"GET /deliveries/{id}": c.delivery, "GET /deliveries/{id}/trace": c.trace, "GET /events": c.events, "GET /hosts": c.hosts,
		"GET /sources": c.sources, "GET /teams": c.teams, "GET /teams/{run}": c.run,
		"POST /deliveries/{id}/retry": c.retry, "POST /deliveries/{id}/done": c.done, "POST /deliveries/{id}/cancel": c.cancel,
		"POST /attention/ack": c.acknowledge, "POST /pause": c.pause, "POST /unpause": c.unpause, "POST /unpark": c.unpark, "POST /send": c.send,
	} {
		mux.HandleFunc(pattern, page)
	}
	for _, name := range []string{"console.css", "console.js"} {
		mux.Handle("GET /assets/"+name, http.FileServerFS(files))
	}
	mux.HandleFunc("/", c.nothing)
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, "Form", fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the form cannot be read, or is larger than %d MiB", maxForm>>20))
			return
		}
		mux.ServeHTTP(w, r)
	})
	return protected(rpc.Guard(c.door.wrap(limited), c.addr, nil))
}

// Serve answers until ctx ends, and closes the listener.
func (c *Console) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: headTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, MaxHeaderBytes: 1 << 16}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fault.Wrap(fault.Internal, "", "the console cannot go on", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close() //nolint:errcheck // A page that takes longer is not waited for.
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fault.Wrap(fault.Internal, "", "the console did not stop in good order", err)
	}
	return nil
}

// protected has browsers do nothing with what we answer but show it: no script, style or form that is not ours, no frame, no copy kept.
func protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
				"base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
