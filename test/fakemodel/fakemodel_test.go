package fakemodel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muxpost.dev/muxpost/core/fault"
)

const within = 30 * time.Second

// start is a server for one test, and the log that it keeps.
func start(t *testing.T) (*Server, *logged) {
	t.Helper()
	log := &logged{}
	s, err := Start(Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) messages(t *testing.T) []Message {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Message
	for line := range strings.Lines(l.b.String()) {
		var m Message
		if err := json.Unmarshal([]byte(line), &m); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("the log has the line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// post asks as an agent does that calls its conversation by an id.
func post(t *testing.T, s *Server, path, conversation, ask string) (int, string) {
	t.Helper()
	status, answer, err := tryPost(t.Context(), s, path, conversation, ask)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

func tryPost(ctx context.Context, s *Server, path, conversation, ask string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+path, strings.NewReader(ask))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Thread-Id", conversation)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), errors.Join(err, response.Body.Close())
}

const (
	codexTools = `[{"type":"function","name":"write_stdin"},{"type":"function","name":"exec_command","parameters":{"properties":{
		"cmd":{"type":"string"},"justification":{"type":"string"},
		"sandbox_permissions":{"type":"string","enum":["use_default","require_escalated"]}}}},
		{"type":"namespace","name":"agents","tools":[]},{"type":"web_search"}]`
	opencodeTools = `[{"type":"function","function":{"name":"bash","parameters":{"properties":{
		"command":{"type":"string"},"description":{"type":"string"},"timeout":{"minimum":0,"type":"integer"}}}}}]`
)

func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// codex asks as codex does for one text of the user.
func codex(t *testing.T, s *Server, text string) (int, string) {
	t.Helper()
	return post(t, s, "/v1/responses", "", `{"model":"fake-1","stream":true,"tools":`+codexTools+`,"input":[
		{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be good. zz:len=1"}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":`+quote(text)+`}]}]}`)
}

// opencode asks as opencode does for one text of the user.
func opencode(t *testing.T, s *Server, text string, stream bool) (int, string) {
	t.Helper()
	return post(t, s, "/v1/chat/completions", "", fmt.Sprintf(
		`{"model":"fake-1","stream":%v,"stream_options":{"include_usage":true},"tools":%s,"messages":[
		{"role":"system","content":"Be good."},{"role":"user","content":%s}]}`, stream, opencodeTools, quote(text)))
}

// event is one server-sent event, as a client reads it.
type event struct {
	name string
	data map[string]any
}

func events(t *testing.T, stream string) []event {
	t.Helper()
	var out []event
	var name string
	lines := bufio.NewScanner(strings.NewReader(stream))
	lines.Buffer(nil, len(stream)+1)
	for lines.Scan() {
		line := lines.Text()
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
			e := event{name: name}
			if err := json.Unmarshal([]byte(data), &e.data); err != nil {
				t.Fatalf("an event is %q: %v", data, err)
			}
			out = append(out, e)
		}
		if line == "" {
			name = ""
		}
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
	}
	return out
}

// at walks into decoded JSON: a string is a key, an int an index.
func at(value any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[p]
		case int:
			l, _ := value.([]any)
			if p >= len(l) {
				return nil
			}
			value = l[p]
		}
	}
	return value
}

const threeWords = "The fake model"

func TestResponses_StreamInTheOrderThatCodexReads(t *testing.T) {
	s, _ := start(t)
	status, stream := codex(t, s, "hello zz:len=3")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, stream)
	}
	var names []string
	var deltas strings.Builder
	all := events(t, stream)
	for i, e := range all {
		names = append(names, e.name)
		if e.data["type"] != e.name || e.data["sequence_number"] != float64(i) {
			t.Errorf("event %d is %s, and says of itself %v, %v", i, e.name, e.data["type"], e.data["sequence_number"])
		}
		if e.name == "response.output_text.delta" {
			deltas.WriteString(e.data["delta"].(string))
		}
	}
	want := []string{
		"response.created", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.delta", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	item, end := all[len(all)-2].data["item"], all[len(all)-1].data["response"]
	for _, text := range []any{deltas.String(), at(item, "content", 0, "text"), at(end, "output", 0, "content", 0, "text")} {
		if text != threeWords {
			t.Errorf("the text is %q", text)
		}
	}
	if at(end, "status") != "completed" || at(end, "usage", "total_tokens") == nil || at(end, "id") != at(all[0].data, "response", "id") {
		t.Errorf("the end is %v", end)
	}
	if status, answer := post(t, s, "/v1/responses", "", `{"input":"x"}`); status != http.StatusBadRequest {
		t.Errorf("without a stream: %d %s", status, answer)
	}
}

