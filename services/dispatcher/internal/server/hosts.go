package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// ListHosts returns the hosts and how they stand.
func (s *Server) ListHosts(context.Context, *dispatcherv1.ListHostsRequest) (*dispatcherv1.ListHostsResponse, error) {
	out := &dispatcherv1.ListHostsResponse{}
	for _, h := range s.hosts.Statuses() {
		out.Hosts = append(out.Hosts, &dispatcherv1.Host{Name: h.Name, Address: h.Address, Reached: h.Reached, Since: moment(h.Since), Detail: h.Detail,
			Draining: h.Record.Draining, DrainReason: h.Record.Reason, DrainWho: h.Record.Who, KeptAwayUntil: moment(h.KeptAway),
			Live: int32(h.Live), Capacity: int32(h.Capacity), Labels: h.Labels, Harnesses: h.Harnesses, Build: buildTo(h.Build), //nolint:gosec // small numbers
			TmuxVersion: h.TmuxVersion, Warnings: h.Warnings, Added: h.Added})
	}
	return out, nil
}

// AddHost has the tmuxd at an address called.
func (s *Server) AddHost(ctx context.Context, r *dispatcherv1.AddHostRequest) (*dispatcherv1.AddHostResponse, error) {
	_, err := s.deliverer.AddHost(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho()}, r.GetAddress())
	return &dispatcherv1.AddHostResponse{}, s.counts(ctx, err)
}

// DrainHost has nothing more start on a host.
func (s *Server) DrainHost(ctx context.Context, r *dispatcherv1.DrainHostRequest) (*dispatcherv1.DrainHostResponse, error) {
	_, err := s.deliverer.Drain(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho(), Reason: r.GetReason()})
	return &dispatcherv1.DrainHostResponse{}, s.counts(ctx, err)
}

// UndrainHost ends a drain.
func (s *Server) UndrainHost(ctx context.Context, r *dispatcherv1.UndrainHostRequest) (*dispatcherv1.UndrainHostResponse, error) {
	_, err := s.deliverer.Undrain(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho()})
	return &dispatcherv1.UndrainHostResponse{}, s.counts(ctx, err)
}

// AcceptHost gives the name of a host to the next tmuxd that answers under it.
func (s *Server) AcceptHost(ctx context.Context, r *dispatcherv1.AcceptHostRequest) (*dispatcherv1.AcceptHostResponse, error) {
	_, err := s.deliverer.AcceptHost(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho()})
	return &dispatcherv1.AcceptHostResponse{}, s.counts(ctx, err)
}

// EvacuateHost gives a host up.
func (s *Server) EvacuateHost(ctx context.Context, r *dispatcherv1.EvacuateHostRequest) (*dispatcherv1.EvacuateHostResponse, error) {
	out, err := s.deliverer.Evacuate(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho(), Reason: r.GetReason()})
	return &dispatcherv1.EvacuateHostResponse{Moved: out.Moved, Busy: out.Busy, More: out.More}, s.counts(ctx, err)
}

// ForgetHost removes what is recorded of a host.
func (s *Server) ForgetHost(ctx context.Context, r *dispatcherv1.ForgetHostRequest) (*dispatcherv1.ForgetHostResponse, error) {
	err := s.deliverer.ForgetHost(ctx, deliver.HostOrder{Name: r.GetName(), Who: r.GetWho()})
	return &dispatcherv1.ForgetHostResponse{}, s.counts(ctx, err)
}

// counts has what was recorded count here at once, and not only when it is read again; then it returns err.
func (s *Server) counts(ctx context.Context, err error) error {
	if err == nil {
		_ = s.hosts.Sync(ctx) // it is read again within seconds
	}
	return err
}

// ListSuperseded returns the sessions that were left behind.
func (s *Server) ListSuperseded(ctx context.Context, r *dispatcherv1.ListSupersededRequest) (*dispatcherv1.ListSupersededResponse, error) {
	_, limit, err := listOf("", r.GetPageSize(), pageSize)
	if err != nil {
		return nil, err
	}
	q := deliver.SupersededQuery{Host: r.GetHost(), Limit: limit + 1}
	if q.AfterHost, q.AfterItem, err = readSupersededToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	found, err := s.records.Superseded(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &dispatcherv1.ListSupersededResponse{}
	if len(found) > limit {
		found = found[:limit]
		out.NextPageToken = supersededToken(found[limit-1].Host, found[limit-1].WorkItem)
	}
	for _, o := range found {
		out.Superseded = append(out.Superseded, &dispatcherv1.Superseded{WorkItem: o.WorkItem, Host: o.Host, Target: o.Target,
			IncarnationStamp: o.Stamp, ConversationId: o.ConversationID, Harness: o.Harness, Directory: o.Directory,
			CreateTime: timestamppb.New(o.Since)})
	}
	return out, nil
}

// moment is a time on the wire; unset when it is zero.
func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func buildTo(b deliver.Build) *dispatcherv1.Build {
	return &dispatcherv1.Build{Program: b.Program, Release: b.Release, Commit: b.Commit, Dirty: b.Dirty, Host: b.Host}
}
