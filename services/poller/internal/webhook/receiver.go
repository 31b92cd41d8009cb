package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/metrics"
)

// Route is where a source's webhooks are sent to.
const Route = "/webhooks/{source}"

// The headers of GitHub's.
const (
	headerSignature = "X-Hub-Signature-256"
	headerGUID      = "X-GitHub-Delivery"
	headerEvent     = "X-GitHub-Event"
	eventPing       = "ping"
)

const (
	// maxRequests is how many requests are answered at once, and maxBytes how much of their bodies is held; whoever comes then is told that it is busy.
	maxRequests = 512
	maxBytes    = 64 << 20
	// firstBuffer is what is held of a body at first: most are smaller.
	firstBuffer = 16 << 10
	// DefaultMaxBody is how large a body may be.
	DefaultMaxBody = 5 << 20
)

// What is answered. GitHub shows it to whoever looks at its list of deliveries.
const (
	answerUnsigned = "not signed with a secret that is known here, or there is no such source\n"
	answerBusy     = "too much comes in at once: redeliver this, or leave it to the next look at the source\n"
	answerSilent   = "not written down, because the database does not answer: redeliver this, or leave it to the next look at the source\n"
	answerAccepted = "accepted\n"
	answerKnown    = "known\n"
	answerPong     = "pong\n"
)

// Intake writes messages down.
type Intake interface {
	// Put returns once a message is there for good, and reports whether it was there before. Errors are faults.
	Put(ctx context.Context, a hook.Arrival) (known bool, err error)
}

// Source is a source whose webhooks are taken.
type Source struct {
	Name string
	// Repositories are those of the source, as owner/repo.
	Repositories []string
	Secrets      *Secrets
}

// Config is what a Receiver is made from; every field but MaxBody is required.
type Config struct {
	Sources []Source
	Intake  Intake
	// Open reads the envelope of a payload. What cannot be read is fault.Invalid.
	Open func(event string, body []byte) (hook.Envelope, error)
	// MaxBody is how large a body may be, in bytes; DefaultMaxBody when 0.
	MaxBody int64
	Logger  *slog.Logger
	// Metrics count requests; nil counts nothing.
	Metrics *metrics.Metrics
}

// Receiver answers POST /webhooks/{source}. It is safe for use by many goroutines.
type Receiver struct {
	config  Config
	sources map[string]*source
	// nobody's secret has the signature of an unknown source checked as that of a known one is.
	nobodys *Secrets
	mux     *http.ServeMux

	requests, bytes atomic.Int64
	readTime        time.Duration

	mu    sync.Mutex
	tally map[tallied]int
}

type source struct {
	name         string
	secrets      *Secrets
	repositories map[string]string // as configured, by name in lower case
}

// tallied is what is counted, and told once a minute: whoever is not known must not fill the log.
type tallied struct{ source, answer string }

// New returns a receiver.
func New(config Config) *Receiver {
	if config.MaxBody == 0 {
		config.MaxBody = DefaultMaxBody
	}
	if config.Metrics == nil {
		config.Metrics = metrics.New(nil)
	}
	config.Metrics.Webhooks.Add(context.Background(), 0, "", "unsigned") // an alert counts them from the first
	nobodys := make([]byte, 32)
	rand.Read(nobodys) //nolint:errcheck // It never fails.
	r := &Receiver{
		config: config, sources: map[string]*source{}, nobodys: &Secrets{secrets: [][]byte{nobodys}}, mux: http.NewServeMux(),
		tally: map[tallied]int{}, readTime: readTime,
	}
	for _, s := range config.Sources {
		known := &source{name: s.Name, secrets: s.Secrets, repositories: map[string]string{}}
		for _, repository := range s.Repositories {
			known.repositories[strings.ToLower(repository)] = repository
		}
		r.sources[s.Name] = known
	}
	r.mux.HandleFunc("POST "+Route, r.receive)
	return r
}

// ServeHTTP answers a request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mux.ServeHTTP(w, request)
}

// answer is a status, what is said with it, and the name under which it is counted. What is usual is told by the log of nobody.
type answer struct {
	status int
	text   string
	name   string
}

// The names of answers that are usual.
const (
	nameAccepted = "accepted"
	namePong     = "pong"
)

func (r *Receiver) receive(w http.ResponseWriter, request *http.Request) {
	name, a := "", answer{http.StatusServiceUnavailable, answerBusy, "busy"}
	if r.requests.Add(1) <= maxRequests {
		name, a = r.answer(w, request)
	}
	r.requests.Add(-1)
	r.config.Metrics.Webhooks.Add(request.Context(), 1, name, a.name)
	r.count(name, a.name)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	io.WriteString(w, a.text) //nolint:errcheck // Whoever asked is gone.
}

// answer returns what to answer, and the name of the source where it is known who asks.
func (r *Receiver) answer(w http.ResponseWriter, request *http.Request) (string, answer) {
	body, release, refused := r.read(w, request)
	defer release()
	if refused.status != 0 {
		return "", refused
	}
	s := r.sources[request.PathValue("source")]
	if !r.known(request, s, body) {
		return "", answer{http.StatusUnauthorized, answerUnsigned, "unsigned"}
	}
	return s.name, r.take(request, s, body)
}

