package e2e

import (
	"bufio"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/test/stack"
)

// written is what somebody may write into an issue or a message.
const written = "red <script>alert(1)</script> \u202e evil"

// visitor is a browser at a console that runs.
type visitor struct {
	*world
	cmd  *exec.Cmd
	out  *bufio.Reader
	http http.Client
	// base begins every address, and token lets in.
	base, token string
}

// visit runs muxpost console and opens its first page.
func (w *world) visit() *visitor {
	w.t.Helper()
	v := &visitor{world: w, cmd: w.Command(w.ctx, "console", "--listen", "127.0.0.1:0")}
	pipe, err := v.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	v.cmd.Stderr = v.cmd.Stdout
	if err := v.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	v.out = bufio.NewReader(pipe)
	line, _ := v.out.ReadString('\n')
	m := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/\?token=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		w.t.Fatalf("it does not say where it is: %s", line)
	}
	v.base, v.token = m[1], m[2]
	v.http.Jar, _ = cookiejar.New(nil)
	v.page("/?token=" + v.token)
	return v
}

// ends interrupts the console, which has to end in good order and to have told its token once.
func (v *visitor) ends() {
	v.t.Helper()
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		v.t.Fatal(err)
	}
	rest, _ := io.ReadAll(v.out)
	if err := v.cmd.Wait(); err != nil || strings.Contains(string(rest), v.token) {
		v.t.Errorf("the console ended with %v, and said\n%s", err, rest)
	}
	logs, _ := filepath.Glob(filepath.Join(v.Dir, "log", "*"))
	for _, log := range logs {
		if data, _ := os.ReadFile(log); strings.Contains(string(data), v.token) {
			v.t.Errorf("%s has the token", log)
		}
	}
}

// answer reads a page.
func (v *visitor) answer(res *http.Response, err error) string {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		v.t.Errorf("%s: %d, %v\n%s", res.Request.URL, res.StatusCode, err, data)
	}
	return string(data)
}

func (v *visitor) page(path string) string {
	v.t.Helper()
	return v.answer(v.http.Get(v.base + path))
}

// crawl follows every link from the first page on.
func (v *visitor) crawl() map[string]string {
	v.t.Helper()
	pages, next := map[string]string{}, []string{"/"}
	for len(next) > 0 {
		path := next[0]
		if next = next[1:]; pages[path] != "" {
			continue
		}
		pages[path] = v.page(path)
		for _, m := range regexp.MustCompile(`(?:href|src)="(/[^"]*)"`).FindAllStringSubmatch(pages[path], -1) {
			next = append(next, html.UnescapeString(m[1]))
		}
	}
	return pages
}

func TestConsole_ShowsEveryPageAndSendsAMessageOnce(t *testing.T) {
	t.Parallel()
	seed := issue()
	seed.Repos[0].Issues[0].Title = written
	w := start(t, seed, nil)
	opened, delivery := w.delivered(0)
	v := w.visit()

	at := "/item?of=" + url.QueryEscape(item)
	w.until("its screen is shown", func() bool { return strings.Contains(v.page(at), "[muxpost "+opened.GetDeliveryId()+"]") })
	key := regexp.MustCompile(`name="key" value="([^"]+)"`).FindStringSubmatch(v.page(at))
	if key == nil {
		t.Fatal("the page has no form for a message")
	}
	form := url.Values{"item": {item}, "key": {key[1]}, "text": {"please look: " + written}}
	var clicks sync.WaitGroup
	pages := make([]string, 2)
	for i := range pages {
		clicks.Go(func() { pages[i] = v.answer(v.http.PostForm(v.base+"/send", form)) })
	}
	clicks.Wait()
	if both := pages[0] + pages[1]; !strings.Contains(both, "sent to "+item+" as delivery") || !strings.Contains(both, "this was sent before") {
		t.Errorf("two clicks:\n%s", both)
	}
	sent, _ := w.delivered(1)
	if rows, err := w.Events(w.ctx, item); err != nil || len(rows) != 2 {
		t.Errorf("the ledger has %v, %v", rows, err)
	}
	w.took(delivery.GetConversationId(), opened.GetDeliveryId(), sent.GetDeliveryId())

	w.comment(stack.Stranger, "this does not steer anybody: "+written)
	if _, err := w.WaitEvent(w.ctx, item, 2); err != nil {
		t.Fatal(err)
	}
	all := v.crawl()
	for path, page := range all {
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "\u202e") || strings.Contains(page, "\x1b") {
			t.Errorf("%s shows what was written as it is:\n%s", path, page)
		}
	}
	for _, want := range []string{at, "/deliveries/" + sent.GetDeliveryId(), "/ledger?state=delivered", "/ledger?item=" + url.QueryEscape(item), "/hosts", "/sources", "/teams"} {
		if all[want] == "" {
			t.Errorf("nothing leads to %s", want)
		}
	}
	if page := all["/deliveries/"+opened.GetDeliveryId()]; !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") || !strings.Contains(page, "deliver.Deliver") {
		t.Errorf("the page of a delivery has not its title and its trace:\n%s", page)
	}

	if err := syscall.Kill(w.pid("dispatcher"), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	w.until("the overview tells that the dispatcher is away", func() bool {
		page := v.page("/")
		return strings.Contains(page, "Away:</strong> dispatcher") && strings.Contains(page, "What to do: ") && strings.Contains(page, "2 <span class=\"good\">delivered</span>")
	})
	if page := v.page("/ledger"); !strings.Contains(page, sent.GetDeliveryId()) {
		t.Errorf("the ledger is not shown:\n%s", page)
	}
	if page := v.page("/sessions"); !strings.Contains(page, "Not known:") {
		t.Errorf("the sessions:\n%s", page)
	}
	v.ends()
}
