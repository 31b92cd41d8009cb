package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

func TestRun_ServesTheSeedAndStopsWithARequestHanging(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seed.json")
	if err := os.WriteFile(file, []byte(`{"repos":[{"owner":"acme","name":"widgets"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"--seed", file}, writer, io.Discard) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	base, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "fakegithub listening on ")
	if err != nil || !ok || !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	if body := get(t, base+"/repos/acme/widgets"); !strings.Contains(body, `"full_name":"acme/widgets"`) {
		t.Fatalf("the repository is %s", body)
	}
	posted, err := http.Post(base+"/_fake/faults", "application/json", strings.NewReader(`{"kind":"hang"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := posted.Body.Close(); err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := http.Get(base + "/repos/acme/widgets")
		cut <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(get(t, base+"/_fake/counts"), `"faulted":1`) {
		if time.Now().After(deadline) {
			t.Fatal("the hanging request did not arrive")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("run ended with %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the hanging request got an answer")
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRun_RefusesWhatItShould(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"repo":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want fault.Kind
	}{
		{[]string{"--listen", "0.0.0.0:0"}, fault.Denied},
		{[]string{"--listen", ":0"}, fault.Denied},
		{[]string{"--listen", "192.0.2.1:0"}, fault.Denied},
		{[]string{"--listen", "example.com:0"}, fault.Denied},
		{[]string{"--listen", "127.0.0.1"}, fault.Invalid},
		{[]string{"--seed", bad}, fault.Invalid},
		{[]string{"--seed", bad + ".missing"}, fault.Invalid},
		{[]string{"extra"}, fault.Invalid},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tc.args, &out, io.Discard)
		if err == nil || fault.KindOf(err) != tc.want || out.Len() != 0 {
			t.Errorf("%v: got %v and %q, want a fault of kind %v", tc.args, err, out.String(), tc.want)
		}
	}
}

func TestRun_TellsHooksWhereItIs(t *testing.T) {
	payloads := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		payloads <- string(body)
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "seed.json")
	seed := fmt.Sprintf(`{"repos":[{"owner":"acme","name":"widgets","hooks":[{"url":%q}]}]}`, receiver.URL)
	if err := os.WriteFile(file, []byte(seed), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"--seed", file}, writer, io.Discard) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	base := strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "fakegithub listening on ")
	if ping := <-payloads; err != nil || !strings.Contains(ping, base+"/repos/acme/widgets") {
		t.Errorf("the ping is %s, without %s (%v)", ping, base, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("run ended with %v", err)
	}
}
