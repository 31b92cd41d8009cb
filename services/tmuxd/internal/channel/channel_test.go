package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// opened returns channels in a directory with a short path.
func opened(t *testing.T) *Sockets {
	t.Helper()
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served has a handler serve where an agent would.
func served(t *testing.T, s *Sockets, stamp string, h http.HandlerFunc) {
	t.Helper()
	listener, err := net.Listen("unix", s.Socket(stamp))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func TestNew_RefusesADirectoryThatOthersMayEnter(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir); err == nil {
		t.Error("it was taken")
	}
}

func TestSocket_SaysWhatItIsAskedAndReadsWhatIsAnswered(t *testing.T) {
	s := opened(t)
	var got string
	answer := ""
	served(t, s, "s1", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + string(body)
		_, _ = io.WriteString(w, answer)
	})
	line := host.Line{Kind: settings.ChannelSocket, Stamp: "s1", Conversation: "c&1"}
	for text, want := range map[string]host.Standing{
		`{"state":"absent","conversation":""}`:                                       {},
		`{"state":"absent","conversation":"c","busy":true,"dialog":true,"more":[1]}`: {Conversation: "c", Busy: true, Dialog: true},
		`{"state":"queued","conversation":"c"}`:                                      {Queued: true, Conversation: "c"},
		`{"state":"taken","conversation":"c"}`:                                       {Taken: true, Conversation: "c"},
	} {
		answer = text
		if is, err := s.Ask(t.Context(), line, "delivery-0001"); err != nil || is != want {
			t.Errorf("%s: %+v, %v", text, is, err)
		}
		if got != "GET /v1/deliveries/delivery-0001?conversation=c%261 " {
			t.Error(got)
		}
		if is, err := s.Hand(t.Context(), line, host.Offer{ID: "delivery-0001", Text: "a \"b\"", Busy: true}); err != nil || is != want {
			t.Errorf("%s: %+v, %v", text, is, err)
		}
		if got != `PUT /v1/deliveries/delivery-0001 {"text":"a \"b\"","conversation":"c\u00261","when_busy":"deliver"}` {
			t.Error(got)
		}
	}
	answer = "no"
	if _, err := s.Ask(t.Context(), line, "delivery-0001"); !errors.Is(err, host.ErrNobodyListens) {
		t.Errorf("an agent that cannot say: %v", err)
	}
	for _, text := range []string{"", "no", "{}", `{"state":"gone"}`, `{"state":7}`, strings.Repeat(" ", maxAnswer) + `{"state":"taken"}`} {
		answer = text
		if is, err := s.Hand(t.Context(), line, host.Offer{ID: "delivery-0001", Text: "x"}); err == nil || errors.Is(err, host.ErrNobodyListens) {
			t.Errorf("%.20q: %+v, %v", text, is, err)
		}
	}
}

// What proves that nothing was handed over is told apart from what proves nothing.
func TestSocket_CertainAndUncertainErrors(t *testing.T) {
	s := opened(t)
	stays := make(chan struct{})
	t.Cleanup(func() { close(stays) })
	for stamp, answer := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
		"fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"breaks":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"waits":   func(http.ResponseWriter, *http.Request) { <-stays },
	} {
		served(t, s, stamp, answer)
	}
	if err := os.WriteFile(s.Socket("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for stamp, certain := range map[string]bool{"absent": true, "file": true, "refuses": true, "fails": false, "breaks": false, "waits": false} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := s.Hand(ctx, host.Line{Kind: settings.ChannelSocket, Stamp: stamp}, host.Offer{ID: "delivery-0001", Text: "x"})
		cancel()
		if err == nil || errors.Is(err, host.ErrNobodyListens) != certain {
			t.Errorf("%s: %v", stamp, err)
		}
	}
	if _, err := s.Ask(t.Context(), host.Line{Kind: settings.ChannelPaste, Stamp: "waits"}, "delivery-0001"); !errors.Is(err, host.ErrNobodyListens) {
		t.Errorf("a harness without a channel: %v", err)
	}
}

func TestClear_RemovesALinkWithWhatItLeadsTo(t *testing.T) {
	s := opened(t)
	elsewhere := filepath.Join(filepath.Dir(s.dir), "real")
	listener, err := net.Listen("unix", elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	kept := filepath.Join(filepath.Dir(s.dir), "file")
	if err := errors.Join(os.Symlink(elsewhere, s.Socket("s1")), os.WriteFile(kept, nil, 0o600), os.Symlink(kept, s.Socket("s2"))); err != nil {
		t.Fatal(err)
	}
	s.Clear("s1")
	s.Clear("s2")
	s.Clear("")
	for path, want := range map[string]bool{elsewhere: false, s.Socket("s1"): false, s.Socket("s2"): false, kept: true, s.dir: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
