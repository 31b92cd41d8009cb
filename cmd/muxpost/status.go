package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/layout"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

const (
	// statusTime bounds each question of a status.
	statusTime = 3 * time.Second
	// listedWaits is how many events of each state that wait are asked for, and shownWaits how many are shown to a person.
	listedWaits = 100
	shownWaits  = 10
)

// report is everything that muxpost status tells.
type report struct {
	DataDir  string          `json:"data_dir"`
	Config   string          `json:"config"`
	Services []serviceReport `json:"services"`
	Postgres postgresReport  `json:"postgres"`
	Sources  []sourceReport  `json:"sources"`
	// Ledger and Sessions count by state; nil when the service that knows does not answer.
	Ledger   map[string]int `json:"ledger"`
	Sessions map[string]int `json:"sessions"`
	Waiting  []waitReport   `json:"waiting"`
	Agents   []stack.Agent  `json:"agents"`
	// Pauses are what operators hold back, and Shadow is true while the dispatcher only looks.
	Pauses   []pauseReport `json:"pauses"`
	Shadow   bool          `json:"shadow"`
	Problems []string      `json:"problems"`
}

type serviceReport struct {
	Service string     `json:"service"`
	State   string     `json:"state"` // healthy, unhealthy, down
	Detail  string     `json:"detail,omitempty"`
	Version string     `json:"version,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Address string     `json:"address"`
}

type postgresReport struct {
	State    string `json:"state"` // running, down, elsewhere, unknown
	Detail   string `json:"detail"`
	Database string `json:"database,omitempty"`
	Local    bool   `json:"local"`
	PID      int    `json:"pid,omitempty"`
}

// believe takes the word of services that serve, which they do while the database answers them: that this user may not use it is another matter.
func (r *postgresReport) believe(served bool) bool {
	if r.State != "down" || !served {
		return false
	}
	r.State, r.Detail = "running", "the services reach it, and this user does not: "+r.Detail
	return true
}

type waitReport struct {
	DeliveryID string     `json:"delivery_id"`
	WorkItem   string     `json:"work_item"`
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	Detail     string     `json:"detail,omitempty"`
	NextLook   *time.Time `json:"next_look,omitempty"`
	// Behind says which event of its item has to end first.
	Behind string `json:"behind,omitempty"`
}

// next is when it is looked at next; nil while it is being delivered.
func (w waitReport) next() *timestamppb.Timestamp {
	if w.NextLook == nil || w.State == view.LedgerState(pollerv1.LedgerState_LEDGER_STATE_LEASED) {
		return nil
	}
	return timestamppb.New(*w.NextLook)
}

func statusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show what runs, what waits and why; works when things are down", Args: args(0, 0, ""),
		Long: "status shows what runs, what waits and why. Exit codes: 0 everything serves, 3 a service or the database is away.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.dial()
			if err != nil {
				return err
			}
			defer s.close()
			r := a.status(cmd.Context(), s)
			if a.json {
				if err := a.values(r); err != nil {
					return err
				}
			} else {
				r.print(a.printer())
			}
			return r.away()
		},
	}
	a.jsonFlag(c)
	return c
}

// status asks everybody at once whether they serve, and only those who do for more, so that it takes twice statusTime at most.
func (a *app) status(ctx context.Context, s *services) report {
	here := slices.DeleteFunc(layout.Services(), func(service layout.Service) bool { return !s.Here(service) && s.Called(service) == s.Address(service) })
	r := report{DataDir: string(s.DataDir), Config: s.File, Services: make([]serviceReport, len(here)), Problems: []string{}, Pauses: []pauseReport{}}
	if !s.Found {
		r.Config = ""
	}
	var wait sync.WaitGroup
	for i, service := range here {
		wait.Go(func() { r.Services[i] = serviceStatus(ctx, s, service) })
	}
	wait.Go(func() { r.Postgres = postgresStatus(ctx, s) })
	wait.Wait()
	r.Postgres.believe(r.serves(layout.Dispatcher) || r.serves(layout.Poller))
	st := a.stack(s.Settings)
	var err error
	if r.Agents, err = st.Agents(); err != nil {
		r.Problems = append(r.Problems, "agents: "+err.Error())
	}
	r.Sources = s.configuredSources()
	counting, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if r.serves(layout.Poller) {
		if r.Sources, err = s.sourceStatus(counting); err != nil {
			r.Problems = append(r.Problems, "sources: "+messageOf(err))
		}
		r.readLedger(counting, s)
	}
	if r.serves(layout.Dispatcher) {
		r.readHosts(counting, s)
		r.countSessions(counting, s)
		r.readPauses(counting, s)
	}
	return r
}

// serves reports whether a service answered that it serves; others are not asked for more.
func (r *report) serves(service layout.Service) bool {
	return slices.ContainsFunc(r.Services, func(s serviceReport) bool { return s.Service == string(service) && s.State == "healthy" })
}

// away says who does not serve; nil when everybody does.
func (r *report) away() error {
	var names []string
	for _, s := range r.Services {
		if s.State != "healthy" {
			names = append(names, s.Service)
		}
	}
	if r.Postgres.State != "running" && r.Postgres.State != "elsewhere" {
		names = append(names, "postgres")
	}
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.Unavailable, "", "away: "+strings.Join(names, ", ")).
		WithRemedy("muxpost up starts what does not run, and muxpost doctor finds what is wrong")
}

func serviceStatus(ctx context.Context, s *services, service layout.Service) serviceReport {
	r := serviceReport{Service: string(service), State: "down", Address: s.Called(service)}
	if r.Address != s.Address(service) {
		return elsewhere(ctx, s, service, r)
	}
	found := stack.Find(s.DataDir, service)
	if found.Life == stack.Running {
		r.PID, r.Version, r.Since, r.Address = found.Process.Pid, found.Version, &found.StartedAt, found.Address
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	err := stack.Health(ctx, service, r.Address)
	switch {
	case err == nil:
		r.State = "healthy"
		if found.Life != stack.Running {
			r.Detail = "it was not started from this data directory"
		}
	case found.Life == stack.Running:
		r.State, r.Detail = "unhealthy", messageOf(err)
	case found.Life == stack.Ended:
		r.Detail = fmt.Sprintf("it had been started and ended (pid %d); see %s, then muxpost up", found.Process.Pid, s.DataDir.Log(service))
	case found.Life == stack.Unclear:
		r.Detail = found.Problem
	default:
		r.Detail = "start it with muxpost up"
	}
	return r
}

// elsewhere is serviceStatus for a service of another installation, which is called and of which no process is known.
func elsewhere(ctx context.Context, s *services, service layout.Service, r serviceReport) serviceReport {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	conn, err := s.conn(service)
	if err == nil {
		err = stack.HealthOf(ctx, service, conn)
	}
	if err != nil {
		r.Detail = messageOf(err)
		return r
	}
	r.State, r.Detail = "healthy", "it is elsewhere (command."+string(service)+")"
	return r
}

// messageOf is an error's text without its remedy.
func messageOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.WithRemedy("").Error()
	}
	return err.Error()
}

// readHosts adds the hosts whose tmuxd is not of this installation, as the dispatcher sees them.
func (r *report) readHosts(ctx context.Context, s *services) {
	var all *dispatcherv1.ListHostsResponse
	err := s.dispatcherWithin(ctx, statusTime, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) (err error) {
		all, err = c.ListHosts(ctx, &dispatcherv1.ListHostsRequest{})
		return err
	})
	if err != nil {
		r.Problems = append(r.Problems, "hosts: "+messageOf(err))
		return
	}
	for _, h := range all.GetHosts() {
		if s.Here(layout.Tmuxd) && h.GetAddress() == s.Address(layout.Tmuxd) {
			continue // its own line says so
		}
		row := serviceReport{Service: "host " + view.Clean(h.GetName()), State: "healthy", Address: view.Clean(h.GetAddress()), Detail: view.Clean(h.GetDetail()),
			Version: view.Clean(h.GetBuild().GetRelease())}
		if !h.GetReached() {
			row.State = "down"
		}
		r.Services = append(r.Services, row)
	}
}

func postgresStatus(ctx context.Context, s *services) postgresReport {
	if !s.Here(layout.Dispatcher) && !s.Here(layout.Poller) {
		return postgresReport{State: "elsewhere", Detail: "where the dispatcher is"}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	database, err := s.Database()
	if err != nil {
		return postgresReport{State: "unknown", Detail: err.Error()}
	}
	r := postgresReport{State: "down", Local: database.Local()}
	url := database.URL
	if database.Local() {
		cluster, err := stack.AttachPostgres(ctx, s.DataDir)
		if err != nil {
			r.Detail = messageOf(err)
			return r
		}
		r.PID, url = cluster.Pid(), cluster.URL(layout.Database)
	}
	r.Database, _ = db.Describe(url)
	pool, err := db.Open(ctx, db.Config{URL: url, AppName: "muxpost-status", MaxConns: 2})
	if err != nil {
		r.Detail = messageOf(err)
		return r
	}
	defer pool.Close()
	r.State, r.Detail = "running", "its schema is that of this release"
	if err := migrations.Check(ctx, pool); err != nil {
		r.Detail = err.Error()
	} else if all, err := migrations.Status(ctx, pool); err == nil && slices.ContainsFunc(all, func(m migrations.Migration) bool { return m.Name == "" }) {
		r.Detail = "its schema is that of a later release, with which this one works"
	}
	return r
}

// readLedger counts the ledger and lists what waits.
func (r *report) readLedger(ctx context.Context, s *services) {
	var answer *pollerv1.CountLedgerResponse
	err := s.poller(ctx, statusTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
		answer, err = c.CountLedger(ctx, &pollerv1.CountLedgerRequest{})
		return err
	})
	if err != nil {
		r.Problems = append(r.Problems, "ledger: "+messageOf(err))
		return
	}
	r.Ledger = map[string]int{}
	for _, c := range answer.GetCounts() {
		r.Ledger[view.LedgerState(c.GetState())] = int(c.GetCount())
		if !waits(c.GetState()) || c.GetCount() == 0 {
			continue
		}
		rows, err := s.ledger(ctx, "", c.GetState(), listedWaits)
		if err != nil {
			r.Problems = append(r.Problems, "ledger: "+messageOf(err))
			return
		}
		for _, e := range rows.GetEntries() {
			r.Waiting = append(r.Waiting, waitReport{DeliveryID: e.GetDeliveryId(), WorkItem: e.GetWorkItem(),
				State: view.LedgerState(e.GetState()), Reason: e.GetReason(), Detail: e.GetDetail(), NextLook: timeOf(e.GetNextLook()),
				Behind: view.Behind(e)})
		}
	}
}

// waiting is how many events wait in all.
func (r *report) waiting() int {
	n := 0
	for state := range pollerv1.LedgerState_name {
		if s := pollerv1.LedgerState(state); waits(s) {
			n += r.Ledger[view.LedgerState(s)]
		}
	}
	return n
}

func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

func (r *report) countSessions(ctx context.Context, s *services) {
	all, err := s.sessions(ctx, "", maxPage, false)
	if err != nil {
		r.Problems = append(r.Problems, "sessions: "+messageOf(err))
		return
	}
	r.Sessions = map[string]int{}
	for n := 1; n < len(dispatcherv1.SessionState_name); n++ {
		r.Sessions[view.SessionState(dispatcherv1.SessionState(n))] = 0
	}
	for _, session := range all.GetSessions() {
		r.Sessions[view.SessionState(session.GetState())]++
	}
}

func (r report) print(p view.Printer) {
	config := r.Config
	if config == "" {
		config = "no configuration yet"
	}
	p.Line("%s  %s", p.Paint(view.Bold, r.DataDir), config)
	r.printPauses(p)
	p.Write(r.table(p))
	p.Line("")
	for _, fact := range r.sourceFacts(p) {
		p.Line("%s  %s", label(p, fact.Label), fact.Text)
	}
	p.Line("%s  %s", label(p, "ledger"), tally(p, r.Ledger, ledgerStates()))
	p.Line("%s  %s", label(p, "sessions"), tally(p, r.Sessions, sessionStates()))
	p.Line("%s  %s", label(p, "agents"), r.agents())
	r.printWaiting(p)
}

func sessionStates() []string { return []string{"live", "dead", "absent", "unknown"} }

func (r report) agents() string {
	return view.Count(len(r.Agents), "tmux server runs on this host", "tmux servers run on this host")
}

// table is the table of the services, and of the database.
func (r report) table(p view.Printer) view.Table {
	var rows [][]view.Cell
	for _, s := range r.Services {
		pid, since := "", view.Cell{}
		if s.PID > 0 {
			pid = fmt.Sprint(s.PID)
		}
		if s.Since != nil {
			since = view.Cell{Text: p.Ago(*s.Since), At: *s.Since}
		}
		rows = append(rows, []view.Cell{view.Text(s.Service), {Text: s.State, Tone: view.ToneOf(s.State)}, view.Text(s.Version), view.Text(pid),
			since, view.Text(s.Address), view.Text(s.Detail)})
	}
	pid := ""
	if r.Postgres.PID > 0 {
		pid = fmt.Sprint(r.Postgres.PID)
	}
	rows = append(rows, []view.Cell{view.Text("postgres"), {Text: r.Postgres.State, Tone: view.ToneOf(r.Postgres.State)}, view.Text(""),
		view.Text(pid), view.Text(""), view.Text(map[bool]string{true: "local", false: "named"}[r.Postgres.Local]), view.Text(r.Postgres.Detail)})
	return view.Table{Header: []string{"SERVICE", "STATE", "VERSION", "PID", "STARTED", "ADDRESS", ""}, Rows: rows}
}

func tally(p view.Printer, counts map[string]int, order []string) string {
	if counts == nil {
		return p.Paint(view.Warn, "not known: the service that knows does not answer")
	}
	var words []string
	for _, state := range order {
		if n := counts[state]; n > 0 {
			text := fmt.Sprintf("%d %s", n, state)
			words = append(words, p.Paint(view.ToneOf(state), text))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func (r report) printWaiting(p view.Printer) {
	if len(r.Waiting) == 0 {
		return
	}
	p.Line("\n%s", p.Paint(view.Bold, "waiting"))
	for _, w := range r.Waiting[:min(len(r.Waiting), shownWaits)] {
		var next string
		if w.Behind != "" {
			next = ", " + p.Clip(w.Behind, 160)
		} else if next = p.Due(w.next()); next != "" && next != view.DueNow {
			next = ", looked at " + next
		} else if next != "" {
			next = ", " + next
		}
		reason := w.State
		if w.Reason != "" {
			reason += " (" + view.Clean(w.Reason) + ")"
		}
		p.Line("  %s  %s  %s%s", w.DeliveryID, view.Clean(w.WorkItem), p.Paint(view.ToneOf(w.State), reason), next)
		if w.Detail != "" {
			p.Line("      %s", p.Clip(w.Detail, 160))
		}
	}
	if left := r.waiting() - min(len(r.Waiting), shownWaits); left > 0 {
		p.Line("  and %d more: muxpost ledger --state pending, and --state held", left)
	}
}
