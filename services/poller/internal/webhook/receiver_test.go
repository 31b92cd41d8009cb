package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/store"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

const secret = "correct horse battery staple"

// logged is a log that is read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// world is a receiver that listens, with a real inbox behind it.
type world struct {
	t          *testing.T
	pool       *pgxpool.Pool
	receiver   *Receiver
	url        string
	secretFile string
	log        *logged
	stop       func()
}

// newWorld serves the source gh with octo/widget; change, where it is not nil, changes the configuration.
func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, pool: dbtest.New(t), secretFile: filepath.Join(t.TempDir(), "secret"), log: &logged{}}
	w.write(secret + "\n")
	w.serve(change)
	return w
}

// serve starts a receiver on the same inbox.
func (w *world) serve(change func(*Config)) {
	t := w.t
	t.Helper()
	source := settings.Source{Name: "gh", Webhook: true, WebhookSecretFile: w.secretFile}
	secrets, err := NewSecrets(w.secretFile, source.WebhookSecrets)
	must(t, err)
	s := store.New(store.Config{Pool: w.pool, Quiet: w.pool, Holder: store.NewHolder(), Version: func() ledger.Version { return ledger.Version{} }})
	config := Config{
		Sources: []Source{{Name: "gh", Repositories: []string{"Octo/Widget"}, Secrets: secrets}}, Intake: hook.NewIntake(s, nil),
		Open: github.OpenPayload, Logger: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&config)
	}
	w.receiver = New(config)
	w.receiver.readTime = time.Second
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.url = "http://" + listener.Addr().String() + "/webhooks/"
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.receiver.Serve(ctx, listener) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
}

