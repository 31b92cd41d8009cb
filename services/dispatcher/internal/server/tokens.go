package server

import (
	"context"
	"regexp"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/obs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// Tokens keeps bearer tokens. One that is not known is fault.NotFound.
type Tokens interface {
	Create(ctx context.Context, t access.Token) (access.Token, error)
	List(ctx context.Context, all bool) ([]access.Token, error)
	Revoke(ctx context.Context, id, who string) (t access.Token, changed bool, err error)
}

// tokenName is what may stand for the owner of a token: it stands wherever a person's name does.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// CreateToken makes a token.
func (s *Server) CreateToken(ctx context.Context, r *dispatcherv1.CreateTokenRequest) (*dispatcherv1.CreateTokenResponse, error) {
	role, known := roleOf(r.GetRole())
	var ends time.Time // never
	if t := r.GetExpireTime(); t != nil {
		ends = t.AsTime()
	}
	switch {
	case !tokenName.MatchString(r.GetName()):
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "the name cannot be the owner's of a token").
			WithRemedy("use letters, digits and . _ - @ after the first, at most 64")
	case !known:
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "a token needs a role").WithRemedy("choose read, operate or admin")
	case !ends.IsZero() && !ends.After(time.Now()):
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "the token would have ended already").WithRemedy("choose a later time")
	}
	if err := checkWho(r.GetWho()); err != nil {
		return nil, err
	}
	text, id, hash := access.New()
	t, err := s.tokens.Create(ctx, access.Token{ID: id, Name: r.GetName(), Role: role, Hash: hash, Who: r.GetWho(), Ends: ends})
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "a token was made", obs.KeyTokenID, id, obs.KeyWho, r.GetWho(), "role", role.String(), "name", t.Name)
	return &dispatcherv1.CreateTokenResponse{Token: tokenTo(t), Secret: text}, nil
}

// ListTokens returns what is kept of tokens.
func (s *Server) ListTokens(ctx context.Context, r *dispatcherv1.ListTokensRequest) (*dispatcherv1.ListTokensResponse, error) {
	found, err := s.tokens.List(ctx, r.GetAll())
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListTokensResponse{}
	for _, t := range found {
		out.Tokens = append(out.Tokens, tokenTo(t))
	}
	return out, nil
}

// RevokeToken ends a token.
func (s *Server) RevokeToken(ctx context.Context, r *dispatcherv1.RevokeTokenRequest) (*dispatcherv1.RevokeTokenResponse, error) {
	if r.GetId() == "" {
		return nil, fault.New(fault.Invalid, fault.ReasonBadArgument, "no token is named").WithRemedy("muxpost tokens list lists them by id")
	}
	if err := checkWho(r.GetWho()); err != nil {
		return nil, err
	}
	t, changed, err := s.tokens.Revoke(ctx, r.GetId(), r.GetWho())
	if err != nil {
		return nil, err
	}
	if changed {
		s.log.InfoContext(ctx, "a token was revoked", obs.KeyTokenID, t.ID, obs.KeyWho, r.GetWho(), "name", t.Name)
	}
	return &dispatcherv1.RevokeTokenResponse{Token: tokenTo(t), Changed: changed}, nil
}

func tokenTo(t access.Token) *dispatcherv1.Token {
	return &dispatcherv1.Token{Id: t.ID, Name: t.Name, Role: roleTo(t.Role), CreateTime: moment(t.Made), Who: t.Who, ExpireTime: moment(t.Ends),
		RevokeTime: moment(t.Revoked), UseTime: moment(t.Used)}
}

func roleTo(r access.Role) dispatcherv1.Role {
	switch r {
	case access.Read:
		return dispatcherv1.Role_ROLE_READ
	case access.Operate:
		return dispatcherv1.Role_ROLE_OPERATE
	case access.Admin:
		return dispatcherv1.Role_ROLE_ADMIN
	case access.None:
	}
	return dispatcherv1.Role_ROLE_UNSPECIFIED
}

func roleOf(r dispatcherv1.Role) (access.Role, bool) {
	for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
		if roleTo(role) == r {
			return role, true
		}
	}
	return access.None, false
}

// checkWho bounds the name of who orders something.
func checkWho(who string) error {
	if len(who) > maxWho {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "who has %d bytes and the limit is %d", len(who), maxWho)
	}
	return nil
}
