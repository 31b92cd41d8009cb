package spanfile

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// RenderOptions change what Render prints. The zero value prints what matters, without colour.
type RenderOptions struct {
	// All prints every attribute, not only those that people look for first.
	All bool
	// Colour marks errors and quiets what matters less, by ANSI sequences.
	Colour bool
}

// important are the attributes that are printed first, in this order.
var important = []string{
	"event", "action", "reason", "outcome", "work_item", "delivery_id", "target", "host", "harness", "state", "phase", "token", "try",
	"incarnation", "source", "rpc.response.status_code", "rpc.grpc.status_code", "error.type", "http.response.status_code",
	"db.query.summary", "exception.message",
}

// shown is the number of characters of one value that are printed.
const shown = 120

// Render prints a forest for a terminal: for each trace a headline, and for each span its offset from the trace's start, its
// duration, its service and its name, indented below its parent, with its attributes, events, error and links. Control
// characters in names and values are made visible, so that a trace cannot steer the terminal.
func Render(w io.Writer, forest []*Node, options RenderOptions) error {
	out := bufio.NewWriter(w)
	for i, roots := range byTrace(forest) {
		if i > 0 {
			fmt.Fprintln(out)
		}
		r := renderer{out: out, options: options}
		r.trace(roots)
	}
	return out.Flush()
}

// byTrace groups the roots by trace, in the order in which the traces began.
func byTrace(forest []*Node) [][]*Node {
	var groups [][]*Node
	place := map[TraceID]int{}
	for _, root := range forest {
		i, ok := place[root.Span.TraceID]
		if !ok {
			i = len(groups)
			place[root.Span.TraceID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], root)
	}
	return groups
}

// renderer prints one trace.
type renderer struct {
	out     io.Writer
	options RenderOptions

	start, end time.Time
	spans      int
	services   []string
	column     int // width of the service column
}

func (r *renderer) trace(roots []*Node) {
	r.start, r.end = roots[0].Span.Start, roots[0].Span.End
	for _, root := range roots {
		r.measure(root)
	}
	fmt.Fprintf(r.out, "trace %s  %s  %d spans, %s  began %s\n", roots[0].Span.TraceID, span(r.end.Sub(r.start)), r.spans,
		strings.Join(r.services, " + "), r.start.Local().Format("2006-01-02 15:04:05.000 MST"))
	for _, root := range roots {
		r.node(root, "", "", "")
	}
}

// measure finds the bounds of the trace and the width of its columns.
func (r *renderer) measure(n *Node) {
	r.spans++
	if n.Span.Start.Before(r.start) {
		r.start = n.Span.Start
	}
	if n.Span.End.After(r.end) {
		r.end = n.Span.End
	}
	service := clean(n.Span.Service)
	if !slices.Contains(r.services, service) {
		r.services = append(r.services, service)
	}
	r.column = max(r.column, len([]rune(service)))
	for _, child := range n.Children {
		r.measure(child)
	}
}

// node prints a span and what is below it. The branch leads to its own line, the stem to its details and children.
func (r *renderer) node(n *Node, branch, stem, mark string) {
	s := &n.Span
	if n.Orphan {
		mark = " " + r.dim("(its parent span is not here)")
	}
	name := clean(s.Name)
	if s.Failed() {
		name = r.red(name)
	}
	fmt.Fprintf(r.out, "%10s %10s  %-*s  %s%s%s%s\n", "+"+span(s.Start.Sub(r.start)), span(s.Duration()), r.column, clean(s.Service),
		r.dim(branch), name, r.attributes(s.Attributes), mark)
	below := stem
	if len(n.Children) > 0 {
		below += "│ "
	} else {
		below += "  "
	}
	r.details(s, below)
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			r.node(child, stem+"└─", stem+"  ", "")
		} else {
			r.node(child, stem+"├─", stem+"│ ", "")
		}
	}
}

// details prints the events, the error and the links of a span.
func (r *renderer) details(s *Span, stem string) {
	margin := strings.Repeat(" ", 10+1+10+2+r.column+2)
	for _, event := range s.Events {
		at := "+" + span(event.Time.Sub(r.start))
		fmt.Fprintf(r.out, "%10s%s%s%s %s%s\n", at, margin[10:], r.dim(stem), "·", clean(event.Name), r.attributes(event.Attributes))
	}
	if s.Failed() {
		fmt.Fprintf(r.out, "%s%s%s\n", margin, r.dim(stem), r.red("! "+cmp.Or(clip(s.StatusMessage), "failed")))
	}
	for _, link := range s.Links {
		fmt.Fprintf(r.out, "%s%s%s\n", margin, r.dim(stem), r.dim("→ linked to trace "+string(link.TraceID)))
	}
}

// attributes prints what matters, or everything, as key=value.
func (r *renderer) attributes(attrs Attributes) string {
	keys := slices.DeleteFunc(slices.Clone(important), func(key string) bool { return attrs[key] == "" })
	if r.options.All {
		for _, key := range slices.Sorted(maps.Keys(attrs)) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	var b strings.Builder
	for _, key := range keys {
		value := clip(attrs[key])
		if value == "" || strings.ContainsAny(value, ` "=`) {
			value = `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
		}
		b.WriteString("  " + r.dim(clean(key)+"=") + value)
	}
	return b.String()
}

func (r *renderer) dim(s string) string { return r.paint("\x1b[2m", s) }
func (r *renderer) red(s string) string { return r.paint("\x1b[31m", s) }

func (r *renderer) paint(colour, s string) string {
	if !r.options.Colour || s == "" {
		return s
	}
	return colour + s + "\x1b[0m"
}

// span writes a duration with the precision that people compare by.
func span(d time.Duration) string {
	switch abs := max(d, -d); {
	case abs < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case abs < time.Second:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case abs < time.Minute:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// clip cuts a value to what is shown.
func clip(s string) string {
	runes := []rune(clean(s))
	if len(runes) > shown {
		return string(runes[:shown-1]) + "…"
	}
	return string(runes)
}

// clean makes everything visible that is not a printable character.
func clean(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '\n':
			b.WriteString(`\n`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, `\u{%x}`, c)
		}
	}
	return b.String()
}