func (w *world) write(text string) {
	w.t.Helper()
	// Another file in its place, as a tool that writes secrets does it.
	must(w.t, os.WriteFile(w.secretFile+".new", []byte(text), 0o600))
	must(w.t, os.Rename(w.secretFile+".new", w.secretFile))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func sign(key string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// message is what GitHub sends. A header that is empty is not sent.
type message struct {
	source, event, guid, contentType string
	body                             []byte
	signature                        string
}

// comment is a comment on an issue, signed; guid is that of the message, id the comment's.
func comment(guid string, id int) message {
	body := fmt.Appendf(nil, `{"action":"created","issue":{"number":7,"node_id":"I_7"},"comment":{"id":%d,"node_id":"IC_%d","body":"the words"},`+
		`"repository":{"full_name":"octo/WIDGET"}}`, id, id)
	return signedMessage("issue_comment", guid, body)
}

func signedMessage(event, guid string, body []byte) message {
	return message{source: "gh", event: event, guid: guid, contentType: "application/json", body: body, signature: sign(secret, body)}
}

func (w *world) request(m message) *http.Request {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+m.source, bytes.NewReader(m.body))
	must(w.t, err)
	for key, value := range map[string]string{headerEvent: m.event, headerGUID: m.guid, "Content-Type": m.contentType, headerSignature: m.signature} {
		if value != "" {
			request.Header.Set(key, value)
		}
	}
	return request
}

func do(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

func (w *world) send(m message) (int, string) {
	w.t.Helper()
	return do(w.t, w.request(m))
}

// rows returns the inbox, in order, each as "guid event.action repository#number object state".
func (w *world) rows() []string {
	w.t.Helper()
	var out []string
	rows, err := w.pool.Query(w.t.Context(), `select guid || ' ' || event || '.' || action || ' ' || thread || ' ' || object || ' ' || state
from poller.hooks order by id`)
	must(w.t, err)
	for rows.Next() {
		var row string
		must(w.t, rows.Scan(&row))
		out = append(out, row)
	}
	must(w.t, rows.Err())
	return out
}

func (w *world) count() int {
	w.t.Helper()
	return len(w.rows())
}

func TestReceive_IsWrittenDownAsItCameBeforeItIsAnswered(t *testing.T) {
	w := newWorld(t, nil)
	m := comment("72d3162e-cc78-11e3-81ab-4c9367dc0958", 1)
	status, text := w.send(m)
	equal(t, "answer", []any{status, text}, []any{http.StatusAccepted, answerAccepted})
	equal(t, "rows", w.rows(), []string{m.guid + " issue_comment.created octo/widget#7 IC_1 waiting"})
	var payload []byte
	must(t, w.pool.QueryRow(t.Context(), `select payload from poller.hooks`).Scan(&payload))
	equal(t, "payload", string(payload), string(m.body))
}

func TestReceive_TheSignatureIsThatOfTheBodyAsItCame(t *testing.T) {
	w := newWorld(t, nil)
	body := []byte("{ \"action\" :\t\"created\",\r\n \"issue\":{\"number\":7,\"node_id\":\"I_7\"}, \"comment\":{\"node_id\":\"IC_1\"," +
		"\"body\":\"\\u0070aint \\ud83c\\udfa8 \\/ it <b>\"},\"repository\":{\"full_name\":\"octo\\/widget\"} }\n")
	status, text := w.send(signedMessage("issue_comment", "guid-1", body))
	equal(t, "escapes and blanks", []any{status, text}, []any{http.StatusAccepted, answerAccepted})
	var anything any
	must(t, json.Unmarshal(body, &anything))
	again, err := json.Marshal(anything)
	must(t, err)
	m := signedMessage("issue_comment", "guid-2", body)
	m.signature = sign(secret, again)
	status, _ = w.send(m)
	equal(t, "the signature of what it reads as", status, http.StatusUnauthorized)
	equal(t, "rows", w.count(), 1)
}

func TestReceive_WhatIsNotSignedIsAnsweredWithTheSameWordsWhateverItIs(t *testing.T) {
	w := newWorld(t, nil)
	good := comment("guid-1", 1)
	mac := hmac.New(sha256.New, nil)
	mac.Write(good.body)
	for name, change := range map[string]func(*message){
		"no signature":                   func(m *message) { m.signature = "" },
		"an empty secret":                func(m *message) { m.signature = sign("", m.body) },
		"another secret":                 func(m *message) { m.signature = sign("guess", m.body) },
		"the file as it is, with a line": func(m *message) { m.signature = sign(secret+"\n", m.body) },
		"half a signature":               func(m *message) { m.signature = m.signature[:40] },
		"nothing behind the name":        func(m *message) { m.signature = "sha256=" },
		"another algorithm":              func(m *message) { m.signature = strings.Replace(m.signature, "sha256=", "sha1=", 1) },
		"no algorithm":                   func(m *message) { m.signature = strings.TrimPrefix(m.signature, "sha256=") },
		"another body":                   func(m *message) { m.body = append(m.body, ' ') },
		"an unknown source":              func(m *message) { m.source = "other" },
		"an unknown source, unsigned":    func(m *message) { m.source, m.signature = "other", "" },
		"as a form":                      func(m *message) { m.contentType, m.signature = "application/x-www-form-urlencoded", "" },
		"a ping":                         func(m *message) { m.event, m.signature = eventPing, "" },
	} {
		m := good
		m.body = bytes.Clone(good.body)
		change(&m)
		request := w.request(m)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		text, err := io.ReadAll(response.Body)
		must(t, err)
		response.Body.Close()
		response.Header.Del("Date")
		equal(t, name, []any{response.StatusCode, string(text), response.Header}, []any{http.StatusUnauthorized, answerUnsigned, http.Header{
			"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {fmt.Sprint(len(answerUnsigned))}, "X-Content-Type-Options": {"nosniff"},
		}})
	}
	two := w.request(good)
	two.Header.Add(headerSignature, sign("guess", good.body))
	status, _ := do(t, two)
	equal(t, "two signatures", status, http.StatusUnauthorized)
	equal(t, "rows", w.count(), 0)
	w.receiver.report(t.Context())
	if log := w.log.String(); !strings.Contains(log, `"reason":"unsigned","count":14`) || strings.Contains(log, "the words") || strings.Contains(log, secret) {
		t.Errorf("the log is %s", log)
	}
}

func TestReceive_OnlyWhatIsWantedIsWrittenDown(t *testing.T) {
	w := newWorld(t, nil)
	action := func(event, action string) message {
		body := fmt.Sprintf(`{"action":%q,"issue":{"number":7,"node_id":"I_7"},"comment":{"node_id":"IC_1"},"repository":{"full_name":"octo/widget"}}`, action)
		return signedMessage(event, "guid-"+event+"-"+action, []byte(body))
	}
	form := comment("guid-form", 1)
	form.contentType = "application/x-www-form-urlencoded"
	foreign := signedMessage("issue_comment", "guid-foreign", bytes.Replace(form.body, []byte("WIDGET"), []byte("gadget"), 1))
	for name, tt := range map[string]struct {
		message
		status int
		text   string
	}{
		"a ping":                  {signedMessage(eventPing, "", []byte(`{"zen":"x"}`)), http.StatusOK, "pong"},
		"a form":                  {form, http.StatusUnsupportedMediaType, "application/json"},
		"an unknown event":        {action("star", "created"), http.StatusAccepted, "ignored"},
		"an unknown action":       {action("issue_comment", "pinned"), http.StatusAccepted, "ignored"},
		"no action":               {action("issue_comment", ""), http.StatusAccepted, "ignored"},
		"a check that begins":     {action("check_run", "created"), http.StatusAccepted, "ignored"},
		"a repository not listed": {foreign, http.StatusAccepted, "does not list"},
		"no JSON":                 {signedMessage("issue_comment", "guid-x", []byte(`{"action"`)), http.StatusBadRequest, "payload"},
		"another JSON":            {signedMessage("issue_comment", "guid-y", []byte(`[1]`)), http.StatusBadRequest, "payload"},
		"no guid":                 {signedMessage("issue_comment", "", form.body), http.StatusBadRequest, headerGUID},
		"a guid of another form":  {signedMessage("issue_comment", "a b", form.body), http.StatusBadRequest, headerGUID},
		"a guid without an end":   {signedMessage("issue_comment", strings.Repeat("a", 101), form.body), http.StatusBadRequest, headerGUID},
		"no event":                {signedMessage("", "guid-z", form.body), http.StatusBadRequest, headerEvent},
	} {
		status, text := w.send(tt.message)
		if status != tt.status || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	equal(t, "rows", w.count(), 0)
	status, _ := w.send(action("issue_comment", "deleted"))
	equal(t, "a deletion", status, http.StatusAccepted)
	equal(t, "rows", w.rows(), []string{"guid-issue_comment-deleted issue_comment.deleted octo/widget#7 IC_1 waiting"})
}

func TestReceive_SentAgainItIsKnownAndAnotherMessageOfTheSameCommentIsNot(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct {
		guid, text string
		status     int
	}{{"guid-1", answerAccepted, 202}, {"guid-1", answerKnown, 200}, {"guid-2", answerAccepted, 202}, {"guid-1", answerKnown, 200}} {
		status, text := w.send(comment(tt.guid, 1))
		equal(t, tt.guid, []any{status, text}, []any{tt.status, tt.text})
	}
	equal(t, "rows", w.count(), 2)
}

func TestReceive_OneThatCouldNotBeHandledWaitsAgainOnceItIsSentAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.send(comment("guid-1", 1))
	_, err := w.pool.Exec(t.Context(), `update poller.hooks set state = 'failed', tries = 5, last_error = 'x', received_at = now() - interval '2 days'`)
	must(t, err)
	status, _ := w.send(comment("guid-1", 1))
	equal(t, "answer", status, http.StatusAccepted)
	equal(t, "rows", w.rows(), []string{"guid-1 issue_comment.created octo/widget#7 IC_1 waiting"})
}

func TestReceive_ManyAtOnceAreEachOnceThere(t *testing.T) {
	w := newWorld(t, nil)
	const clients, messages = 24, 40
	var wait sync.WaitGroup
	statuses := make(chan int, clients*messages)
	for c := range clients {
		wait.Go(func() {
			for n := range messages {
				// Each message comes from four clients at about the same time.
				status, _ := w.send(comment(fmt.Sprintf("guid-%d-%d", c/4, n), n))
				statuses <- status
			}
		})
	}
	wait.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	equal(t, "answers", count, map[int]int{http.StatusAccepted: clients / 4 * messages, http.StatusOK: clients * 3 / 4 * messages})
	equal(t, "rows", w.count(), clients/4*messages)
}

// chunked has no length that is told.
type chunked struct{ io.Reader }

func TestReceive_WhatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxBody = 1 << 20 })
	padded := func(size int) message {
		m := comment("guid-1", 1)
		m.body = append(m.body, bytes.Repeat([]byte(" "), size-len(m.body))...)
		m.signature = sign(secret, m.body)
		return m
	}
	status, text := w.send(padded(1<<20 + 1))
	equal(t, "answer", status, http.StatusRequestEntityTooLarge)
	if !strings.Contains(text, "max_body_mib") {
		t.Errorf("no remedy: %s", text)
	}
	unknown := w.request(padded(3 << 20))
	unknown.ContentLength, unknown.Body = -1, io.NopCloser(chunked{bytes.NewReader(padded(3 << 20).body)})
	status, _ = do(t, unknown)
	equal(t, "of a length that is not told", status, http.StatusRequestEntityTooLarge)
	status, _ = w.send(padded(1 << 20))
	equal(t, "the largest", status, http.StatusAccepted)
	// The head is enough to tell: no byte of the body is waited for.
	conn, err := net.Dial("tcp", strings.Split(strings.TrimPrefix(w.url, "http://"), "/")[0])
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /webhooks/gh HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	head := make([]byte, 12)
	_, err = io.ReadFull(conn, head)
	must(t, err)
	equal(t, "head", string(head), "HTTP/1.1 413")
	equal(t, "held", w.receiver.bytes.Load(), int64(0))
}

