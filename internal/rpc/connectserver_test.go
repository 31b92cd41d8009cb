package rpc_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/rpc/rpctest"
)

func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func TestGuard_PagesOfOtherOriginsCannotReachTheServer(t *testing.T) {
	addr := rpctest.Serve(t, builders(t)["connect"](rpc.Options{AllowedHosts: []string{"muxpost.internal"}}, service{ask: echo}))
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, tt := range []struct {
		name, method, host, origin, site string
		want                             int
	}{
		{"a script", "POST", "127.0.0.1:" + port, "", "", 200},
		{"a script by name", "POST", "localhost:" + port, "", "", 200},
		{"a script without a port", "POST", "localhost", "", "", 200},
		{"version 6", "POST", "[::1]:" + port, "", "", 200},
		{"a name below localhost", "POST", "mux.localhost:" + port, "", "", 200},
		{"an allowed name", "POST", "muxpost.internal", "", "", 200},
		{"our own page", "POST", "localhost:" + port, "http://localhost:" + port, "same-origin", 200},
		{"another page", "POST", "localhost:" + port, "http://evil.example", "cross-site", 403},
		{"another page in an old browser", "POST", "localhost:" + port, "http://evil.example", "", 403},
		{"another server of this machine", "POST", "localhost:" + port, "http://localhost:1", "same-site", 403},
		{"a name made to point here", "POST", "evil.example:" + port, "http://evil.example:" + port, "same-origin", 403},
		{"reading by a name made to point here", "GET", "evil.example:" + port, "", "same-origin", 403},
		{"a loopback name in front of another", "POST", "127.0.0.1.evil.example", "", "", 403},
		{"another address", "POST", "192.0.2.1", "", "", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, body := methodAsk, `"x"`
			if tt.method == "GET" {
				path, body = "/healthz", ""
			}
			request, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+addr+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Host = tt.host
			request.Header.Set("Content-Type", "application/json")
			if tt.origin != "" {
				request.Header.Set("Origin", tt.origin)
			}
			if tt.site != "" {
				request.Header.Set("Sec-Fetch-Site", tt.site)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close() //nolint:errcheck // It was read.
			text, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != tt.want {
				t.Errorf("got %d %s, want %d", answer.StatusCode, text, tt.want)
			}
		})
	}
}

func TestConnectServer_AClientThatDoesNotReadHoldsUpNoStop(t *testing.T) {
	var log logbook
	server, err := rpc.NewConnectServer(rpc.Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{}, 1000)
	server.RPC().Register(connect.Method{
		Spec: connect.Spec{Procedure: methodFollow, StreamType: connect.StreamTypeServer},
		Handler: func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			if err := stream.Receive(new(wrapperspb.StringValue)); err != nil {
				return err
			}
			for {
				if err := stream.Send(wrapperspb.String(strings.Repeat("x", 1<<16))); err != nil {
					return err
				}
				full <- struct{}{}
			}
		},
	})
	addr, stop := rpctest.ServeUntil(t, server)
	follow(t, t.Context(), rpctest.Dial(t, addr, rpc.DialOptions{}))
	<-full
	stop()
	if slices.ContainsFunc(log.records(t), func(r map[string]any) bool { return r["msg"] == "calls were cut off by the stop" }) {
		t.Errorf("the stop waited for the client: %v", log.records(t))
	}
}

func TestConnectServer_AnswersJSONAndHealthzOverHTTP(t *testing.T) {
	server := builders(t)["connect"](rpc.Options{}, service{ask: echo})
	url := "http://" + rpctest.Serve(t, server)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close() //nolint:errcheck // It was read.
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := get("POST", "/grpc.health.v1.Health/Check", "{}"); code != 200 || text != `{"status":"SERVING"}` {
		t.Errorf("health: %d %s", code, text)
	}
	code, text := get("POST", "/grpc.health.v1.Health/Check", `{"service":"x"}`)
	if code != 404 || !strings.Contains(text, `"code":"not_found"`) {
		t.Errorf("health of an unknown service: %d %s", code, text)
	}
	if code, text := get("POST", methodAsk, `"hello"`); code != 200 || text != `"hello"` {
		t.Errorf("ask: %d %s", code, text)
	}
	if code, text := get("GET", "/healthz", ""); code != 200 || text != "ok\n" {
		t.Errorf("healthz: %d %s", code, text)
	}
	server.Health().Set("", false)
	if code, text := get("GET", "/healthz", ""); code != 503 || text != "not serving\n" {
		t.Errorf("healthz: %d %s", code, text)
	}
}
