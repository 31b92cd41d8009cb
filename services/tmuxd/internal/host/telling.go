package host

import (
	"context"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

// tellEvery is how often at most it is told what the agent of a session does: one that works in short steps is told by the last of them.
const tellEvery = time.Second

// notedWords are the words of notes.
var notedWords = map[string]Activity{
	"idle": ActivityIdle, "working": ActivityWorking, "awaiting_approval": ActivityApproval, "awaiting_input": ActivityInput,
	"needs_human": ActivityHuman,
}

// Noted is told that the program of an incarnation has told what it does. It does not wait for anybody.
func (h *Host) Noted(target, stamp string) {
	n, ok := h.Disk.Note(target, stamp)
	activity, known := notedWords[n.Word]
	if !ok || !known {
		return
	}
	d := Doing{Activity: activity, Detail: n.Detail, Since: n.At}
	s := h.feed.summary(target)
	if hn, err := h.Table.Find(s.Harness); err == nil && activity == ActivityIdle {
		f := hn.FailedTurn(n.Detail)
		switch was := s.Doing; {
		case f != (harness.Failure{}):
			d.Activity, d.Detail = ActivityHuman, f.String()
		case was.Activity == ActivityWorking:
			h.askRecord(target, stamp, hn, h.Now().Add(-recordTime))
		case !was.told() && s.StartedAt.Before(h.began):
			h.askRecord(target, stamp, hn, s.StartedAt) // an earlier life of tmuxd saw the turn
		}
	}
	h.feed.does(target, stamp, d, false)
	if n.Conversation != "" {
		h.opened(target, stamp, n.Conversation)
	}
}

// NotedAny is told that what programs told may have been missed: everything that was told is read.
func (h *Host) NotedAny() {
	for target, stamp := range h.feed.tellers() {
		h.Noted(target, stamp)
	}
}

// opened takes that a person has begun another conversation in a session, or gone back to one: it is the one that a resume is to go on with.
func (h *Host) opened(target, stamp, conversation string) {
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.run.Err() != nil || !h.feed.opens(target, stamp, conversation, h.learnable) {
		return
	}
	ctx := w.run
	w.looking.Go(func() {
		defer h.feed.learnt(target)
		// An act that is under way has the turn; it learns by itself, and what is missed here the next note says again.
		ctx, cancel := context.WithTimeout(ctx, createTime)
		defer cancel()
		_, release, err := h.acquire(ctx, target)
		if err != nil {
			return
		}
		defer release()
		h.learn(ctx, target, stamp, conversation)
	})
}

// recordTime is how long a program may take to record that a turn is over that it has told of, and recordTick how often that is looked for.
const (
	recordTime = 3 * time.Second
	recordTick = 200 * time.Millisecond
)

// askRecord looks in the program's own record how the turn ended that is over, if that has changed since: some do not tell in any other way that
// they cannot go on.
func (h *Host) askRecord(target, stamp string, hn *harness.Harness, since time.Time) {
	if !hn.RecordsTurns() {
		return
	}
	w := h.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.run.Err() != nil {
		return
	}
	ctx := w.run
	w.looking.Go(func() {
		for end := time.Now().Add(recordTime); time.Now().Before(end) && pause(ctx, recordTick); {
			m, known, err := h.Disk.Recall(target)
			if err != nil || !known || m.Stamp != stamp || m.Conversation == "" {
				continue // it may be learnt just now
			}
			w.looks <- struct{}{}
			line := h.Disk.LastLine(hn.TranscriptOf(m.Conversation, m.Directory), since, hn.EndsTurn)
			<-w.looks
			if line == "" {
				continue
			}
			if f := hn.FailedTurn(line); f != (harness.Failure{}) && h.feed.doing(target).Activity == ActivityIdle {
				h.feed.does(target, stamp, Doing{Activity: ActivityHuman, Detail: f.String(), Since: h.Now()}, false)
			}
			return
		}
	})
}

// learnable reports whether the id of a conversation of a harness is the program's to say, and can be one.
func (h *Host) learnable(name, conversation string) bool {
	hn, err := h.Table.Find(name)
	return err == nil && hn.Learns() && hn.ValidConversation(conversation)
}

// wonder looks at the screens of those whose programs tell what they do and have not told anything that stands: they start, or a person has to do
// something that they do not tell of. Everybody else is left alone. One round is under way at a time.
func (h *Host) wonder(ctx context.Context) {
	w := h.watcher
	unsure := h.feed.unsure()
	if len(unsure) == 0 || !w.wondering.CompareAndSwap(false, true) {
		return
	}
	w.looking.Go(func() {
		defer w.wondering.Store(false)
		for _, name := range unsure {
			if item, err := workitem.Parse(name); err == nil && ctx.Err() == nil {
				h.Activity(ctx, item, false)
			}
		}
	})
}

// doingOf is what the agent of a session that is told anew does: what it did, as long as it is the same and lives.
func (s *Summary) doingOf(now Summary) Doing {
	switch {
	case !now.ours() || now.Incarnation.Stamp == "":
		return Doing{}
	case s.ours() && s.Incarnation.Stamp == now.Incarnation.Stamp && s.Doing.Activity != ActivityUnknown:
		return s.Doing
	case now.Tells:
		return Doing{Activity: ActivityStarting, Since: now.StartedAt}
	}
	return Doing{}
}

// ours reports whether a session has a living agent of ours.
func (s *Summary) ours() bool {
	return s.State == session.Live && !s.Flags.Has(session.Foreign) && !s.Flags.Has(session.Detached)
}

// summary returns what is known of a target's session; the zero value when that is nothing.
func (f *feed) summary(target string) Summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.known[target]; c != nil && !c.forgotten {
		return c.session
	}
	return Summary{}
}

