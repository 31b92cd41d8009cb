package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// ToConnect is ToStatus for connect: the same code, message and details, as a *connect.Error. Connect would send any other
// error as "unknown" without text.
func ToConnect(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return connectOf(statusOf(ctx, err)).WithCause(err)
}

// FromConnect is FromStatus for errors that a connect client returned.
func FromConnect(err error) error {
	var c *connect.Error
	if errors.As(err, &c) {
		return faultOf(statusOfConnect(c))
	}
	return FromStatus(err)
}

// connectOf converts a status; the codes are the same numbers.
func connectOf(s *status.Status) *connect.Error {
	out := connect.NewError(connect.Code(s.Code()), s.Message())
	for _, detail := range s.Proto().GetDetails() {
		if d, err := connectproto.NewErrorDetail(detail); err == nil {
			out = out.WithDetail(d)
		}
	}
	return out
}

func statusOfConnect(c *connect.Error) *status.Status {
	details := make([]*anypb.Any, 0, len(c.Details()))
	for _, detail := range c.Details() {
		details = append(details, connectproto.ErrorDetailToAny(detail))
	}
	return status.FromProto(&spb.Status{Code: int32(codes.Code(c.Code())), Message: c.Message(), Details: details})
}