func TestChat_StreamsWordsAndAnswersWhole(t *testing.T) {
	s, _ := start(t)
	status, stream := opencode(t, s, "hello zz:len=3", true)
	if status != http.StatusOK || !strings.HasSuffix(stream, "\n\ndata: [DONE]\n\n") {
		t.Fatalf("%d %s", status, stream)
	}
	all := events(t, stream)
	var text strings.Builder
	for _, e := range all {
		if e.name != "" || e.data["object"] != "chat.completion.chunk" || e.data["id"] != all[0].data["id"] {
			t.Errorf("a chunk is %v", e)
		}
		word, _ := at(e.data, "choices", 0, "delta", "content").(string)
		text.WriteString(word)
	}
	if len(all) != 6 || at(all[0].data, "choices", 0, "delta", "role") != "assistant" || text.String() != threeWords ||
		at(all[4].data, "choices", 0, "finish_reason") != "stop" || at(all[5].data, "usage", "total_tokens") == nil {
		t.Errorf("the stream is %s", stream)
	}
	status, whole := opencode(t, s, "hello zz:len=3", false)
	var value any
	if err := json.Unmarshal([]byte(whole), &value); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, whole, err)
	}
	if at(value, "choices", 0, "message", "content") != threeWords || at(value, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("the whole is %s", whole)
	}
}

func TestTool_CallsTheShellAsItsSchemaWantsIt(t *testing.T) {
	s, _ := start(t)
	const text = "please zz:len=2\nzz:tool=touch \"a b\" \nzz:len=5"
	_, stream := codex(t, s, text)
	all := events(t, stream)
	end := all[len(all)-1].data
	want := `{"cmd":"touch \"a b\"","justification":"the prompt asked for it","sandbox_permissions":"require_escalated"}`
	item := at(end, "response", "output", 0)
	if at(item, "type") != "function_call" || at(item, "name") != "exec_command" || at(item, "arguments") != want || at(item, "call_id") == nil {
		t.Errorf("codex is told %v", item)
	}
	_, stream = opencode(t, s, text, true)
	all = events(t, stream)
	want = `{"command":"touch \"a b\"","description":"Does what the prompt asked for"}`
	c := at(all[1].data, "choices", 0, "delta", "tool_calls", 0)
	if at(c, "function", "name") != "bash" || at(c, "function", "arguments") != want || at(c, "index") != 0.0 || at(c, "id") == nil ||
		at(all[2].data, "choices", 0, "finish_reason") != "tool_calls" {
		t.Errorf("opencode is told %s", stream)
	}
	_, whole := opencode(t, s, text, false)
	if !strings.Contains(whole, `"finish_reason":"tool_calls"`) || !strings.Contains(whole, quote(want)) {
		t.Errorf("in one piece it is told %s", whole)
	}
	for schema, want := range map[string]string{
		`{"name":"shell","parameters":{"properties":{"command":{"type":"array"}}}}`:                                 `{"command":["sh","-c","ls"]}`,
		`{"name":"run_shell_command","parameters":{"properties":{"command":{"type":"string"},"is_background":{}}}}`: `{"command":"ls","is_background":false}`,
	} {
		_, stream := post(t, s, "/v1/responses", "", `{"stream":true,"input":"zz:tool=ls","tools":[`+schema+`]}`)
		all := events(t, stream)
		if got := at(all[len(all)-1].data, "response", "output", 0, "arguments"); got != want {
			t.Errorf("%s is called with %v", schema, got)
		}
	}
	status, answer := post(t, s, "/v1/responses", "", `{"stream":true,"input":"zz:tool=ls","tools":[{"name":"fly"}]}`)
	if status != http.StatusBadRequest {
		t.Errorf("without a shell: %d %s", status, answer)
	}
}

