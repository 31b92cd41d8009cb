package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

// Enroller gives hosts their certificates.
type Enroller interface {
	Invite(ctx context.Context, host, who string, ends time.Time) (text string, until time.Time, err error)
	Enroll(ctx context.Context, invitation string, request []byte) (c authority.Certificate, ca []byte, err error)
	Renew(ctx context.Context, host string, request []byte) (c authority.Certificate, ca []byte, err error)
}

// maxRequest is how large a certificate request may be; one of a P-256 key has about 250 bytes.
const maxRequest = 4 << 10

// InviteHost lets a host join.
func (s *Server) InviteHost(ctx context.Context, r *dispatcherv1.InviteHostRequest) (*dispatcherv1.InviteHostResponse, error) {
	if err := checkWho(r.GetWho()); err != nil {
		return nil, err
	}
	var ends time.Time // the usual one
	if t := r.GetExpireTime(); t != nil {
		ends = t.AsTime()
	}
	text, until, err := s.enroller.Invite(ctx, r.GetName(), r.GetWho(), ends)
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.InviteHostResponse{Secret: text, ExpireTime: timestamppb.New(until)}, nil
}

// Enroll issues a host's first certificate.
func (s *Server) Enroll(ctx context.Context, r *dispatcherv1.EnrollRequest) (*dispatcherv1.EnrollResponse, error) {
	if err := checkRequest(r.GetRequest()); err != nil {
		return nil, err
	}
	c, ca, err := s.enroller.Enroll(ctx, r.GetInvitation(), r.GetRequest())
	if err != nil {
		return nil, err
	}
	host, _ := c.Name.HostName()
	return &dispatcherv1.EnrollResponse{Name: host, Certificate: c.Cert, Authority: ca}, nil
}

// Renew issues the next certificate of the host that calls.
func (s *Server) Renew(ctx context.Context, r *dispatcherv1.RenewRequest) (*dispatcherv1.RenewResponse, error) {
	if err := checkRequest(r.GetRequest()); err != nil {
		return nil, err
	}
	host, ok := access.HostOf(ctx)
	if !ok {
		return nil, fault.New(fault.Unauthenticated, "", "only a host may call this, with its certificate")
	}
	known := false
	for _, h := range s.hosts.Statuses() {
		known = known || h.Name == host
	}
	if !known {
		return nil, fault.Newf(fault.Denied, "", "%s is not among the hosts, and its certificate is not renewed", host).
			WithRemedy("muxpost hosts add " + host + " ADDRESS, if it is meant to be one")
	}
	c, ca, err := s.enroller.Renew(ctx, host, r.GetRequest())
	if err != nil {
		return nil, err
	}
	return &dispatcherv1.RenewResponse{Certificate: c.Cert, Authority: ca}, nil
}

func checkRequest(request []byte) error {
	if len(request) == 0 || len(request) > maxRequest {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "the certificate request has %d bytes: it must be there, and have %d at most", len(request), maxRequest)
	}
	return nil
}
