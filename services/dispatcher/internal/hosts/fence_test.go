package hosts

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// fencing is a tmuxd that keeps a floor: the other one knows no such call, as an older tmuxd.
type fencing struct {
	*tmuxd
	// full is true while the floor cannot be written.
	full bool
}

func newFencing() *fencing {
	d := newTmuxd()
	d.spawn, d.paste = &tmuxdv1.SpawnResponse{}, &tmuxdv1.PasteResponse{}
	return &fencing{tmuxd: d}
}

func (d *fencing) RaiseFence(_ context.Context, r *tmuxdv1.RaiseFenceRequest) (*tmuxdv1.RaiseFenceResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r)
	if d.full {
		return nil, fault.New(fault.Unavailable, fault.ReasonStorage, "no space")
	}
	d.info = proto.Clone(d.info).(*tmuxdv1.InfoResponse)
	d.info.FencingFloor = max(d.info.FencingFloor, r.GetFloor())
	d.info.HighestFencingToken = max(d.info.HighestFencingToken, d.info.FencingFloor)
	return &tmuxdv1.RaiseFenceResponse{Floor: d.info.FencingFloor, HighestFencingToken: d.info.HighestFencingToken}, nil
}

// change changes what the host says of itself.
func (d *fencing) change(change func(*tmuxdv1.InfoResponse)) {
	d.set(func(d *tmuxd) {
		d.info = proto.Clone(d.info).(*tmuxdv1.InfoResponse)
		change(d.info)
	})
}

// floors are those that the host was asked to take, in order.
func (d *fencing) floors() (out []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.asked {
		if r, ok := m.(*tmuxdv1.RaiseFenceRequest); ok {
			out = append(out, r.GetFloor())
		}
	}
	return out
}

// refuse has the host refuse one paste as too old, after which it is greeted again.
func (d *fencing) refuse(t *testing.T, h *Host) {
	t.Helper()
	d.set(func(d *tmuxd) { d.err = fault.New(fault.Fenced, fault.ReasonOlderToken, "older") })
	if _, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 1}); fault.KindOf(err) != fault.Fenced {
		t.Fatalf("paste: %v", err)
	}
	d.set(func(d *tmuxd) { d.err = nil })
}

func (d *fencing) reach(t *testing.T) (h *Host, sequence *tokens) {
	addr, stop := serve(t, d)
	t.Cleanup(stop)
	sequence = &tokens{}
	return dial(t, "a", addr, sequence), sequence
}

func TestFloor_IsGivenBeforeAnyMutation(t *testing.T) {
	for name, mutate := range map[string]func(*Host) error{
		"spawn": func(h *Host) error { _, err := h.Spawn(t.Context(), deliver.SpawnOrder{Token: 50}); return err },
		"paste": func(h *Host) error { _, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 50}); return err },
	} {
		d := newFencing()
		h, _ := d.reach(t)
		if err := mutate(h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		first, ok := d.asked[0].(*tmuxdv1.RaiseFenceRequest)
		if !ok || len(d.asked) != 2 || first.GetFloor() != 42 {
			t.Errorf("%s: the host was asked %v", name, d.asked)
		}
	}
}

// A floor refuses the leases that were taken before it. If each refusal led to another floor, two deliveries would refuse each other for ever.
func TestFloor_StaysWhileTheConnectionDoes(t *testing.T) {
	d := newFencing()
	h, sequence := d.reach(t)
	h.Probe(t.Context(), item, "")
	d.refuse(t, h)
	d.set(func(d *tmuxd) { d.err = fault.New(fault.Unavailable, fault.ReasonTmuxNoAnswer, "silent") })
	h.Probe(t.Context(), item, "")
	d.set(func(d *tmuxd) { d.err = fault.New(fault.Unavailable, fault.ReasonDeadline, "slow") })
	h.Probe(t.Context(), item, "")
	d.set(func(d *tmuxd) { d.err = nil })
	h.Probe(t.Context(), item, "")
	if got := sequence.raised(); len(got) != 4 {
		t.Errorf("greeted %d times", len(got))
	}
	if got := d.floors(); len(got) != 1 {
		t.Errorf("floors %v", got)
	}
}

