package host

import (
	"context"
	"strconv"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// Incarnation is one life of a session.
type Incarnation struct {
	Stamp     string
	SessionID string
	PaneID    string
	PanePid   int
	Server    Server
}

// Status is what is known of a session.
type Status struct {
	Target      string
	State       session.State
	Flags       session.Flags
	Detail      string
	Incarnation Incarnation
	// Harness, Conversation and Directory belong to the incarnation; empty when not known.
	Harness, Conversation, Directory string
	Exit                             Exit
	// Lost is true when the session is gone and nothing recorded how its agent ended: after a reboot, for example.
	Lost bool
	// Phase is that of the delivery that was asked for.
	Phase             session.Phase
	JournalUnreadable bool
}

// sight is one look at a session, with everything that was read for it.
type sight struct {
	item   workitem.Ref
	target string
	memory Memory
	known  bool
	view   View
	// pane is the agent's pane; nil when there is none. It may lie in a session of another name (flag moved).
	pane *Pane
	// guests are the panes of the session in which something lives that is not the agent.
	guests []Pane
	ran    Ran
	state  session.State
	flags  session.Flags
	why    string
}

// State says what is known of a session now, and of one delivery at it (deliveryID may be empty). It changes nothing. A delivery's phase is
// in the session's ring or in the journal, and an act follows from it: it always takes a look of its own.
func (h *Host) State(ctx context.Context, item workitem.Ref, deliveryID string) (Status, error) {
	if deliveryID == "" {
		st, _, err := h.StateWithin(ctx, item, 0)
		return st, err
	}
	if !session.ValidDeliveryID(deliveryID) {
		return Status{}, badDeliveryID(deliveryID)
	}
	s := h.seen(ctx, item)
	out := s.status()
	phase, err := h.phase(s, deliveryID)
	out.Phase, out.JournalUnreadable = phase, err != nil
	return out, nil
}

func badDeliveryID(id string) error {
	return fault.Newf(fault.Invalid, fault.ReasonBadDeliveryID, "the delivery id %q is malformed", id).
		WithRemedy("a delivery id has 8 to 64 of a-z, 0-9, - and _, and begins with a letter or digit")
}

// look reads what is known of a session: the memory on disk, the server, the wrapper's record.
func (h *Host) look(ctx context.Context, item workitem.Ref) sight {
	s := sight{item: item, target: item.Target()}
	var seen session.Sight
	var memoryErr error
	s.memory, s.known, memoryErr = h.Disk.Recall(s.target)
	switch {
	case memoryErr != nil:
		seen.Server = session.ProcessUnclear
		s.why = memoryErr.Error()
	case !s.known:
		seen.Server = session.ProcessNone
	}
	h.dial(ctx, &s, &seen)
	asked := seen
	// The record is read while the server answers. What it says so early counts only of an agent that lives, in a pane that does.
	early := make(chan Ran, 1)
	if target, stamp := s.target, s.memory.Stamp; asked.Answer == session.Answered && stamp != "" {
		go func() {
			ran, _ := h.Disk.Ran(target, stamp)
			early <- ran
		}()
	} else {
		early <- Ran{}
	}
	seen = h.observe(ctx, &s, asked)
	s.ran = <-early
	if seen.Pane == session.PaneAlive && s.pane.Stamp == s.memory.Stamp && s.ran.Process == session.ProcessAlive {
		seen.Wrapper = session.ProcessAlive
	} else {
		seen.Wrapper = h.wrapper(&s, memoryErr)
	}
	// The end of a wrapper is known before tmux notices it, and 3.3a may miss it until it is told to look.
	for tries := 0; seen.Pane == session.PaneAlive && seen.Wrapper == session.ProcessGone && tries < noticeTries; tries++ {
		h.Tmux.Nudge(s.view.Server)
		if !pause(ctx, noticeTick) {
			break
		}
		seen = h.observe(ctx, &s, asked)
		seen.Wrapper = h.wrapper(&s, memoryErr)
	}
	state, flags, why := session.Judge(seen)
	s.state, s.flags = state, flags
	if s.why == "" || state != session.Unknown {
		s.why = why
	}
	if flags.Has(session.Guests) {
		s.why += ": " + h.guests(ctx, &s)
	}
	if state == session.Dead && s.pane != nil && s.pane.Status == "" && s.pane.Signal == "" {
		h.Tmux.Nudge(s.view.Server)
	}
	return s
}

// observe asks the server, where there is one, and fills in what it shows.
func (h *Host) observe(ctx context.Context, s *sight, seen session.Sight) session.Sight {
	if seen.Answer != session.Answered {
		return seen
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s.pane, s.guests = nil, nil
	var err error
	if s.view, err = h.Tmux.Observe(ctx, s.target); err != nil {
		seen.Answer = session.NoAnswer
		s.why = err.Error()
		return seen
	}
	s.sort(&seen)
	return seen
}

// dial fills in whether somebody listens where the session's server does, and of one that does not whether its process lives.
func (h *Host) dial(ctx context.Context, s *sight, seen *session.Sight) {
	if seen.Answer = h.Tmux.Dial(s.target); seen.Answer != session.NoServer || !s.known {
		return
	}
	if seen.Server = h.Disk.ServerLives(s.memory); seen.Server == session.ProcessAlive {
		seen.Answer = h.reopen(ctx, *s)
	}
}

// reopen has a server whose socket was removed make it again: it lives, and only its address is gone.
func (h *Host) reopen(ctx context.Context, s sight) session.Answer {
	h.Tmux.Reopen(s.memory.Server)
	for range 20 {
		if a := h.Tmux.Dial(s.target); a != session.NoServer {
			return a
		}
		if !pause(ctx, 10*time.Millisecond) {
			break
		}
	}
	return session.NoServer
}

// sort fills in what a view shows: names are compared here, exactly.
func (s *sight) sort(seen *session.Sight) {
	for _, name := range s.view.Sessions {
		seen.Session = seen.Session || name == s.target
	}
	if !s.view.PanesRead {
		// A session whose panes cannot be read may be anybody's. Its stamp is in the panes' rows: nothing is known of it.
		seen.Ours, seen.Pane = true, session.PaneUnread
		return
	}
	seen.Pane = session.PaneLost
	var some *Pane // of our session: enough to know its stamp by, and the guard will not take it for the agent's
	for i := range s.view.Panes {
		p := &s.view.Panes[i]
		ours := p.Stamp != "" && p.Item == s.item.String()
		agents := ours && p.ID == p.AgentPane && strconv.Itoa(p.Pid) == p.AgentPid
		switch {
		case p.Session != s.target:
			if agents && !p.Dead {
				seen.Elsewhere, s.pane = true, p
			}
			continue
		case agents:
			s.pane = p
			seen.Pane = session.PaneAlive
			if p.Dead {
				seen.Pane = session.PaneDead
			}
		case !p.Dead:
			seen.OthersLive = true
			s.guests = append(s.guests, *p)
		}
		if seen.Ours = ours; ours {
			some = p
		}
	}
	if s.pane == nil {
		s.pane = some
	}
}

// wrapper says what is known of the wrapper's process of the incarnation that was seen, or else remembered.
func (h *Host) wrapper(s *sight, memoryErr error) session.Process {
	stamp := s.memory.Stamp
	if s.pane != nil {
		stamp = s.pane.Stamp
	}
	if stamp == "" {
		if memoryErr != nil {
			return session.ProcessUnclear
		}
		return session.ProcessNone
	}
	var err error
	if s.ran, err = h.Disk.Ran(s.target, stamp); err != nil {
		return session.ProcessUnclear
	}
	if s.memory.Stamp == "" || s.memory.Stamp == stamp || s.ran.Process == session.ProcessAlive {
		return s.ran.Process
	}
	// The remains of an earlier incarnation lie there while the remembered one may still live.
	remembered, err := h.Disk.Ran(s.target, s.memory.Stamp)
	switch {
	case err != nil:
		return session.ProcessUnclear
	case remembered.Process == session.ProcessAlive:
		return session.ProcessAlive
	}
	return s.ran.Process
}

// status is the sight as it is told.
func (s *sight) status() Status {
	out := Status{Target: s.target, State: s.state, Flags: s.flags, Detail: s.why, Incarnation: s.incarnation()}
	if s.flags.Has(session.Foreign) {
		return out
	}
	out.Harness, out.Conversation, out.Directory = s.memory.Harness, s.memory.Conversation, s.memory.Directory
	if s.pane != nil && s.pane.Stamp != s.memory.Stamp {
		out.Harness, out.Conversation, out.Directory = s.pane.Harness, s.pane.Conversation, ""
	}
	if s.state == session.Dead || s.state == session.Absent {
		out.Exit = s.exit()
		if s.state == session.Absent && s.ran.Reached && !s.ran.Ended {
			out.Lost, out.Detail = true, s.why+"; it is lost: nothing recorded how its agent ended"
		}
		if !s.ran.Reached {
			out.Conversation = "" // it never began: there is nothing to resume
		}
	}
	return out
}

// exit says how the agent ended: the wrapper's record before tmux, which can miss it.
func (s *sight) exit() Exit {
	if s.ran.Exit.Known {
		return s.ran.Exit
	}
	if s.pane == nil || !s.pane.Dead {
		return Exit{}
	}
	if n, err := strconv.Atoi(s.pane.Signal); err == nil && n > 0 {
		return Exit{Known: true, Signal: n}
	}
	if n, err := strconv.Atoi(s.pane.Status); err == nil {
		return Exit{Known: true, Code: n}
	}
	return Exit{}
}

// incarnation is the one that was seen, or else remembered.
func (s *sight) incarnation() Incarnation {
	if p := s.pane; p != nil {
		return Incarnation{Stamp: p.Stamp, SessionID: p.SessionID, PaneID: p.ID, PanePid: p.Pid, Server: s.view.Server}
	}
	if s.flags.Has(session.Foreign) || !s.known {
		return Incarnation{}
	}
	return s.memory.incarnation()
}

// remembered is the memory as it should be: with a token that was seen, and with the living incarnation that was seen. A tmuxd that died
// just after a start did not come to write down which server it was; without that, one whose socket was removed is not found again.
func (s *sight) remembered(token int64) Memory {
	m := s.memory
	m.Target, m.WorkItem, m.Token = s.target, s.item.String(), max(token, m.Token)
	p := s.pane
	if s.state != session.Live || s.flags != 0 || p == nil {
		return m
	}
	if m.Stamp != p.Stamp {
		m.Stamp, m.Harness, m.Conversation, m.Directory, m.CreatedAt = p.Stamp, p.Harness, p.Conversation, "", time.Time{}
	}
	m.SessionID, m.PaneID, m.PanePid = p.SessionID, p.ID, p.Pid
	if m.Server.Pid != s.view.Server.Pid {
		m.Server, m.ServerStart, m.Boot = s.view.Server, 0, ""
	}
	return m
}

// ring is the session's own memory of deliveries; empty when it was not read.
func (s *sight) ring() session.Ring {
	if s.pane == nil {
		return session.Ring{}
	}
	return session.ParseRing(s.pane.Ring)
}

// guard names the incarnation that was seen, under a generation and a token, until a deadline.
func (s *sight) guard(generation string, token int64, notAfter time.Time) Guard {
	g := Guard{Generation: generation, Token: token, NotAfter: notAfter}
	if s.pane != nil {
		g.Stamp, g.Pane, g.Pid, g.Session = s.pane.Stamp, s.pane.ID, s.pane.Pid, s.pane.SessionID
	}
	return g
}

// learn remembers the conversation that an incarnation runs, as the agent's own record told it; the caller has the slot. If it cannot be
// written, the next delivery finds out again.
func (h *Host) learn(ctx context.Context, target, stamp, conversation string) {
	m, known, err := h.Disk.Recall(target)
	if err != nil || !known || m.Stamp != stamp || conversation == "" || m.Conversation == conversation {
		return
	}
	m.Conversation = conversation
	if err := h.Disk.Remember(m); err != nil {
		h.Logger.WarnContext(ctx, "the conversation of a session could not be remembered", obs.KeyTarget, target, obs.KeyError, err)
		return
	}
	h.Logger.InfoContext(ctx, "the conversation of a session is known", obs.KeyTarget, target, "conversation_id", conversation)
}

// phase says how far a delivery has come at the session. While the session lives its ring is the truth; afterwards the journal is,
// corrected by the agent's own record: what a dead agent did not record, it did not take.
func (h *Host) phase(s sight, id string) (session.Phase, error) {
	if s.state != session.Unknown && !s.flags.Has(session.Foreign) {
		if p := s.ring().Phase(id); p != session.None && s.state == session.Live {
			return p, nil
		}
	}
	entries, err := h.Disk.Entries(s.target, id)
	if err != nil {
		return session.None, err
	}
	if len(entries) == 0 {
		return session.None, nil
	}
	last := entries[len(entries)-1]
	if s.state == session.Live && s.pane != nil && last.Stamp == s.pane.Stamp && last.Phase == session.Pasting {
		// The ring of this very incarnation does not have it: the paste that the journal announced did not run. (Later phases are
		// journalled once there was an answer; then the ring has forgotten it, as it does after many deliveries.)
		return session.None, nil
	}
	return h.settled(s, last)
}

// settled corrects what the journal says of an incarnation that is over, or that cannot be asked. What may have arrived and cannot be
// looked up stays so, and is never typed again by itself: a person may have submitted what was only typed.
func (h *Host) settled(s sight, e Entry) (session.Phase, error) {
	switch e.Phase {
	case session.None, session.Taken:
		return e.Phase, nil
	case session.Boot:
		ran, err := h.Disk.Ran(s.target, e.Stamp)
		if err != nil {
			return session.None, err
		}
		if !ran.Reached && ran.Process != session.ProcessAlive && s.state != session.Unknown {
			return session.None, nil
		}
	case session.Handing:
		if s.state == session.Live && s.pane != nil && e.Stamp == s.pane.Stamp {
			return session.Handing, nil // the agent is there to be asked
		}
	case session.Pasting, session.Pasted, session.Submitted:
	}
	p := cannotSay
	if hn, err := h.Table.Find(e.Harness); err == nil {
		p, _ = h.evidence(hn, s.target, e.Directory, e.ID, &search{})
	}
	switch {
	case p == recorded:
		return session.Taken, nil
	case p == notRecorded && s.state != session.Unknown:
		return session.None, nil
	case e.Phase == session.Boot, e.Phase == session.Handing:
		return e.Phase, nil
	}
	return session.Submitted, nil
}

// proof is what an agent's own record says of a delivery.
type proof uint8

const (
	cannotSay proof = iota
	notRecorded
	recorded
)

// evidencer is what evidence needs of a harness.
type evidencer interface {
	Transcripts(dir string) string
	TranscriptOf(conversation, dir string) string
	Reads(line []byte, mark string) harness.Mention
	ConversationOf(path, dir string) string
}

// search is how far the records were searched for one delivery. The zero value has read nothing.
type search struct {
	read         map[string]int64
	found        harness.Mention
	conversation string
}

// evidence looks for a delivery in the agent's own records since the delivery was first journalled: in all of them, because a person may
// have begun another conversation. A record that does not exist is one in which nothing was taken: the program writes it before it acts. With
// recorded it says in which conversation, if the record tells. What an earlier search of the same call has read is not read again: records grow at
// their end, and are long.
func (h *Host) evidence(hn evidencer, target, dir, id string, sr *search) (p proof, conversation string) {
	pattern := hn.Transcripts(dir)
	entries, err := h.Disk.Entries(target, id)
	if pattern == "" || err != nil || len(entries) == 0 {
		return cannotSay, ""
	}
	// The journal's clock and that of the file system may differ by a little.
	since := entries[0].Time
	if now := h.Now(); now.Before(since) {
		since = now
	}
	since = since.Add(-time.Minute)
	mark := prompt.Mark(id)
	if sr.read == nil {
		sr.read = map[string]int64{}
	}
	read := func(pattern string, since time.Time) {
		if err != nil || sr.found == harness.Takes {
			return
		}
		err = h.Disk.Transcripts(pattern, since, sr.read, func(path string, line []byte) bool {
			if sr.found = max(sr.found, hn.Reads(line, mark)); sr.found == harness.Takes {
				sr.conversation = hn.ConversationOf(path, dir)
			}
			return sr.found != harness.Takes
		})
	}
	// The clock may have been set back between the journal's entry and the record's line: what is known to be the conversation is read however
	// old it looks. Taken for not recorded, the delivery would be typed again.
	for i, e := range entries {
		if e.Conversation != "" && (i == 0 || e.Conversation != entries[i-1].Conversation) {
			read(hn.TranscriptOf(e.Conversation, dir), time.Time{})
		}
	}
	read(pattern, since)
	switch {
	case sr.found == harness.Takes:
		return recorded, sr.conversation
	case err != nil || sr.found == harness.Mentioned:
		return cannotSay, ""
	}
	return notRecorded, ""
}
