package place

import (
	"maps"
	"testing"
)

func TestChoose(t *testing.T) {
	h := func(name string, change func(*Host)) Host {
		out := Host{Name: name, Reached: true, Starts: true, Capacity: 10}
		if change != nil {
			change(&out)
		}
		return out
	}
	live := func(n int) func(*Host) { return func(h *Host) { h.Live = n } }
	for _, tt := range []struct {
		name    string
		labels  map[string]string
		hosts   []Host
		want    string
		passing bool
		left    map[string]Why
	}{
		{name: "none at all"},
		{name: "the only one", hosts: []Host{h("a", nil)}, want: "a"},
		{name: "the first by name", hosts: []Host{h("b", nil), h("a", nil)}, want: "a"},
		{name: "the one with more room", hosts: []Host{h("a", live(3)), h("b", live(2))}, want: "b"},
		{name: "more room, not fewer agents", hosts: []Host{h("a", live(3)), h("b", func(h *Host) { h.Live, h.Capacity = 2, 4 })}, want: "a"},
		{name: "one without a limit has room", hosts: []Host{h("a", nil), h("b", func(h *Host) { h.Live, h.Capacity = 20, 0 })}, want: "b"},
		{name: "one without a limit is never full", hosts: []Host{h("a", live(10)), h("b", func(h *Host) { h.Live, h.Capacity = 500, 0 })}, want: "b"},
		{name: "near its repository", hosts: []Host{h("a", nil), h("b", func(h *Host) { h.Live, h.Near = 9, 1 })}, want: "b"},
		{name: "near, but full", hosts: []Host{h("a", nil), h("b", func(h *Host) { h.Live, h.Near = 10, 1 })}, want: "a"},
		{name: "all full: the host says it", hosts: []Host{h("a", live(11)), h("b", live(10))}, want: "b"},
		{name: "labels", labels: map[string]string{"gpu": "yes"}, hosts: []Host{h("a", nil), h("b", func(h *Host) {
			h.Labels = map[string]string{"gpu": "yes", "zone": "x"}
		})}, want: "b", left: map[string]Why{"a": OtherLabel}},
		{name: "an empty label is one", labels: map[string]string{"gpu": ""}, hosts: []Host{h("a", nil)}, left: map[string]Why{"a": OtherLabel}},
		{name: "drained", hosts: []Host{h("a", func(h *Host) { h.Draining = true }), h("b", live(9))}, want: "b", left: map[string]Why{"a": Draining}},
		{name: "with the harness", hosts: []Host{h("a", func(h *Host) { h.Starts = false }), h("b", live(10))}, want: "b"},
		{name: "none with the harness: the host says it", hosts: []Host{h("a", func(h *Host) { h.Starts = false })}, want: "a"},
		{name: "silent: wait", hosts: []Host{h("a", func(h *Host) { h.Reached = false }), h("b", func(h *Host) { h.Draining = true })},
			passing: true, left: map[string]Why{"a": Silent, "b": Draining}},
		{name: "silent and drained: no use waiting", hosts: []Host{h("a", func(h *Host) { h.Reached, h.Draining = false, true })},
			left: map[string]Why{"a": Draining}},
		{name: "another one answers", hosts: []Host{h("a", func(h *Host) { h.Reached = false }), h("b", live(9))}, want: "b",
			left: map[string]Why{"a": Silent}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Choose(tt.labels, tt.hosts)
			if got.Host != tt.want || got.Passing != tt.passing || !maps.Equal(got.Left, tt.left) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