func TestFloor_IsGivenAgainToAHostThatLostIt(t *testing.T) {
	d := newFencing()
	h, sequence := d.reach(t)
	h.Probe(t.Context(), item, "")
	// Both files are lost, and the database goes back as well: what is left to remember the past by is this process.
	d.change(func(i *tmuxdv1.InfoResponse) { i.FencingFloor, i.HighestFencingToken = 0, 0 })
	sequence.set(3)
	d.refuse(t, h)
	h.Probe(t.Context(), item, "")
	if got := d.floors(); len(got) != 2 || got[1] <= got[0] {
		t.Errorf("floors %v", got)
	}
}

func TestFloor_TheSequenceIsRaisedAboveAFloorThatNobodyActedUnder(t *testing.T) {
	d := newFencing()
	d.info.FencingFloor = 90
	h, sequence := d.reach(t)
	h.Probe(t.Context(), item, "")
	if raised, floors := sequence.raised(), d.floors(); raised[0] != 90 || len(floors) != 1 || floors[0] != 91 {
		t.Errorf("raised above %v, floors %v", raised, floors)
	}
}

func TestFloor_ANewOneIsGivenOnEachConnection(t *testing.T) {
	d := newFencing()
	addr, stop := serve(t, d)
	h := dial(t, "a", addr, &tokens{})
	h.Probe(t.Context(), item, "")
	stop()
	if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeUnreachable {
		t.Fatalf("probe of a host that is gone: %+v", got)
	}
	listener, err := rpc.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.Options{})
	tmuxdv1.RegisterTmuxdServiceServer(server, d)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	defer func() { cancel(); <-served }()
	for limit := time.Now().Add(20 * time.Second); h.Probe(t.Context(), item, "").Probe != dispatch.ProbeAbsent; {
		if time.Now().After(limit) {
			t.Fatal("the host is not reached again")
		}
	}
	if got := d.floors(); len(got) != 2 || got[1] <= got[0] {
		t.Errorf("floors %v", got)
	}
}

func TestFloor_ManyWhoGreetAtOnceGiveOne(t *testing.T) {
	d := newFencing()
	h, _ := d.reach(t)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeAbsent {
				t.Errorf("%+v", got)
			}
		})
	}
	wait.Wait()
	if got := d.floors(); len(got) != 1 {
		t.Errorf("floors %v", got)
	}
}

func TestFloor_AHostThatCannotKeepItIsGivenNoMutation(t *testing.T) {
	d := newFencing()
	d.full = true
	h, _ := d.reach(t)
	if got, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 50}); err != nil || got.Paste != dispatch.PasteSilent ||
		!strings.Contains(got.Detail, "no space") {
		t.Errorf("paste %+v, %v", got, err)
	}
	if got := h.Probe(t.Context(), item, ""); got.Probe != dispatch.ProbeUnknown {
		t.Errorf("probe %+v", got)
	}
	if got := d.floors(); len(got) != 2 || len(d.asked) != 2 {
		t.Errorf("the host was asked %v", d.asked)
	}
}

func TestFloor_AnOlderTmuxdWorksAsBeforeAndIsNamedOnce(t *testing.T) {
	d := newTmuxd()
	d.paste = &tmuxdv1.PasteResponse{Verdict: &tmuxdv1.PasteResponse_Submitted{Submitted: &tmuxdv1.Submitted{}}}
	h := reach(t, d)
	var log bytes.Buffer
	h.config.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	for range 3 {
		if got, err := h.Paste(t.Context(), deliver.PasteOrder{Token: 50}); err != nil || got.Paste != dispatch.PasteSubmitted {
			t.Errorf("paste %+v, %v", got, err)
		}
		h.forget()
	}
	if n := strings.Count(log.String(), "this tmuxd is older and takes no floor"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, log.String())
	}
}

// A tmuxd that was replaced by an older one is not asked for the floor that the newer one had.
func TestFloor_ATmuxdThatBecameOlderIsAskedOnce(t *testing.T) {
	d := newTmuxd()
	h := reach(t, d)
	h.floor = 30 // of the newer one
	for range 3 {
		h.Probe(t.Context(), item, "")
		h.forget()
	}
	if h.floor != 0 || h.fenced != h.life {
		t.Errorf("floor %d, given in life %d of %d", h.floor, h.fenced, h.life)
	}
}