// read reads the body, within the bounds. release gives back what it takes of them.
func (r *Receiver) read(w http.ResponseWriter, request *http.Request) (body []byte, release func(), refused answer) {
	most := r.config.MaxBody
	tooLarge := answer{http.StatusRequestEntityTooLarge, fmt.Sprintf("larger than %d MiB, which is what this server takes "+
		"(poller.webhook.max_body_mib)\n", most>>20), "too_large"}
	if request.ContentLength > most {
		w.Header().Set("Connection", "close")
		return nil, func() {}, tooLarge
	}
	var held int64
	release = func() { r.bytes.Add(-held) }
	body, err := readAll(http.MaxBytesReader(w, request.Body, most), func(n int) bool {
		held += int64(n)
		return r.bytes.Add(int64(n)) <= maxBytes
	})
	var over *http.MaxBytesError
	switch {
	case errors.Is(err, errBusy):
		return nil, release, answer{http.StatusServiceUnavailable, answerBusy, "busy"}
	case errors.As(err, &over):
		return nil, release, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, release, answer{http.StatusRequestTimeout, "too slow\n", "cut_short"}
	case err != nil:
		return nil, release, answer{http.StatusBadRequest, "cut short\n", "cut_short"}
	}
	return body, release, answer{}
}

var errBusy = errors.New("too much is held at once")

// readAll reads to the end. Before it holds more it asks: what somebody only says that he will send costs nothing.
func readAll(from io.Reader, more func(n int) bool) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			grown := max(firstBuffer, 2*cap(body))
			if !more(grown - cap(body)) {
				return nil, errBusy
			}
			body = append(make([]byte, 0, grown), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// known reports whether a body is signed with a secret of the source. It takes as long where there is no such source.
func (r *Receiver) known(request *http.Request, s *source, body []byte) bool {
	secrets := r.nobodys.secrets
	if s != nil {
		var problem error
		if secrets, problem = s.secrets.get(); problem != nil {
			r.config.Logger.WarnContext(request.Context(), "the file with the secrets of the webhooks cannot be read; those that were in it still count",
				obs.KeySource, s.name, obs.KeyError, problem)
		}
	}
	signatures := request.Header.Values(headerSignature)
	signature := ""
	if len(signatures) == 1 {
		signature = signatures[0]
	}
	return signed(secrets, signature, body) && s != nil
}

// guidForm is what an id of a message may look like. GitHub's are UUIDs.
var guidForm = regexp.MustCompile(`^[0-9A-Za-z_-]{1,100}$`)

// take takes a message whose sender is known.
func (r *Receiver) take(request *http.Request, s *source, body []byte) answer {
	if kind, _, err := mime.ParseMediaType(request.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return answer{http.StatusUnsupportedMediaType, "the content type must be application/json: set it so where the webhook is configured, under " +
			"Settings, Webhooks\n", "content_type"}
	}
	event, guid := request.Header.Get(headerEvent), request.Header.Get(headerGUID)
	if event == eventPing {
		return answer{http.StatusOK, answerPong, namePong}
	}
	if !guidForm.MatchString(guid) || event == "" {
		return answer{http.StatusBadRequest, headerGUID + " or " + headerEvent + " is missing, or not of the usual form\n", "malformed"}
	}
	envelope, err := r.config.Open(event, body)
	if err != nil {
		return answer{http.StatusBadRequest, "the payload cannot be read\n", "malformed"}
	}
	envelope.Event = event
	if !hook.Wanted(event, envelope.Action) {
		return answer{http.StatusAccepted, "ignored: nothing is done about this kind of event\n", "ignored_event"}
	}
	repository, ok := s.repositories[strings.ToLower(envelope.Repository)]
	if !ok {
		return answer{http.StatusAccepted, "ignored: the source does not list this repository\n", "ignored_repository"}
	}
	envelope.Repository = repository
	known, err := r.config.Intake.Put(request.Context(), hook.Arrival{Source: s.name, GUID: guid, Envelope: envelope, Payload: body})
	switch {
	case errors.Is(err, fault.Unavailable):
		return answer{http.StatusServiceUnavailable, answerSilent, "database"}
	case err != nil:
		r.config.Logger.ErrorContext(request.Context(), "a webhook could not be written down", obs.KeySource, s.name, obs.KeyError, err)
		return answer{http.StatusInternalServerError, "it could not be written down\n", "failed"}
	case known:
		return answer{http.StatusOK, answerKnown, "known"}
	}
	return answer{http.StatusAccepted, answerAccepted, nameAccepted}
}

func (r *Receiver) count(source, name string) {
	if name == nameAccepted || name == namePong {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally[tallied{source, name}]++
}

// Report logs, once a minute until ctx ends, how many requests were answered otherwise than with success, by reason.
func (r *Receiver) Report(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.report(ctx)
		case <-ctx.Done():
			r.report(context.WithoutCancel(ctx))
			return nil
		}
	}
}

func (r *Receiver) report(ctx context.Context) {
	r.mu.Lock()
	tally := r.tally
	r.tally = map[tallied]int{}
	r.mu.Unlock()
	for what, n := range tally {
		level := slog.LevelInfo
		if what.answer == "unsigned" || what.answer == "database" || what.answer == "content_type" {
			level = slog.LevelWarn
		}
		r.config.Logger.Log(ctx, level, "webhooks that were not written down", obs.KeySource, what.source, obs.KeyReason, what.answer, obs.KeyCount, n)
	}
}
