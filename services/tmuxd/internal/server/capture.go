package server

import (
	"context"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Capture reads what an agent's pane shows.
func (s *Server) Capture(ctx context.Context, req *tmuxdv1.CaptureRequest) (*tmuxdv1.CaptureResponse, error) {
	item, err := workitem.Parse(req.GetWorkItem())
	if err != nil {
		return nil, err
	}
	in := host.CaptureRequest{Item: item, Stamp: req.GetIncarnationStamp(), Extent: host.Extent{
		Lines: int(req.GetScrollbackLines()), Join: req.GetJoinWrapped(),
	}}
	switch req.GetFormat() {
	case tmuxdv1.CaptureFormat_CAPTURE_FORMAT_UNSPECIFIED, tmuxdv1.CaptureFormat_CAPTURE_FORMAT_TEXT:
	case tmuxdv1.CaptureFormat_CAPTURE_FORMAT_ANSI:
		in.Attributes = true
	default:
		return nil, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "there is no format %d", req.GetFormat())
	}
	c, incarnation, err := s.host.Capture(ctx, in)
	if err != nil {
		return nil, err
	}
	lines := c.Lines
	if in.Attributes {
		lines = attributed(lines)
	} else {
		lines = clean(lines)
	}
	return &tmuxdv1.CaptureResponse{
		Target: item.Target(), Incarnation: incarnationOf(incarnation), Lines: lines, ScrollbackLines: int32(c.Scrollback),
		Width: int32(c.Width), Height: int32(c.Height), Title: clean([]string{c.Title})[0], Dead: c.Dead,
	}, nil
}

// attributed keeps what a program wrote on its screen to printable characters and the sequences of colours and attributes (CSI … m): others
// have no place in lines, and some would act on the terminal that shows them.
func attributed(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		var b strings.Builder
		for j, part := range strings.Split(line, "\x1b") {
			if numbers, ok := strings.CutPrefix(part, "["); ok && j > 0 {
				if rest, ok := strings.CutPrefix(strings.TrimLeft(numbers, "0123456789;:"), "m"); ok {
					b.WriteString("\x1b" + strings.TrimSuffix(part, rest))
					part = rest
				}
			}
			b.WriteString(clean([]string{part})[0])
		}
		out[i] = b.String()
	}
	return out
}
