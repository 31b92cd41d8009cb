// Package channel speaks with agents that take deliveries by themselves, each on a socket of its session's: in the channel protocol, which
// docs/harnesses.md describes, or in that of codex's app-server. It says how things stand and nothing more: what follows from that, and what is written down, the caller knows.
//
// It knows nothing of tmux. The sockets lie in a directory that only its owner may enter.
package channel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Sockets are the channels of a host's agents.
type Sockets struct{ dir string }

// New returns the channels whose sockets lie in a directory of their own below dir, and makes that. Paths of sockets are short: dir is the one
// of the tmux servers' sockets.
func New(dir string) (*Sockets, error) {
	s := &Sockets{filepath.Join(dir, "agents")}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(s.dir)
	if err == nil && (!info.IsDir() || info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s must be a directory that only its owner may enter (chmod 700 %s)", s.dir, s.dir)
	}
	return s, err
}

// Socket is where the agent of an incarnation listens.
func (s *Sockets) Socket(stamp string) string { return filepath.Join(s.dir, stamp) }

// Clear removes what an incarnation that is over left.
func (s *Sockets) Clear(stamp string) {
	if stamp == "" {
		return
	}
	path := s.Socket(stamp)
	// A killed agent leaves it. That of an app-server is a link to where it really listens.
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		if info, err := os.Lstat(real); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(real)
		}
	}
	_ = os.Remove(path)
}

// errUnknown means that the harness's entry names a channel no more.
var errUnknown = errors.New("its harness has no channel")

// Ask asks how things stand with one delivery.
func (s *Sockets) Ask(ctx context.Context, l host.Line, id string) (host.Standing, error) {
	switch l.Kind {
	case settings.ChannelSocket:
		return s.ask(ctx, l, id)
	case settings.ChannelAppServer:
		return s.askApp(ctx, l, id)
	}
	return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, errUnknown)
}

// Hand hands a delivery over, unless the agent has it or cannot take it.
func (s *Sockets) Hand(ctx context.Context, l host.Line, o host.Offer) (host.Standing, error) {
	switch l.Kind {
	case settings.ChannelSocket:
		return s.hand(ctx, l, o)
	case settings.ChannelAppServer:
		return s.handApp(ctx, l, o)
	}
	return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, errUnknown)
}
