package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// here are the services that are meant to run from this installation.
func (d *doctor) here() []layout.Service {
	return slices.DeleteFunc(layout.Services(), func(service layout.Service) bool { return !d.Here(service) })
}

func (d *doctor) pidFiles(context.Context) {
	const check = "pid files"
	fine := true
	for _, service := range layout.Services() {
		switch found := stack.Find(d.DataDir, service); found.Life {
		case stack.Ended:
			fine = false
			d.add(check, levelWarn, fmt.Sprintf("%s was started and has ended (pid %d is gone)", service, found.Process.Pid),
				"see "+d.DataDir.Log(service)+" for why; muxpost up starts it again")
		case stack.Unclear:
			fine = false
			d.add(check, levelFail, found.Problem, "remove "+d.DataDir.PIDFile(service)+" if the service does not run")
		case stack.NeverStarted, stack.Running:
		}
	}
	if fine {
		d.ok(check, "none is stale")
	}
}

func (d *doctor) serviceHealth(ctx context.Context) {
	const check = "services"
	for _, service := range d.here() {
		r := serviceStatus(ctx, d.services, service)
		d.healthy[string(service)] = r.State == "healthy"
		switch {
		case r.State == "healthy" && r.Detail == "":
			d.ok(check, "%s is healthy (pid %d, %s)", service, r.PID, r.Address)
		case r.State == "healthy":
			d.ok(check, "%s is healthy at %s; %s", service, r.Address, r.Detail)
		case !d.begun:
			d.skip(check, fmt.Sprintf("%s does not run; muxpost up starts it", service))
		case r.State == "unhealthy":
			d.add(check, levelFail, fmt.Sprintf("%s runs and does not serve: %s", service, r.Detail), "see "+d.DataDir.Log(service))
		default:
			d.add(check, levelFail, fmt.Sprintf("%s does not run", service), r.Detail)
		}
	}
}

func (d *doctor) addresses(context.Context) {
	const check = "addresses"
	mismatches := d.Mismatches()
	for _, m := range mismatches {
		d.add(check, levelWarn, fmt.Sprintf("%s is %s, and %s is %s", m.Key, m.Calls, m.Other, m.Listens),
			"write the same address for both, unless the other service is meant to be elsewhere")
	}
	if len(mismatches) == 0 {
		d.ok(check, "the services call each other where they listen")
	}
	for _, service := range d.here() {
		if d.healthy[string(service)] || stack.Find(d.DataDir, service).Life == stack.Running {
			continue
		}
		if settings.CheckListen(d.Address(service)) != nil {
			continue // the check of the configuration says so
		}
		if !d.begun && d.Address(service) == d.DataDir.Address(service) {
			continue // its directory comes with the first muxpost up, and is not made here
		}
		if err := stack.CheckAddress(d.Address(service)); err != nil {
			d.err(check, levelFail, err)
		}
	}
}

func (d *doctor) database(ctx context.Context) {
	const check = "database"
	r := postgresStatus(ctx, d.services)
	believed := r.believe(d.healthy["dispatcher"] || d.healthy["poller"])
	switch {
	case r.State == "elsewhere":
		d.ok(check, "it is %s", r.Detail)
	case believed:
		d.ok(check, "%s", r.Detail)
	case r.State != "running" && r.Local && !d.begun:
		d.skip(check, "the local database does not run; muxpost up makes and starts it")
	case r.State != "running" && r.Local:
		d.add(check, levelFail, r.Detail, "muxpost up starts it")
	case r.State != "running":
		d.add(check, levelFail, r.Detail, "see that PostgreSQL runs and listens there, and that the URL is right")
	case strings.Contains(r.Detail, "migrate"):
		d.add(check, levelFail, r.Detail, "muxpost migrate")
	case r.Detail != "its schema is that of this release":
		d.add(check, levelFail, r.Detail, "")
	default:
		d.ok(check, "%s; %s", r.Database, r.Detail)
	}
}

// hostReached asks tmuxd for itself, and the dispatcher for what it hears from tmuxd.
func (d *doctor) hostReached(ctx context.Context) {
	const check = "host"
	if !d.Here(layout.Tmuxd) {
		d.ok(check, "agents are on other hosts; muxpost hosts says how those stand")
		d.dispatcherHears(ctx)
		return
	}
	if !d.healthy["tmuxd"] {
		d.skip(check, "tmuxd does not answer")
		return
	}
	conn, err := d.conn(layout.Tmuxd)
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	info, err := tmuxdv1.NewTmuxdServiceClient(conn).Info(ctx, &tmuxdv1.InfoRequest{})
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	if why := info.GetRefusesMutations(); why != "" {
		d.add(check, levelFail, "tmuxd starts and pastes nothing: "+why, "see that "+info.GetStateDir()+" can be written to")
	}
	for _, warning := range info.GetWarnings() {
		d.add(check, levelWarn, warning, "")
	}
	if want := d.Dispatcher.Host.Name; want != "" && want != info.GetHost() {
		d.add(check, levelFail, fmt.Sprintf("dispatcher.host.name is %q, and tmuxd says that it is %q", want, info.GetHost()),
			"correct one of them")
	}
	i := slices.IndexFunc(info.GetHarnesses(), func(h *tmuxdv1.HarnessInfo) bool { return h.GetName() == d.Dispatcher.Harness })
	switch {
	case d.Dispatcher.Harness == "":
	case i < 0:
		d.add(check, levelFail, "the tmuxd that runs does not know the harness "+d.Dispatcher.Harness,
			"muxpost down && muxpost up, if it was added to the file since")
	case info.GetHarnesses()[i].GetBinary() == "":
		d.add(check, levelFail, "the tmuxd that runs did not find the program of "+d.Dispatcher.Harness,
			"install it, then muxpost down && muxpost up")
	default:
		d.ok(check, "tmuxd %s on %s, %s", info.GetVersion(), info.GetHost(), info.GetTmuxVersion())
	}
	d.dispatcherHears(ctx)
}