func TestDirectives_TakeTheirTime(t *testing.T) {
	s, _ := start(t)
	for text, ask := range map[string]func(text string){
		"zz:dur=0.2":            func(text string) { codex(t, s, text) },
		"zz:hang=0.2":           func(text string) { codex(t, s, text) },
		"zz:dur=0.2 zz:tool=ls": func(text string) { codex(t, s, text) },
		"zz:dur=0.2 zz:len=3":   func(text string) { opencode(t, s, text, true) },
		"in one piece zz:dur=0.2": func(text string) {
			opencode(t, s, text, false)
		},
	} {
		began := time.Now()
		if ask(text); time.Since(began) < 200*time.Millisecond {
			t.Errorf("%s took %v", text, time.Since(began))
		}
	}
}

func TestDirectives_MakeErrors(t *testing.T) {
	s, _ := start(t)
	for text, want := range map[string]int{
		"a\tzz:http=401\u00a0b": 401, "zz:http=500": 500, "zz:http=200": 400, "zz:http=": 400, "zz:dur=x": 400, "zz:dur=-1": 400, "zz:len=0": 400,
		"zz:fly=1": 400, "zz:dur=1e9": 400, "zz:len=NaN": 400, "zz:dur=NaN": 400, "zz:hang=1e300": 400, "fuzz:len=x": 200, "zz": 200,
	} {
		for _, ask := range []func() (int, string){
			func() (int, string) { return codex(t, s, text) }, func() (int, string) { return opencode(t, s, text, true) },
		} {
			status, answer := ask()
			if status != want || status != http.StatusOK && !strings.Contains(answer, `{"error":{"code":null,"message":"`) {
				t.Errorf("%s: %d %s", text, status, answer)
			}
		}
	}
}

func TestRecord_KeepsWhatIsNewerThanTheModelsWords(t *testing.T) {
	s, log := start(t)
	const first, second = "first\r\n\t\"ä\"\n", "second"
	ask := func(items ...string) {
		t.Helper()
		status, answer := post(t, s, "/v1/responses", "thread-1", `{"stream":true,"tools":`+codexTools+`,"input":[`+strings.Join(items, ",")+`]}`)
		if status != http.StatusOK || !strings.Contains(answer, threeWords[:3]) {
			t.Fatalf("%d %s", status, answer)
		}
	}
	say := func(role, text string) string {
		return `{"type":"message","role":"` + role + `","content":[{"type":"input_text","text":` + quote(text) + `}]}`
	}
	context := say("user", "<environment_context>\n<cwd>/</cwd>")
	ask(say("developer", "x"), context, say("user", first))
	ask(context, say("user", first), say("user", second))
	ask(context, say("user", first), say("user", second), say("assistant", "ok"), say("user", second))
	ask(say("user", first), `{"type":"reasoning"}`, `{"type":"function_call","name":"shell"}`,
		`{"type":"function_call_output","output":"done zz:http=401"}`)
	post(t, s, "/v1/responses", "thread-2", `{"stream":true,"tools":[],"input":[`+say("user", "a title for: zz:http=401")+`]}`)
	post(t, s, "/v1/chat/completions", "", `{"tools":`+opencodeTools+`,"messages":[{"role":"user","content":"old"},{"role":"assistant","content":null},
		{"role":"tool","content":"result"},{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]}`)
	want := []Message{
		{Request: 1, API: "responses", Conversation: "thread-1", Kind: KindUser, Text: first},
		{Request: 2, API: "responses", Conversation: "thread-1", Kind: KindUser, Text: first, Again: true},
		{Request: 2, API: "responses", Conversation: "thread-1", Kind: KindUser, Text: second},
		{Request: 3, API: "responses", Conversation: "thread-1", Kind: KindUser, Text: second},
		{Request: 4, API: "responses", Conversation: "thread-1", Kind: KindTool, Text: "done zz:http=401"},
		{Request: 5, API: "responses", Conversation: "thread-2", Kind: KindOwn, Text: "a title for: zz:http=401"},
		{Request: 6, API: "chat", Kind: KindTool, Text: "result"},
		{Request: 6, API: "chat", Kind: KindUser, Text: "one"},
		{Request: 6, API: "chat", Kind: KindUser, Text: "two"},
	}
	for i := range want {
		want[i].Seq, want[i].Bytes, want[i].SHA256 = i+1, len(want[i].Text), fmt.Sprintf("%x", sha256.Sum256([]byte(want[i].Text)))
	}
	got := s.Received()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Message{}, "Time")); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(got, func(a, b Message) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("the times are not in order: %v", got)
	}
	if diff := cmp.Diff(got, log.messages(t)); diff != "" {
		t.Errorf("the log (-received +log):\n%s", diff)
	}
	var prompts []string
	for _, m := range Prompts(got) {
		prompts = append(prompts, m.Text)
	}
	if diff := cmp.Diff([]string{first, second, second, "one", "two"}, prompts); diff != "" {
		t.Errorf("prompts (-want +got):\n%s", diff)
	}
}

