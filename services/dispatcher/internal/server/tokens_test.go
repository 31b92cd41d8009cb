package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// drawer keeps tokens.
type drawer struct{ kept []access.Token }

func (d *drawer) Create(_ context.Context, t access.Token) (access.Token, error) {
	d.kept = append(d.kept, t)
	return t, nil
}

func (d *drawer) List(context.Context, bool) ([]access.Token, error) { return d.kept, nil }

func (d *drawer) Revoke(_ context.Context, id, _ string) (access.Token, bool, error) {
	for i, t := range d.kept {
		if t.ID == id {
			d.kept[i].Revoked = time.Now()
			return d.kept[i], t.Revoked.IsZero(), nil
		}
	}
	return access.Token{}, false, fault.New(fault.NotFound, "", "no")
}

func TestTokens_TheSecretIsInTheAnswerAndNowhereElse(t *testing.T) {
	var log strings.Builder
	d := &drawer{}
	s := New(Config{Tokens: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	made, err := s.CreateToken(t.Context(), &dispatcherv1.CreateTokenRequest{Name: "ann", Role: dispatcherv1.Role_ROLE_OPERATE, Who: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	secret := made.GetSecret()[strings.LastIndexByte(made.GetSecret(), '_')+1:]
	if len(d.kept) != 1 || d.kept[0].Role != access.Operate || strings.Contains(string(d.kept[0].Hash), secret) || strings.Contains(log.String(), secret) ||
		!strings.Contains(made.GetSecret(), made.GetToken().GetId()) || !strings.Contains(log.String(), "who=bob") {
		t.Errorf("%+v, %s", d.kept, log.String())
	}
	list, err := s.ListTokens(t.Context(), &dispatcherv1.ListTokensRequest{})
	if err != nil || len(list.GetTokens()) != 1 || list.GetTokens()[0].GetRole() != dispatcherv1.Role_ROLE_OPERATE || list.GetTokens()[0].GetExpireTime() != nil {
		t.Errorf("%v, %v", list, err)
	}
	for _, changed := range []bool{true, false} {
		if out, err := s.RevokeToken(t.Context(), &dispatcherv1.RevokeTokenRequest{Id: made.GetToken().GetId()}); err != nil || out.GetChanged() != changed {
			t.Errorf("%v, %v", out, err)
		}
	}
}

func TestTokens_BadRequestsAreRefused(t *testing.T) {
	s := New(Config{Tokens: &drawer{}, Logger: slog.New(slog.DiscardHandler)})
	const admin = dispatcherv1.Role_ROLE_ADMIN
	for name, r := range map[string]*dispatcherv1.CreateTokenRequest{
		"no name":     {Role: admin},
		"a bad name":  {Role: admin, Name: "ann\nbob"},
		"long":        {Role: admin, Name: strings.Repeat("x", 65)},
		"no role":     {Name: "ann"},
		"no such":     {Name: "ann", Role: 17},
		"in the past": {Name: "ann", Role: admin, ExpireTime: timestamppb.New(time.Now().Add(-time.Second))},
		"long who":    {Name: "ann", Role: admin, Who: strings.Repeat("x", 101)},
	} {
		if _, err := s.CreateToken(t.Context(), r); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.RevokeToken(t.Context(), &dispatcherv1.RevokeTokenRequest{}); !errors.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if _, err := s.RevokeToken(t.Context(), &dispatcherv1.RevokeTokenRequest{Id: "nope"}); !errors.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
