// Package access decides who may make which call of the operator APIs. There are two doors: one on this machine, a socket or a loopback
// address, behind which everybody is the local user; and one for other machines, behind which nobody is anybody without a certificate of
// a service or a bearer token with a role. A token that is shown is checked at both.
//
// The package knows what each call needs, as a table of names. It knows no message of ours and no SQL: tokens come from whoever keeps them.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
)

// Role is what somebody may do. Each role holds those before it; the zero value may do nothing.
type Role int

// The roles.
const (
	None Role = iota
	Read
	Operate
	Admin
)

// String returns the role's name.
func (r Role) String() string {
	return map[Role]string{Read: "read", Operate: "operate", Admin: "admin"}[r]
}

// RoleOf reads a role's name; false for any other word.
func RoleOf(name string) (Role, bool) {
	for _, r := range []Role{Read, Operate, Admin} {
		if r.String() == name {
			return r, true
		}
	}
	return None, false
}

// Token is what is kept of a bearer token.
type Token struct {
	ID, Name string
	Role     Role
	// Hash is of the secret, see New.
	Hash []byte
	Who  string
	// Made is when it was made. Ends, Revoked and Used are zero for never.
	Made, Ends, Revoked, Used time.Time
}

// prefix begins every token, so that one is recognised where it should not be.
const prefix = "muxpost"

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// New makes a token: its text, which is shown once, and what is kept.
//
// The text is an id and 32 random bytes. Of these the SHA-256 is kept, without salt and without the slow functions that passwords need:
// those protect what can be guessed, and 256 random bits cannot, whether a guess takes a nanosecond or a second.
func New() (text, id string, hash []byte) {
	var b [5 + 32]byte
	_, _ = rand.Read(b[:]) // it does not fail
	id, secret := strings.ToLower(encoding.EncodeToString(b[:5])), strings.ToLower(encoding.EncodeToString(b[5:]))
	return strings.Join([]string{prefix, id, secret}, "_"), id, hashOf(secret)
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parse takes a token apart.
func parse(text string) (id, secret string, ok bool) {
	part := strings.Split(text, "_")
	if len(part) != 3 || part[0] != prefix || len(part[1]) != encoding.EncodedLen(5) || len(part[2]) != encoding.EncodedLen(32) {
		return "", "", false
	}
	return part[1], part[2], true
}

// Tokens finds what is kept of a token; one that is not known is fault.NotFound.
type Tokens interface {
	Token(ctx context.Context, id string) (Token, error)
}

// Guard says for each call whether it may be made.
type Guard struct {
	Tokens Tokens
	Logger *slog.Logger
	Now    func() time.Time
	// Local is for the door on this machine: without a token, whoever calls is its user, who may do everything.
	Local bool
}

// partyKey is the key under which the context of a call has the name of whoever makes it.
type partyKey struct{}

// Authorize lets a call go on, or is fault.Unauthenticated or fault.Denied. It is rpc.Options.Authorize.
func (g Guard) Authorize(ctx context.Context, call rpc.Call) (context.Context, error) {
	need := needs(call.Method)
	if need.open {
		return ctx, nil
	}
	if call.Authorization != "" {
		return g.byToken(ctx, call, need)
	}
	if g.Local {
		return ctx, nil
	}
	name, known := identity.Of(call.TLS)
	switch {
	case known && name.IsService() && (need.services || need.role <= Operate):
		return ctx, nil
	case known && name.IsService():
		return ctx, denied(call, "the certificate of "+string(name)).WithRemedy("make it with a token that has the role admin")
	case known:
		return ctx, fault.Newf(fault.Unauthenticated, "", "the certificate of %q says who is there and not what he may do", name).
			WithRemedy("send a token too: whoever runs the dispatcher makes one with muxpost tokens create, and muxpost reads it from token_file")
	}
	return ctx, fault.New(fault.Unauthenticated, "", "nobody may call here without a token or a service's certificate").
		WithRemedy("have muxpost tokens create make one; muxpost reads it from command.token_file or $MUXPOST_TOKEN_FILE, others send it as authorization: Bearer TOKEN")
}

func (g Guard) byToken(ctx context.Context, call rpc.Call, need need) (context.Context, error) {
	token, err := g.find(ctx, call.Authorization)
	if err != nil {
		return ctx, err
	}
	if token.Role < need.role {
		return ctx, denied(call, fmt.Sprintf("the token of %s, which has the role %s,", token.Name, token.Role)).
			WithRemedy(fmt.Sprintf("it needs one with the role %s: muxpost tokens create --role %[1]s", need.role))
	}
	return context.WithValue(ctx, partyKey{}, token.Name), nil
}

func denied(call rpc.Call, who string) *fault.Error {
	return fault.Newf(fault.Denied, "", "%s may not call %s", who, call.Method[strings.LastIndexByte(call.Method, '/')+1:])
}

// find returns the token that a header shows, if it counts. Why one does not is told only to whoever has it. Failures are logged with
// the peer by package rpc, as every failed call is, and never with the token. They are not slowed down: nobody guesses 256 bits, and one costs
// no more than any call.
func (g Guard) find(ctx context.Context, header string) (Token, error) {
	unknown := func() error {
		return fault.New(fault.Unauthenticated, "", "the token is not known here").
			WithRemedy("see that the file holds the whole token; muxpost tokens list shows those that count")
	}
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return Token{}, fault.New(fault.Unauthenticated, "", "the authorization is of a kind that is not known here").WithRemedy("send it as authorization: Bearer TOKEN")
	}
	id, secret, ok := parse(strings.TrimSpace(text))
	if !ok {
		return Token{}, unknown()
	}
	token, err := g.Tokens.Token(ctx, id)
	switch {
	case errors.Is(err, fault.NotFound):
		return Token{}, unknown()
	case err != nil:
		return Token{}, err
	case subtle.ConstantTimeCompare(hashOf(secret), token.Hash) != 1:
		g.Logger.WarnContext(ctx, "a token was shown with the id of another", obs.KeyTokenID, id)
		return Token{}, unknown()
	}
	again := "have muxpost tokens create make another"
	switch {
	case !token.Revoked.IsZero():
		return Token{}, fault.Newf(fault.Unauthenticated, "", "the token of %s was revoked", token.Name).WithRemedy(again)
	case !token.Ends.IsZero() && !g.Now().Before(token.Ends):
		return Token{}, fault.Newf(fault.Unauthenticated, "", "the token of %s ended at %s", token.Name, token.Ends.UTC().Format(time.RFC3339)).WithRemedy(again)
	}
	return token, nil
}

// Amend puts the name of the token's owner into a request that says who makes a change, whatever it said. It is rpc.Options.Amend.
func (g Guard) Amend(ctx context.Context, request any) {
	name, ok := ctx.Value(partyKey{}).(string)
	m, isMessage := request.(proto.Message)
	if !ok || !isMessage {
		return
	}
	r := m.ProtoReflect()
	if field := r.Descriptor().Fields().ByName("who"); field != nil && field.Kind() == protoreflect.StringKind && !field.IsList() {
		r.Set(field, protoreflect.ValueOfString(name))
	}
}

// Bearer is a token that a client sends with every call. Whoever dials sees to it that nobody else hears it.
type Bearer string

// GetRequestMetadata returns the header.
func (b Bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false: a unix socket is as safe, and gRPC does not know that.
func (b Bearer) RequireTransportSecurity() bool { return false }