func TestReceive_ASlowClientIsCutOffAndHoldsUpNobody(t *testing.T) {
	w := newWorld(t, nil)
	address := strings.Split(strings.TrimPrefix(w.url, "http://"), "/")[0]
	var conns []net.Conn
	for range 20 {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "POST /webhooks/gh HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n{")
		conns = append(conns, conn)
	}
	status, _ := w.send(comment("guid-1", 1))
	equal(t, "somebody else", status, http.StatusAccepted)
	for _, conn := range conns {
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err := io.Copy(io.Discard, conn) // ends when the server closes it
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Fatal("a client that sends nothing was not cut off")
		}
	}
	if held := w.receiver.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are held still", held)
	}
}

func TestReceive_ToldToWaitWhileTooMuchComesIn(t *testing.T) {
	w := newWorld(t, nil)
	w.receiver.bytes.Store(maxBytes)
	status, text := w.send(comment("guid-1", 1))
	equal(t, "too many bytes", []any{status, text}, []any{http.StatusServiceUnavailable, answerBusy})
	w.receiver.bytes.Store(0)
	w.receiver.requests.Store(maxRequests)
	status, _ = w.send(comment("guid-1", 1))
	equal(t, "too many requests", status, http.StatusServiceUnavailable)
	w.receiver.requests.Store(0)
	status, _ = w.send(comment("guid-1", 1))
	equal(t, "later", status, http.StatusAccepted)
}

