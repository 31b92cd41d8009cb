package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
)

func TestRun_PrintsItsURLFirstAndAppendsToTheLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, text := range []string{"one", "two"} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		reader, writer := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- run(ctx, []string{"-log", log}, writer, io.Discard) }()
		line, err := bufio.NewReader(reader).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
			t.Fatalf("the first line is %q, %v", line, err)
		}
		response, err := http.Post(strings.TrimSpace(line)+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}]}`))
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("it answered %v, %v", response, err)
		}
		response.Body.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("run ended with %v", err)
		}
	}
	data, err := os.ReadFile(log)
	if err != nil || strings.Count(string(data), "\n") != 2 || !strings.Contains(string(data), `"text":"one"`) ||
		!strings.Contains(string(data), `"text":"two"`) {
		t.Errorf("the log is %q, %v", data, err)
	}
}

func TestRun_RefusesWhatItShould(t *testing.T) {
	for _, args := range [][]string{{"-listen", "0.0.0.0:0"}, {"x"}, {"-log", t.TempDir()}, {"-listen", "7777"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); fault.KindOf(err) == fault.Internal || err == nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
