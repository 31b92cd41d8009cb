package hosts

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/place"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

// registryEvery is how often what operators said of hosts is read again: another dispatcher may have been told.
const registryEvery = 2 * time.Second

// Address names a host of the configuration.
type Address struct {
	// Name is as Config.Name; with several hosts each has one.
	Name, Address string
}

// FleetConfig says which hosts there are.
type FleetConfig struct {
	// Hosts are those of the configuration; further ones are in the registry.
	Hosts    []Address
	Registry Registry
	Tokens   Tokens
	// Activities is as in Config.
	Activities Activities
	// Labels says which labels a host must have for a work item; nil asks for none.
	Labels func(workItem string) map[string]string
	// Tell is called with hints, as Host.Follow does; nil drops them.
	Tell func(workItem string)
	// TellAttempt is called with hints, as Host.FollowAttempts does; nil drops them.
	TellAttempt    func(id string)
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	// MeterProvider and Silent are as in Config.
	MeterProvider metric.MeterProvider
	Silent        func(host string)
	// TLS returns by what a host of that name at that address is known, nil for one on this machine; it fails where it could not be known. Nil
	// is for hosts on this machine alone.
	TLS func(name, address string) (*tls.Config, error)
}

// Fleet is all hosts. It may be used by many goroutines.
type Fleet struct {
	config FleetConfig
	// sync has room for one.
	syncing chan struct{}

	mu      sync.Mutex
	members []*member
	// named are the members by the name that they must have.
	named   map[string]*member
	running context.Context // set once Run was called
	group   sync.WaitGroup
}

// member is a host with its goroutines.
type member struct {
	*Host
	// registered is true for a host of the registry, which may go.
	registered bool
	stop       context.CancelFunc
}

var _ deliver.Hosts = (*Fleet)(nil)