// dying is an intake of a process that is killed just after the commit.
type dying struct {
	Intake
	died bool
}

func (d *dying) Put(ctx context.Context, a hook.Arrival) (bool, error) {
	known, err := d.Intake.Put(ctx, a)
	if d.died || err != nil {
		return known, err
	}
	d.died = true
	panic(http.ErrAbortHandler) // the connection ends without an answer
}

func TestReceive_KilledBetweenTheCommitAndTheAnswerItIsKnownOnceItIsSentAgain(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Intake = &dying{Intake: c.Intake} })
	if _, err := http.DefaultClient.Do(w.request(comment("guid-1", 1))); err == nil {
		t.Fatal("it was answered")
	}
	w.stop()
	w.serve(nil)
	status, text := w.send(comment("guid-1", 1))
	equal(t, "sent again", []any{status, text}, []any{http.StatusOK, answerKnown})
	equal(t, "rows", w.count(), 1)
}

// silent is an inbox that does not answer.
type silent struct{ hook.Inbox }

func (silent) Put(context.Context, []hook.Arrival) ([]bool, error) {
	return nil, fault.New(fault.Unavailable, fault.ReasonDatabase, "no answer")
}

func TestReceive_ADatabaseThatDoesNotAnswerIsNoSuccess(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Intake = hook.NewIntake(silent{}, nil) })
	status, text := w.send(comment("guid-1", 1))
	equal(t, "answer", []any{status, text}, []any{http.StatusServiceUnavailable, answerSilent})
	// And with a real one, that is gone in the middle of it.
	w = newWorld(t, nil)
	tx, err := w.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `lock table poller.hooks`)
	must(t, err)
	answered := make(chan int, 1)
	go func() {
		status, _ := w.send(comment("guid-1", 1))
		answered <- status
	}()
	killed := 0
	for deadline := time.Now().Add(20 * time.Second); killed == 0 && time.Now().Before(deadline); {
		must(t, tx.QueryRow(t.Context(), `
select count(pg_terminate_backend(pid)) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`).Scan(&killed))
	}
	equal(t, "answer", <-answered, http.StatusServiceUnavailable)
	must(t, tx.Rollback(t.Context()))
	equal(t, "rows", w.count(), 0)
}

