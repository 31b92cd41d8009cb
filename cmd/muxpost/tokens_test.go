package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// tokenKeeper is a dispatcher that makes tokens.
type tokenKeeper struct {
	dispatcherv1.UnimplementedDispatcherServiceServer
	tokens []*dispatcherv1.Token
}

func (k *tokenKeeper) CreateToken(_ context.Context, r *dispatcherv1.CreateTokenRequest) (*dispatcherv1.CreateTokenResponse, error) {
	t := &dispatcherv1.Token{Id: "abc", Name: r.GetName(), Role: r.GetRole(), ExpireTime: r.GetExpireTime(), CreateTime: timestamppb.New(now), Who: r.GetWho()}
	k.tokens = append(k.tokens, t)
	return &dispatcherv1.CreateTokenResponse{Token: t, Secret: "muxpost_abc_secret"}, nil
}

func (k *tokenKeeper) ListTokens(context.Context, *dispatcherv1.ListTokensRequest) (*dispatcherv1.ListTokensResponse, error) {
	return &dispatcherv1.ListTokensResponse{Tokens: k.tokens}, nil
}

func (k *tokenKeeper) RevokeToken(_ context.Context, r *dispatcherv1.RevokeTokenRequest) (*dispatcherv1.RevokeTokenResponse, error) {
	for _, t := range k.tokens {
		if t.GetId() == r.GetId() {
			changed := t.GetRevokeTime() == nil
			t.RevokeTime = timestamppb.New(now)
			return &dispatcherv1.RevokeTokenResponse{Token: t, Changed: changed}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "", "there is no such token")
}

func TestTokens_AreMadeShownOnceAndRevoked(t *testing.T) {
	d := newDesk(t)
	d.serve(t, "d", func(s *rpc.Server) { dispatcherv1.RegisterDispatcherServiceServer(s, &tokenKeeper{}) })
	for _, line := range [][]string{{"--name", "ann"}, {"--name", "ann", "--role", "boss"}, {"--role", "read", "--name", "ann", "--expires", "soon"}} {
		if err := d.run(t, append([]string{"tokens", "create"}, line...)...); !errors.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", line, err)
		}
	}
	if err := d.run(t, "tokens", "create", "--role", "operate", "--name", "ann", "--expires", "30d", "--by", "bob"); err != nil {
		t.Fatal(err)
	}
	// The token alone, so that it can go into a file.
	if d.out.String() != "muxpost_abc_secret\n" || strings.Contains(d.err.String(), "secret") {
		t.Errorf("%q, %q", d.out, d.err)
	}
	if err := d.run(t, "tokens", "list"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"abc", "ann", "operate", "valid", "bob", "in 30d", "never"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("%q is not in %s", want, d.out)
		}
	}
	for _, want := range []string{"does not count any more", "had been revoked before"} {
		if err := d.run(t, "tokens", "revoke", "abc"); err != nil || !strings.Contains(d.out.String(), want) {
			t.Errorf("%v: %s", err, d.out)
		}
	}
	if err := d.run(t, "tokens", "revoke", "nope"); !errors.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// A token is sent where nobody else hears it, and nowhere else.
func TestCredentials_ATokenGoesOnlyWhereNobodyElseHearsIt(t *testing.T) {
	d := newDesk(t)
	if err := d.run(t, "ca", "init"); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t, "ca", "trust"); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(d.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, token := write("trusted.pem", d.out.String()), write("token", "muxpost_a_b\n")
	base, err := os.ReadFile(filepath.Join(d.dir, "muxpost.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, command, env string
		tls, sent          bool
		wrong              string
	}{
		{name: "nothing is said"},
		{name: "a socket", command: "{token_file: token}", sent: true},
		{name: "by the environment", env: token, sent: true},
		{name: "a loopback address in plain text", command: "{token_file: token, dispatcher: '127.0.0.1:7412'}"},
		{name: "through a tunnel", command: "{token_file: token, dispatcher: '127.0.0.1:7412', tls: {ca_file: " + ca + "}}", tls: true, sent: true},
		{name: "another machine", command: "{token_file: token, dispatcher: '10.0.0.5:7412', tls: {ca_file: trusted.pem}}", tls: true, sent: true},
		{name: "another machine, of which nothing is known", command: "{token_file: token, dispatcher: '10.0.0.5:7412'}", wrong: "command.tls.ca_file"},
		{name: "no file", command: "{token_file: nope}", wrong: "chmod 600"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := string(base)
			if tt.command != "" {
				text += "command: " + tt.command + "\n"
			}
			write("muxpost.yaml", text)
			where := d.where
			where.Getenv = func(key string) string { return map[string]string{"MUXPOST_TOKEN_FILE": tt.env}[key] }
			s, err := settings.Load(where)
			if err != nil {
				t.Fatal(err)
			}
			options, err := (&services{Settings: s}).options("dispatcher")
			if tt.wrong != "" {
				var f *fault.Error
				if !errors.As(err, &f) || !strings.Contains(f.Error()+f.Remedy, tt.wrong) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || (options.TLS != nil) != tt.tls || (options.Credentials != nil) != tt.sent {
				t.Errorf("%+v, %v", options, err)
			}
			if options, err = (&services{Settings: s}).options("tmuxd"); err != nil || options.Credentials != nil {
				t.Errorf("tmuxd: %+v, %v", options, err)
			}
		})
	}
}
