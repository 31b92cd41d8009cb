package spanfile

import (
	"cmp"
	"slices"
)

// Node is a span with the spans that it caused.
type Node struct {
	Span     Span
	Children []*Node
	// Orphan is true of a root whose parent is named but missing: still running, lost with its process, or kept elsewhere.
	Orphan bool
}

// spanKey names a span among many traces.
type spanKey struct {
	trace TraceID
	span  SpanID
}

// Tree arranges spans as a forest, roots and children by start time. A span whose parent is missing is a root, marked as an
// orphan; so is one span of every circle, which only a damaged file can hold. A span that occurs twice is taken once.
func Tree(spans []Span) []*Node {
	nodes := make([]*Node, 0, len(spans))
	byKey := make(map[spanKey]*Node, len(spans))
	for _, s := range spans {
		key := spanKey{s.TraceID, s.SpanID}
		if byKey[key] == nil {
			byKey[key] = &Node{Span: s}
			nodes = append(nodes, byKey[key])
		}
	}
	slices.SortStableFunc(nodes, func(a, b *Node) int {
		return cmp.Or(a.Span.Start.Compare(b.Span.Start), cmp.Compare(b.Span.Duration(), a.Span.Duration()))
	})
	parent := make(map[*Node]*Node, len(nodes))
	for _, n := range nodes {
		if p := byKey[spanKey{n.Span.TraceID, n.Span.ParentSpanID}]; n.Span.ParentSpanID != "" && p != nil && !leadsTo(parent, p, n) {
			parent[n] = p
		}
	}
	var roots []*Node
	for _, n := range nodes {
		if p := parent[n]; p != nil {
			p.Children = append(p.Children, n)
			continue
		}
		n.Orphan = n.Span.ParentSpanID != ""
		roots = append(roots, n)
	}
	return roots
}

// leadsTo reports whether following parents from a node arrives at the goal.
func leadsTo(parent map[*Node]*Node, from, goal *Node) bool {
	for n := from; n != nil; n = parent[n] {
		if n == goal {
			return true
		}
	}
	return false
}