// doing returns what is known of what the agent of a target does.
func (f *feed) doing(target string) Doing { return f.summary(target).Doing }

// does takes what the agent of an incarnation does, as its program tells it or, with seen, as its screen showed, and returns what is known by then.
func (f *feed) does(target, stamp string, d Doing, seen bool) Doing {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.known[target]
	if c == nil || c.forgotten || !c.session.ours() || c.session.Incarnation.Stamp != stamp {
		return d
	}
	was := c.session.Doing
	if seen {
		d = was.after(d, c.session.Tells)
	}
	if d.Activity == was.Activity && !was.Since.IsZero() {
		d.Since = was.Since
	}
	c.session.Doing = d
	switch s := c.session; {
	case d.Activity == was.Activity && d.Detail == was.Detail:
		f.log.Amend(target, news{session: &s})
	default:
		f.tellDoing(target, c)
	}
	return d
}

// tellDoing tells what an agent does, now or when the last time was long enough ago. The lock is held.
func (f *feed) tellDoing(target string, c *known) {
	s := c.session
	if rest := tellEvery - time.Since(c.doingTold); rest > 0 {
		f.log.Amend(target, news{session: &s})
		if c.due == nil {
			c.due = time.AfterFunc(rest, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				if c.due = nil; f.known[target] == c && !c.forgotten {
					f.tellDoing(target, c)
				}
			})
		}
		return
	}
	c.doingTold = time.Now()
	f.log.Append(target, news{session: &s}, false)
}

// tellers are the incarnations whose programs tell what they do, by target.
func (f *feed) tellers() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for target, c := range f.known {
		if c.session.Tells && c.session.ours() && !c.forgotten {
			out[target] = c.session.Incarnation.Stamp
		}
	}
	return out
}

// unsure are the work items whose agents' programs tell what they do, and of which nothing that they told stands.
func (f *feed) unsure() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.known {
		if c.session.Tells && c.session.ours() && !c.forgotten && !c.session.Doing.told() {
			out = append(out, c.session.WorkItem)
		}
	}
	return out
}

// opens reports whether the conversation that is open in a session is another one than is known, is to be learnt, and nobody is at it yet.
func (f *feed) opens(target, stamp, conversation string, learnable func(harness, conversation string) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.known[target]
	if c == nil || !c.session.ours() || c.session.Incarnation.Stamp != stamp || c.session.Conversation == conversation ||
		c.learning || !learnable(c.session.Harness, conversation) {
		return false
	}
	c.learning = true
	return true
}

// learnt says that the learning of a conversation is over.
func (f *feed) learnt(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.known[target]; c != nil {
		c.learning = false
	}
}
