package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
)

func traceCommand(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "trace DELIVERY-ID", Short: "Show every step of a delivery with its times, from the look that found it to the keystroke",
		Args: args(1, 1, "muxpost ledger lists the ids; a trace id will do too"),
		Long: `trace reads the span files of the data directory, so it works with all services down. The look at the source that found the
event is a trace of its own, and is shown as well.`,
		RunE: func(_ *cobra.Command, given []string) error { return a.trace(given[0], all) },
	}
	c.Flags().BoolVar(&all, "all", false, "show every span and every attribute, statements of the database included")
	a.jsonFlag(c)
	return c
}

func (a *app) trace(id string, all bool) error {
	s, err := a.settings()
	if err != nil && s.DataDir == "" {
		return err
	}
	spans, err := spansOf(s.DataDir.Traces(), id)
	if err != nil {
		return err
	}
	if a.json {
		return a.values(spans)
	}
	if !all {
		spans = essential(spans)
	}
	p := a.printer()
	if err := spanfile.Render(a.stdout, spanfile.Tree(spans), spanfile.RenderOptions{All: all, Colour: p.Colour}); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	}
	if !all {
		p.Line("\n--all shows every span and attribute")
	}
	return nil
}

// spansOf is traceOf, except that no span is an error too.
func spansOf(dir, id string) ([]spanfile.Span, error) {
	spans, err := traceOf(dir, id)
	if err == nil && len(spans) == 0 {
		err = fault.Newf(fault.NotFound, "", "no span in %s speaks of %s", dir, id).
			WithRemedy("see that the id is right (muxpost ledger) and this is the data directory of its services; the oldest traces are removed")
	}
	return spans, err
}

// traceOf returns the spans of a delivery's traces and of those that they are linked to.
func traceOf(dir, id string) ([]spanfile.Span, error) {
	var ids []spanfile.TraceID
	if err := badDeliveryID(id); err != nil {
		return nil, err
	}
	ids, err := spanfile.FindTraces(dir, obs.KeyDeliveryID, id)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 && regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
		ids = []spanfile.TraceID{spanfile.TraceID(id)}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	spans, err := spanfile.ReadTraces(dir, ids...)
	if err != nil {
		return nil, err
	}
	var linked []spanfile.TraceID
	for _, s := range spans {
		for _, l := range s.Links {
			if !slices.Contains(ids, l.TraceID) && !slices.Contains(linked, l.TraceID) {
				linked = append(linked, l.TraceID)
			}
		}
	}
	if len(linked) == 0 {
		return spans, nil
	}
	more, err := spanfile.ReadTraces(dir, linked...)
	return append(spans, more...), err
}

// essential leaves out what only a person who looks for it wants to see: statements of the database that succeeded. A span with
// another kind of span below it stays.
func essential(spans []spanfile.Span) []spanfile.Span {
	type key struct {
		trace spanfile.TraceID
		span  spanfile.SpanID
	}
	out := slices.Clone(spans)
	for {
		parents := map[key]bool{}
		for _, s := range out {
			parents[key{s.TraceID, s.ParentSpanID}] = true
		}
		before := len(out)
		// A statement may stand below its own preparation or its transaction, so leaves are taken until none is left to take.
		out = slices.DeleteFunc(out, func(s spanfile.Span) bool {
			return !s.Failed() && !parents[key{s.TraceID, s.SpanID}] && isStatement(s)
		})
		if len(out) == before {
			return out
		}
	}
}

func isStatement(s spanfile.Span) bool {
	for name := range s.Attributes {
		if strings.HasPrefix(name, "db.") {
			return true
		}
	}
	return false
}
