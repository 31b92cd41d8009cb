package e2e

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"

	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// proxy stands between the dispatcher and tmuxd and passes everything on. Before one spawn it can start the session itself, as another
// dispatcher would.
type proxy struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
	address    string
	tmuxd      tmuxdv1.TmuxdServiceClient
	spawnFirst atomic.Bool
	started    atomic.Int32
}

func (p *proxy) serve(w *world) {
	w.t.Helper()
	path := filepath.Join(w.Dir, "proxy.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	p.address = "unix:" + path
	conn, err := rpc.Dial(w.Address("tmuxd"), rpc.DialOptions{Name: "tmuxd"})
	if err != nil {
		w.t.Fatal(err)
	}
	p.tmuxd = tmuxdv1.NewTmuxdServiceClient(conn)
	srv := grpc.NewServer()
	tmuxdv1.RegisterTmuxdServiceServer(srv, p)
	go func() { _ = srv.Serve(listener) }()
	w.t.Cleanup(func() {
		srv.Stop()
		conn.Close()
	})
}

func (p *proxy) SessionState(ctx context.Context, r *tmuxdv1.SessionStateRequest) (*tmuxdv1.SessionStateResponse, error) {
	res, err := p.tmuxd.SessionState(ctx, r)
	return res, rpc.ToStatus(ctx, err)
}

func (p *proxy) Spawn(ctx context.Context, r *tmuxdv1.SpawnRequest) (*tmuxdv1.SpawnResponse, error) {
	if p.spawnFirst.CompareAndSwap(true, false) {
		res, err := p.tmuxd.Spawn(ctx, &tmuxdv1.SpawnRequest{WorkItem: r.GetWorkItem(), Harness: r.GetHarness(), Conversation: r.GetConversation(),
			FencingToken: r.GetFencingToken()})
		if err != nil {
			return nil, rpc.ToStatus(ctx, err)
		}
		p.count(res)
	}
	res, err := p.tmuxd.Spawn(ctx, r)
	p.count(res)
	return res, rpc.ToStatus(ctx, err)
}

func (p *proxy) count(r *tmuxdv1.SpawnResponse) {
	if r.GetStarted() != nil {
		p.started.Add(1)
	}
}

func (p *proxy) Paste(ctx context.Context, r *tmuxdv1.PasteRequest) (*tmuxdv1.PasteResponse, error) {
	res, err := p.tmuxd.Paste(ctx, r)
	return res, rpc.ToStatus(ctx, err)
}

func (p *proxy) Info(ctx context.Context, r *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	res, err := p.tmuxd.Info(ctx, r)
	return res, rpc.ToStatus(ctx, err)
}