// NewFleet returns the hosts of the configuration. They are reached with the first call, or with Run. The caller closes it.
func NewFleet(config FleetConfig) (*Fleet, error) {
	if config.Tell == nil {
		config.Tell = func(string) {}
	}
	if config.TellAttempt == nil {
		config.TellAttempt = func(string) {}
	}
	f := &Fleet{config: config, syncing: make(chan struct{}, 1), named: map[string]*member{}}
	for _, a := range config.Hosts {
		if err := f.add(a, false); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// Close ends the connections.
func (f *Fleet) Close() {
	for _, m := range f.all() {
		m.stop()
		_ = m.Close() // nothing is under way any more
	}
	f.group.Wait()
}

// Meet greets all hosts at once, so that tokens are ones that they accept before the first lease. One that is away is greeted when it comes.
func (f *Fleet) Meet(ctx context.Context) {
	if err := f.Sync(ctx); err != nil {
		f.config.Logger.LogAttrs(ctx, slog.LevelWarn, "what is recorded of hosts could not be read", slog.String(obs.KeyError, err.Error()))
	}
	var group sync.WaitGroup
	for _, m := range f.all() {
		group.Go(func() { m.Meet(ctx) })
	}
	group.Wait()
}

// Run keeps the connections up and follows the hosts, until ctx ends; it returns nil.
func (f *Fleet) Run(ctx context.Context) error {
	f.mu.Lock()
	f.running = ctx
	members := slices.Clone(f.members)
	f.mu.Unlock()
	for _, m := range members {
		f.start(ctx, m)
	}
	ticker := time.NewTicker(registryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			f.group.Wait()
			return nil
		case <-ticker.C:
		}
		if err := f.Sync(ctx); err != nil && ctx.Err() == nil {
			f.config.Logger.LogAttrs(ctx, slog.LevelDebug, "what is recorded of hosts could not be read", slog.String(obs.KeyError, err.Error()))
		}
	}
}

// start runs what a member needs.
func (f *Fleet) start(ctx context.Context, m *member) {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	m.stop = cancel
	f.mu.Unlock()
	f.group.Go(func() { _ = m.Watch(ctx) })
	f.group.Go(func() { _ = m.Follow(ctx, f.config.Tell) })
	f.group.Go(func() { _ = m.FollowAttempts(ctx, f.config.TellAttempt) })
	f.group.Go(func() { m.Revive(ctx, f.config.Tell) })
}

// add makes a member. f.mu is not held.
func (f *Fleet) add(a Address, registered bool) error {
	var secure *tls.Config
	if f.config.TLS != nil {
		var err error
		if secure, err = f.config.TLS(a.Name, a.Address); err != nil {
			return err
		}
	}
	host, err := Dial(Config{Name: a.Name, Address: a.Address, Tokens: f.config.Tokens, Registry: f.config.Registry, Activities: f.config.Activities,
		Logger: f.config.Logger, TracerProvider: f.config.TracerProvider, MeterProvider: f.config.MeterProvider, Silent: f.config.Silent, TLS: secure})
	if err != nil {
		return err
	}
	m := &member{Host: host, registered: registered, stop: func() {}}
	f.mu.Lock()
	f.members = append(f.members, m)
	if a.Name != "" {
		f.named[a.Name] = m
	}
	running := f.running
	f.mu.Unlock()
	if running != nil {
		f.start(running, m)
	}
	return nil
}

// Sync reads what is recorded of hosts, and takes up those that were added and lets go those that were forgotten.
func (f *Fleet) Sync(ctx context.Context) error {
	select {
	case f.syncing <- struct{}{}:
		defer func() { <-f.syncing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	records, err := f.config.Registry.Hosts(ctx)
	if err != nil {
		return err
	}
	byName := map[string]deliver.HostRecord{}
	for _, r := range records {
		byName[r.Name] = r
	}
	for _, m := range f.all() {
		r, ok := byName[m.Name()]
		if m.registered && (!ok || r.Address != m.config.Address) {
			f.remove(m)
			continue
		}
		m.recorded(r)
		delete(byName, m.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if r := byName[name]; r.Address != "" {
			if err := f.add(Address{Name: name, Address: r.Address}, true); err != nil {
				f.config.Logger.LogAttrs(ctx, slog.LevelWarn, "a host that was added cannot be called", slog.String(obs.KeyHost, name),
					slog.String(obs.KeyAddress, r.Address), slog.String(obs.KeyError, err.Error()))
			}
		}
	}
	return nil
}

func (f *Fleet) remove(m *member) {
	f.mu.Lock()
	f.members = slices.DeleteFunc(slices.Clone(f.members), func(o *member) bool { return o == m })
	if f.named[m.config.Name] == m {
		delete(f.named, m.config.Name)
	}
	stop := m.stop
	f.mu.Unlock()
	stop()
	_ = m.Close() // calls under way at it get no answer, and none is lost by that
}

func (f *Fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

// On returns the host of that name. The one host of a configuration that names none counts as any until it said its name.
func (f *Fleet) On(name string) (deliver.Host, bool) {
	h, ok := f.on(name)
	return h, ok
}

func (f *Fleet) on(name string) (*Host, bool) {
	f.mu.Lock()
	m, ok := f.named[name]
	members := f.members
	f.mu.Unlock()
	if ok {
		return m.Host, true
	}
	for _, m := range members {
		if m.config.Name == "" && m.Name() == name {
			return m.Host, true
		}
	}
	if len(members) == 1 && members[0].config.Name == "" {
		return members[0].Host, true
	}
	return nil, false
}

// Followed reports whether every change of a host is heard of now, and until when it was last; zero when that is not known.
func (f *Fleet) Followed(host string) (now bool, until time.Time) {
	if h, ok := f.on(host); ok {
		return h.Followed()
	}
	return false, time.Time{}
}

// Show asks the host of a session for it and for what its agent does, for people; with look its screen is read for that in any case.
func (f *Fleet) Show(ctx context.Context, host, workItem string, look bool) deliver.Sight {
	h, ok := f.on(host)
	if !ok {
		return deliver.Sight{Host: host, Probe: dispatch.ProbeUnreachable, Detail: "this dispatcher does not know the host"}
	}
	return h.Show(ctx, workItem, look)
}

// Builds returns the builds of the hosts' tmuxds. One that was never reached counts where none was.
func (f *Fleet) Builds() (out []deliver.Build) {
	for _, m := range f.all() {
		if b := m.Build(); b.Release != "" || b.Commit != "" {
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		out = append(out, deliver.Build{Program: "tmuxd"})
	}
	return out
}

// Statuses says how all hosts stand, by name.
func (f *Fleet) Statuses() (out []deliver.HostStatus) {
	for _, m := range f.all() {
		s := m.status()
		s.Added = m.registered
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b deliver.HostStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (h *Host) status() deliver.HostStatus {
	build := h.Build()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := deliver.HostStatus{Name: h.name, Address: h.config.Address, Reached: h.reached, Since: h.since, Detail: h.why, KeptAway: h.breaker.open(),
		Record: h.record, Live: h.live, Capacity: int(h.info.GetCapacity()), Build: build, TmuxVersion: plain(h.info.GetTmuxVersion()),
		Labels: map[string]string{}}
	for name, value := range h.info.GetLabels() {
		out.Labels[plain(name)] = plain(value)
	}
	for _, harness := range h.info.GetHarnesses() {
		if harness.GetBinary() != "" {
			out.Harnesses = append(out.Harnesses, plain(harness.GetName()))
		}
	}
	for _, w := range h.info.GetWarnings() {
		out.Warnings = append(out.Warnings, plain(w))
	}
	return out
}

// Seek finds the host of a work item for which none is recorded.
func (f *Fleet) Seek(ctx context.Context, w deliver.Want) (deliver.Host, deliver.Sight) {
	s := seeking{want: w, sights: map[*Host]deliver.Sight{}}
	for _, m := range f.all() {
		if !slices.Contains(w.Left, m.Name()) {
			s.hosts = append(s.hosts, m.Host)
		}
	}
	s.ask(ctx, func(h *Host) bool { _, may := h.mayHave(w.WorkItem); return may })
	if h := s.owner(); h != nil {
		return h, s.sights[h]
	}
	if h, sight, told := s.told(); told {
		return h, sight
	}
	labels := map[string]string(nil)
	if f.config.Labels != nil {
		labels = f.config.Labels(w.WorkItem)
	}
	choice := s.choose(labels)
	if choice.Host == "" && choice.Passing {
		// What was last heard of them may be old.
		s.ask(ctx, func(h *Host) bool { return choice.Left[h.Name()] == place.Silent })
		choice = s.choose(labels)
	}
	for _, h := range s.hosts {
		if h.Name() == choice.Host && choice.Host != "" {
			s.ask(ctx, func(o *Host) bool { return o == h })
			h.place()
			return h, s.sights[h]
		}
	}
	return s.nobody(choice)
}

// seeking is one search for the host of a work item.
type seeking struct {
	want   deliver.Want
	hosts  []*Host
	sights map[*Host]deliver.Sight
}

// ask probes those hosts that are wanted and were not asked yet, at once.
func (s *seeking) ask(ctx context.Context, wanted func(*Host) bool) {
	var asked []*Host
	for _, h := range s.hosts {
		if _, before := s.sights[h]; !before && wanted(h) {
			asked = append(asked, h)
		}
	}
	sights := make([]deliver.Sight, len(asked))
	var group sync.WaitGroup
	for i, h := range asked {
		group.Go(func() { sights[i] = h.Probe(ctx, s.want.WorkItem, s.want.DeliveryID) })
	}
	group.Wait()
	for i, h := range asked {
		s.sights[h] = sights[i]
	}
}

// owner returns the host that has the session, alive before all else; nil when none has it.
func (s *seeking) owner() *Host {
	has := func(wanted func(deliver.Sight) bool) *Host {
		for _, h := range s.hosts {
			if sight, asked := s.sights[h]; asked && wanted(sight) {
				return h
			}
		}
		return nil
	}
	if h := has(func(o deliver.Sight) bool { return o.Probe == dispatch.ProbeLive || o.Probe == dispatch.ProbeDetached }); h != nil {
		for _, other := range s.hosts {
			if other != h && s.sights[other].Probe == dispatch.ProbeLive {
				sight := s.sights[h]
				sight.Probe = dispatch.ProbeUnknown
				sight.Detail = fmt.Sprintf("two hosts have a living session of it, %s and %s: end one of them", h.Name(), other.Name())
				s.sights[h] = sight
			}
		}
		return h
	}
	return has(func(o deliver.Sight) bool {
		return o.Probe == dispatch.ProbeDead || o.Probe == dispatch.ProbeAbsent && o.ConversationID != ""
	})
}

// told returns a host that told of a session and does not answer for it now: nothing is started elsewhere then.
func (s *seeking) told() (*Host, deliver.Sight, bool) {
	for _, h := range s.hosts {
		sight := s.sights[h]
		if has, _ := h.mayHave(s.want.WorkItem); has && (sight.Probe == dispatch.ProbeUnreachable || sight.Probe == dispatch.ProbeUnknown) {
			return h, sight, true
		}
	}
	return nil, deliver.Sight{}, false
}

// taken reports whether something else has the session's name on a host.
func taken(p dispatch.Probe) bool { return p == dispatch.ProbeForeign || p == dispatch.ProbeGuests }

// choose places the session. A host on which something else has its name counts only where there is no other.
func (s *seeking) choose(labels map[string]string) place.Choice {
	var free, all []place.Host
	for _, h := range s.hosts {
		known := h.forPlacing(s.want)
		if sight, asked := s.sights[h]; asked {
			known.Reached = sight.Probe != dispatch.ProbeUnreachable
		}
		if all = append(all, known); !taken(s.sights[h].Probe) {
			free = append(free, known)
		}
	}
	if c := place.Choose(labels, free); c.Host != "" || len(free) == len(all) {
		return c
	}
	return place.Choose(labels, all)
}

// nobody says why no host was found.
func (s *seeking) nobody(c place.Choice) (deliver.Host, deliver.Sight) {
	if len(s.hosts) == 1 {
		if sight, asked := s.sights[s.hosts[0]]; asked && sight.Probe == dispatch.ProbeUnreachable {
			return s.hosts[0], sight
		}
	}
	out := deliver.Sight{Probe: dispatch.ProbeNowhere, Detail: "there is no host"}
	if c.Passing {
		out.Probe = dispatch.ProbeUnreachable
	}
	var why []string
	for _, name := range slices.Sorted(maps.Keys(c.Left)) {
		why = append(why, name+": "+string(c.Left[name]))
	}
	if len(why) > 0 {
		out.Detail = strings.Join(why, ", ")
	}
	return nil, out
}

// forPlacing is what placement has to know of the host.
func (h *Host) forPlacing(w deliver.Want) place.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := place.Host{Name: h.name, Labels: h.info.GetLabels(), Reached: h.reached && h.breaker.open().IsZero(), Draining: h.record.Draining, Capacity: int(h.info.GetCapacity())}
	for _, harness := range h.info.GetHarnesses() {
		out.Starts = out.Starts || harness.GetName() == w.Harness && harness.GetBinary() != ""
	}
	h.placed = slices.DeleteFunc(h.placed, func(at time.Time) bool { return time.Since(at) > placedFor })
	out.Live, out.Near = h.live+len(h.placed), h.near[repositoryOf(w.WorkItem)]
	return out
}

// place notes that a session is about to start on the host.
func (h *Host) place() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placed = append(h.placed, time.Now())
}

// Draining reports whether nothing more is to be started on the host.
func (h *Host) Draining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.record.Draining
}

// recorded takes what is recorded of the host.
func (h *Host) recorded(r deliver.HostRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record = r
}