// dispatcherHears looks for sessions that the dispatcher hears nothing of.
func (d *doctor) dispatcherHears(ctx context.Context) {
	const check = "dispatcher"
	if !d.healthy["dispatcher"] {
		d.skip(check, "the dispatcher does not answer")
		return
	}
	all, err := d.sessions(ctx, "", maxPage, false)
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	var silent []string
	for _, s := range all.GetSessions() {
		if s.GetState() == dispatcherv1.SessionState_SESSION_STATE_UNKNOWN {
			silent = append(silent, s.GetWorkItem()+": "+view.Clip(s.GetStateDetail(), 120))
		}
	}
	switch {
	case len(silent) > 0:
		d.add(check, levelFail, fmt.Sprintf("of %s it hears nothing: %s", view.Count(len(silent), "session", "sessions"),
			strings.Join(silent[:min(3, len(silent))], "; ")), "see that dispatcher.host.address is tmuxd's, and tmuxd's log")
	case len(all.GetSessions()) == 0:
		d.ok(check, "it answers, and has no session yet")
	default:
		d.ok(check, "it hears from the host of %s", view.Count(len(all.GetSessions()), "session", "sessions"))
	}
}

// dispatcherReached looks for events that wait because the poller does not reach the dispatcher.
func (d *doctor) dispatcherReached(ctx context.Context) {
	const check = "poller"
	if !d.healthy["poller"] {
		d.skip(check, "the poller does not answer")
		return
	}
	rows, err := d.ledger(ctx, "", pollerv1.LedgerState_LEDGER_STATE_PENDING, maxPage)
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	stuck := 0
	for _, e := range rows.GetEntries() {
		if e.GetReason() == "dispatcher_unreachable" {
			stuck++
		}
	}
	switch {
	case stuck > 0 && d.healthy["dispatcher"]:
		d.add(check, levelWarn, view.Count(stuck, "event waits", "events wait")+" because the dispatcher did not answer the last time",
			"they go on by themselves within a minute; if not, see that poller.dispatcher is its address")
	case stuck > 0:
		d.add(check, levelFail, view.Count(stuck, "event waits", "events wait")+" because the dispatcher does not answer", "muxpost up starts it")
	default:
		d.ok(check, "it answers, and no event waits for the dispatcher")
	}
}

// sourcesRead asks the poller how the latest looks at its sources went.
func (d *doctor) sourcesRead(ctx context.Context) {
	const check = "sources"
	p := d.app.printer()
	if len(d.Poller.Sources) == 0 {
		d.ok(check, "none is configured; events come by hand alone")
	}
	if !d.healthy["poller"] {
		if len(d.Poller.Sources) > 0 {
			d.skip(check, "the poller, which would know, does not answer")
		}
		return
	}
	sources, err := d.sourceStatus(ctx)
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	for _, s := range sources {
		switch {
		case s.Unknown:
			d.add(check, levelWarn, "the poller that runs does not know "+s.Name, "muxpost down && muxpost up, if it was added to the file since")
		case s.LastLook == nil:
			d.skip(check, s.Name+" was not looked at yet")
		case s.NotBefore != nil:
			d.add(check, levelWarn, fmt.Sprintf("%s asked to be left alone, and is looked at again %s: %s", s.Name, p.Ago(*s.NotBefore), s.LastError),
				"it goes on by itself; a longer interval asks less often")
		case s.LastError != "":
			d.add(check, levelFail, fmt.Sprintf("%s could not be read%s: %s", s.Name, s.when(p), s.LastError),
				"correct what it names; muxpost poll "+s.Name+" looks again at once")
		case s.LastSuccess == nil:
			d.skip(check, s.Name+" is being looked at for the first time")
		default:
			d.ok(check, "%s was read %s; it has shown %s", s.Name, p.Ago(*s.LastSuccess), view.Count(s.Items, "open work item", "open work items"))
		}
	}
}

// strayServers looks for tmux servers whose session nobody records.
func (d *doctor) strayServers(ctx context.Context) {
	const check = "tmux servers"
	agents, err := d.stack.Agents()
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	if len(agents) == 0 {
		d.ok(check, "none runs")
		return
	}
	if !d.healthy["dispatcher"] {
		d.skip(check, view.Count(len(agents), "runs", "run")+"; the dispatcher, which would know them, does not answer")
		return
	}
	// The pane of a session that was closed is kept for a look, and with it its server.
	all, err := d.listSessions(ctx, 0, &dispatcherv1.ListSessionsRequest{SkipProbe: true, Closed: true})
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	recorded := map[string]bool{}
	for _, s := range all.GetSessions() {
		recorded[s.GetTarget()] = true
	}
	strays := 0
	for _, agent := range agents {
		if !recorded[agent.Target] {
			strays++
			d.add(check, levelWarn, fmt.Sprintf("%s runs and nobody records its session", agent.Target),
				"look: "+strings.Join(quoted(attachArgs(d.Tmuxd.Tmux, agent.Socket, agent.Target, true)), " ")+
					"; the next event for its work item takes it into the record if it is muxpost's")
		}
	}
	if strays == 0 {
		d.ok(check, "%s, all recorded", view.Count(len(agents), "runs", "run"))
	}
}