func TestSecrets_AreReplacedWithoutARestartAndWithoutAMomentInWhichNoneCounts(t *testing.T) {
	w := newWorld(t, nil)
	try := func(key string) int {
		t.Helper()
		m := comment("guid-"+sign(key, nil)[7:20], 1)
		m.signature = sign(key, m.body)
		status, _ := w.send(m)
		return status
	}
	equal(t, "first", []int{try(secret), try("the next one")}, []int{202, 401})
	w.write("the next one\n" + secret + "\n")
	equal(t, "both", []int{try(secret), try("the next one")}, []int{200, 202})
	w.write("  the next one  \n\n")
	equal(t, "second", []int{try(secret), try("the next one")}, []int{401, 200})
	for name, spoil := range map[string]func(){
		"emptied": func() { w.write("\n") }, "gone": func() { must(t, os.Remove(w.secretFile)) },
		"readable by everybody": func() { w.write("known to all\n"); must(t, os.Chmod(w.secretFile, 0o644)) },
	} {
		spoil()
		equal(t, name, []int{try(""), try("\n"), try("known to all"), try("the next one")}, []int{401, 401, 401, 200})
	}
	if n := strings.Count(w.log.String(), "cannot be read"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	w.write("the third one\n")
	equal(t, "third", []int{try("the next one"), try("the third one")}, []int{401, 202})
}

func TestSecrets_WithoutOneNothingStarts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "blank": " \n\t\n", "missing": "-"} {
		path := filepath.Join(dir, name)
		if text != "-" {
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
		source := settings.Source{WebhookSecretFile: path}
		if s, err := NewSecrets(path, source.WebhookSecrets); err == nil || s != nil {
			t.Errorf("%s: %v", name, s)
		}
	}
	if signed(nil, sign("", nil), nil) {
		t.Error("without a secret, the signature of none counts")
	}
}
