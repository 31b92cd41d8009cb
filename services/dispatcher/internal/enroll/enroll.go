// Package enroll gives hosts their certificates: the first one for an invitation, further ones for the one before. It signs with the authority
// in a directory, which is read at each use, so that one that is made later counts.
//
// It knows nothing of the wire, and not which hosts there are.
package enroll

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/obs"
)

const (
	// usual is how long an invitation counts of which nobody says how long, and longest how long one may.
	usual   = time.Hour
	longest = 24 * time.Hour
)

// Invitations keeps invitations. One that does not count (any more) is fault.NotFound.
type Invitations interface {
	Invite(ctx context.Context, i access.Invitation) error
	Redeem(ctx context.Context, id string, hash []byte) (host string, err error)
}

// Config is what an Enroller needs. All fields are required.
type Config struct {
	// Dir is the authority's directory.
	Dir         string
	Invitations Invitations
	Logger      *slog.Logger
	Now         func() time.Time
}

// Enroller gives hosts their certificates.
type Enroller struct{ Config }

// New returns an enroller.
func New(c Config) *Enroller { return &Enroller{c} }

func (e *Enroller) authority() (*authority.Authority, error) {
	a, err := authority.Open(e.Dir)
	if errors.Is(err, fault.NotFound) {
		return nil, fault.New(fault.Conflict, "", "this dispatcher has no authority that could issue certificates").
			WithRemedy("muxpost ca init makes one beside the dispatcher, or dispatcher.ca_dir says where it is; without one, hosts get their certificates by hand")
	}
	return a, err
}

// Invite makes an invitation for a host, and returns its text and its end.
func (e *Enroller) Invite(ctx context.Context, host, who string, ends time.Time) (text string, _ time.Time, err error) {
	if _, err := authority.Name("host", host); err != nil {
		return "", ends, err
	}
	now := e.Now()
	if ends.IsZero() {
		ends = now.Add(usual)
	}
	if !ends.After(now) || ends.After(now.Add(longest+time.Minute)) { // clocks differ
		return "", ends, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "an invitation ends within %v", longest).WithRemedy("choose a time such as 1h")
	}
	a, err := e.authority()
	if err != nil {
		return "", ends, err
	}
	text, kept := access.Invite(a.Fingerprint())
	kept.Host, kept.Who, kept.Ends = host, who, ends
	if err := e.Invitations.Invite(ctx, kept); err != nil {
		return "", ends, err
	}
	e.Logger.InfoContext(ctx, "a host was invited", obs.KeyHost, host, obs.KeyWho, who, obs.KeyTokenID, kept.ID)
	return text, ends, nil
}

// Enroll issues the first certificate of the host that was invited.
func (e *Enroller) Enroll(ctx context.Context, invitation string, request []byte) (c authority.Certificate, ca []byte, err error) {
	id, hash, _, err := access.ParseInvitation(invitation)
	if err != nil {
		return c, nil, err
	}
	// What could fail is tried before the invitation is used up.
	public, err := authority.Asked(request)
	if err != nil {
		return c, nil, err
	}
	a, err := e.authority()
	if err != nil {
		return c, nil, err
	}
	host, err := e.Invitations.Redeem(ctx, id, hash)
	if errors.Is(err, fault.NotFound) {
		return c, nil, fault.New(fault.Unauthenticated, "", "the invitation does not count: it ended, was used, or was never made here").
			WithRemedy("have muxpost hosts invite make another")
	}
	if err != nil {
		return c, nil, err
	}
	if c, err = a.Sign(authority.Order{Name: identity.Host(host)}, public, e.Now()); err != nil {
		return c, nil, err
	}
	e.Logger.InfoContext(ctx, "a host joined", obs.KeyHost, host, obs.KeyTokenID, id, "serial", c.Serial)
	return c, a.PEM(), nil
}

// Renew issues the next certificate of a host.
func (e *Enroller) Renew(ctx context.Context, host string, request []byte) (c authority.Certificate, ca []byte, err error) {
	public, err := authority.Asked(request)
	if err != nil {
		return c, nil, err
	}
	name, err := authority.Name("host", host)
	if err != nil {
		return c, nil, err
	}
	a, err := e.authority()
	if err != nil {
		return c, nil, err
	}
	if c, err = a.Sign(authority.Order{Name: name}, public, e.Now()); err != nil {
		return c, nil, err
	}
	e.Logger.InfoContext(ctx, "the certificate of a host was renewed", obs.KeyHost, host, "serial", c.Serial)
	return c, a.PEM(), nil
}