func TestWait_EndsWhenItArrivesAndSaysWhatWasThere(t *testing.T) {
	s, _ := start(t)
	codex(t, s, "early")
	has := func(text string) func([]Message) bool {
		return func(all []Message) bool {
			return slices.ContainsFunc(all, func(m Message) bool { return m.Text == text })
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(ctx, has("late")) }()
	codex(t, s, "late")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Wait(gone, has("never")); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `[user "early", user "late"]`) {
		t.Errorf("in vain: %v", err)
	}
}

func TestClose_CutsTheAnswersThatAreUnderWay(t *testing.T) {
	for _, directive := range []string{"zz:hang=3000", "zz:dur=3000"} {
		s, err := Start(Config{})
		if err != nil {
			t.Fatal(err)
		}
		cut := make(chan error, 1)
		go func() {
			_, _, err := tryPost(t.Context(), s, "/v1/responses", "", `{"stream":true,"input":"`+directive+`","tools":`+codexTools+`}`)
			cut <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		if err := s.Wait(ctx, func(all []Message) bool { return len(all) == 1 }); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", directive, err)
		}
		if err := <-cut; err == nil {
			t.Errorf("%s: the answer looks whole", directive)
		}
	}
}

func TestServer_ListsItsModelAndRefusesWhatItCannotRead(t *testing.T) {
	s, _ := start(t)
	response, err := http.Get(s.URL() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	models, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || !strings.Contains(string(models), `"id":"fake-1"`) {
		t.Errorf("the models are %s: %v", models, err)
	}
	for path, want := range map[string]int{"/v1/responses": 400, "/v1/chat/completions": 400, "/v1/embeddings": 404} {
		if status, answer := post(t, s, path, "", "{"); status != want {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	if got := s.Received(); len(got) != 0 {
		t.Errorf("received %v", got)
	}
	for _, address := range []string{"0.0.0.0:0", "example.com:80", ":0"} {
		if _, err := Start(Config{Listen: address}); fault.ReasonOf(err) != fault.ReasonNotLoopback {
			t.Errorf("on %s: %v", address, err)
		}
	}
}

func TestHomes_AreNeverWrittenTwice(t *testing.T) {
	for name, write := range map[string]func(dir string) error{
		"config.toml":   func(dir string) error { return CodexHome(dir, "http://127.0.0.1:1", "/a \"b\"") },
		"opencode.json": func(dir string) error { return OpencodeConfig(dir, "http://127.0.0.1:1") },
	} {
		dir := filepath.Join(t.TempDir(), "new", "dir")
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(data), `"http://127.0.0.1:1/v1"`) {
			t.Errorf("%s is %s: %v", name, data, err)
		}
		if name == "config.toml" && !strings.Contains(string(data), `[projects."/a \"b\""]`) {
			t.Errorf("%s is %s", name, data)
		}
		if err := write(dir); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s again: %v", name, err)
		}
	}
}
