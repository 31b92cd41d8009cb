package poll

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/prompt"
)

const (
	// onlyRevision is that of what happens once whatever is edited later: an opening, and a message by hand.
	onlyRevision = "1"
	// maxSummary bounds what CI says of a result, in bytes, and maxTitle a line, in characters.
	maxSummary = 8 << 10
	maxTitle   = 300
	// onceMore goes before a text that is typed again by a person's order.
	onceMore = "This is typed once more by order of an operator, because nothing showed whether it arrived the first time. " +
		"Where it did, do not act on it again.\n\n"
	// PerhapsTold goes behind the first line of a text that may have been a part of another one, which was taken back.
	PerhapsTold = " (it may have been told before, as a part of another text; where it was, do not act on it again)"
)

// maker makes events of one source.
type maker struct {
	source   string
	provider string
	policy   Policy
	budget   int
	// teams are the labels that have a team run, each with the team's name.
	teams map[string]string
	// templates are for the texts.
	templates *prompt.Set
}

// thread is where something was written: the item's own, or that of a pull request that belongs to it.
type thread struct {
	workItem string
	item     Item
	// pull is the pull request's own ref, and node its node id; both are empty for the item's own thread.
	pull string
	node string
}

// firstSight returns the opening event of an item, and what was written before as the baseline.
func (m maker) firstSight(t thread, posts []Post) ([]Event, error) {
	posts = inOrder(posts)
	opening, err := m.opening(t, posts)
	if err != nil {
		return nil, err
	}
	events := []Event{opening}
	for _, c := range posts {
		if !c.envelope() {
			events = append(events, m.settled(m.postEvent(t, c), ledger.ReasonBaselined))
		}
	}
	return events, nil
}

// later returns the events of posts that were written after a thread's first sight. What was written at or before baseline is only
// context; the zero time means that nothing was.
func (m maker) later(t thread, posts []Post, baseline time.Time) ([]Event, error) {
	var events []Event
	for _, c := range inOrder(posts) {
		if c.envelope() {
			continue
		}
		e := m.postEvent(t, c)
		reason := m.policy.post(c)
		switch {
		case !baseline.IsZero() && !c.CreatedAt.After(baseline):
			reason = ledger.ReasonBaselined
		case reason == "" && c.silent():
			reason = ReasonEmpty
		}
		if reason != "" {
			if e = m.settled(e, reason); reason == ReasonEditor {
				e.Detail = explainEdit(c.Editor, c.EditorKnown)
			}
			events = append(events, e)
			continue
		}
		if order, ok := AsCommand(e, c.Body); ok && c.Kind != KindReview {
			events = append(events, order)
			continue
		}
		var err error
		if e.Text, err = m.said(t, c, false); err != nil {
			return nil, err
		}
		if e.EditedText, err = m.said(t, c, true); err != nil {
			return nil, err
		}
		e.Unattested = c.Kind == KindReview && !c.EditorKnown
		events = append(events, e)
	}
	return events, nil
}

// said returns a post as an agent is to read it.
func (m maker) said(t thread, c Post, edited bool) (string, error) {
	d := t.data(c.URL)
	d.Author, d.Edited, d.Body, d.Verdict = c.Author.Login, edited, c.Body, c.Verdict
	if c.Kind == KindReviewComment {
		d.Path, d.Line, d.Side, d.Hunk = c.Path, c.Line, strings.ToLower(c.Side), c.Hunk
		d.Notes = []string{"in the thread " + strconv.FormatInt(c.Thread, 10)}
		if c.Thread == c.ID {
			d.Notes = []string{"it begins the thread " + strconv.FormatInt(c.Thread, 10)}
		}
	}
	return m.render(prompt.Kind(c.Kind), d)
}

// data is what every text of a thread says.
func (t thread) data(url string) prompt.Data {
	d := prompt.Data{WorkItem: t.workItem, Title: t.item.Title, URL: url}
	if t.pull != "" && t.pull != t.workItem {
		d.On = "pull request " + t.pull
	}
	return d
}

// envelope reports whether a post is only what GitHub puts around inline comments: a review that says and decides nothing.
func (c Post) envelope() bool {
	return c.Kind == KindReview && c.Verdict == VerdictCommented && strings.TrimSpace(c.Body) == ""
}

// silent reports whether a post has nothing for an agent: an approval or a remark without a word (the inline comments of a review are
// posts of their own). That changes are requested is a word.
func (c Post) silent() bool {
	return c.Kind == KindReview && c.Verdict != VerdictChanges && strings.TrimSpace(c.Body) == ""
}

func (m maker) opening(t thread, posts []Post) (Event, error) {
	item := t.item
	e := m.event(t, KindOpened, item.NodeID, onlyRevision)
	e.Author, e.Association, e.URL = line(item.Author.Login), item.Author.Association, line(item.URL)
	e.UpstreamAt = item.CreatedAt
	if item.Care == CareTeam {
		e = m.settled(e, ledger.ReasonCommand)
		e.Detail = "nothing but the label " + line(item.TeamLabels[0]) + " puts it under care, which has a team run for it and no agent started"
		return e, nil
	}
	if reason := m.policy.opening(item); reason != "" {
		return m.settled(e, reason), nil
	}
	if item.Care == CareMention && !m.policy.mentioned(item, posts) {
		e = m.settled(e, ledger.ReasonUnauthorised)
		e.Detail = "nobody who may steer has mentioned @" + line(m.policy.Mention) + " in it"
		return e, nil
	}
	earlier, left := m.thread(posts)
	d := t.data(item.URL)
	d.Author, d.Body, d.Thread = item.Author.Login, item.Body, earlier
	if left > 0 {
		d.Notes = []string{fmt.Sprintf("%d of its earlier comments are left out here, follow the link to read them", left)}
	}
	var err error
	e.Text, err = m.render(prompt.Opened, d)
	return e, err
}

// thread returns what people who may steer said before, oldest first, and how many of it did not fit: the newest are kept.
func (m maker) thread(posts []Post) (earlier []prompt.Post, left int) {
	size := 0
	for _, c := range slices.Backward(posts) {
		if m.policy.post(c) != "" || c.silent() {
			continue
		}
		size += len(c.Body)
		if left > 0 || size > prompt.MaxThread {
			left++
			continue
		}
		earlier = append(earlier, prompt.Post{Author: line(c.Author.Login), Body: c.Body})
	}
	slices.Reverse(earlier)
	return earlier, left
}

func (m maker) postEvent(t thread, c Post) Event {
	revision := revisionOf(c.Body)
	if c.Kind == KindReview {
		// A review that is dismissed, or becomes an approval, says something else with the same words.
		revision = ledger.Revision(c.Verdict, revision)
	}
	e := m.event(t, c.Kind, c.NodeID, revision)
	e.Author, e.Association, e.URL = line(c.Author.Login), c.Author.Association, line(c.URL)
	e.UpstreamAt, e.UpstreamOrder, e.EditedAt = c.CreatedAt, c.ID, c.UpdatedAt
	e.Undated = c.Kind == KindReview && !c.EditorKnown
	words := c.Body
	if c.Kind == KindReviewComment {
		if e.About = line(c.Path); c.Line > 0 {
			e.About += ", line " + strconv.Itoa(c.Line)
		}
		// Of a digest, and of a context, only the excerpt is seen.
		words = "File: " + e.About + "\n" + words
	}
	if m.policy.post(c) == "" {
		e.Excerpt = cut(words, maxExcerpt)
	}
	return e
}

// ended returns the event that says how an item or a pull request of it stands now, when it stood otherwise before. was is when it was
// last closed, on the source's clock; zero when that is not known. What is older than what was shown at a time is no news.
func (m maker) ended(t thread, now Item, wasOpen bool, was, shown time.Time) (Event, bool, error) {
	var revision, state string
	switch {
	case now.UpdatedAt.Before(shown):
		return Event{}, false, nil
	case !now.Open && (wasOpen || !was.IsZero() && now.ClosedAt.After(was)):
		revision, state = "closed:"+stamp(now.ClosedAt), "closed"
		if now.Pull != nil && now.Pull.Merged {
			state = "merged into " + line(now.Pull.Base)
		}
	case now.Open && !wasOpen:
		revision, state = "reopened:"+stamp(was), "opened again"
	default:
		return Event{}, false, nil
	}
	e := m.event(t, KindState, now.NodeID, revision)
	e.URL, e.UpstreamAt = line(now.URL), now.ClosedAt
	if now.Open || e.UpstreamAt.IsZero() {
		e.UpstreamAt = now.UpdatedAt
	}
	d := t.data(now.URL)
	d.State = state
	d.What = cmp.Or(d.On, "The work item "+t.workItem) + " was " + state
	if d.On != "" {
		d.What = "The " + d.On + " (" + t.workItem + ") was " + state
	}
	var err error
	e.Text, err = m.render(prompt.StateChange, d)
	return e, true, err
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

// labelled returns the event of a label that has a team run: an order, if it was put on by one who may steer.
func (m maker) labelled(t thread, by Labelling) Event {
	e := m.event(t, KindLabelled, by.NodeID, onlyRevision)
	e.Author, e.URL, e.UpstreamAt, e.About = line(by.Author.Login), line(t.item.URL), by.At, "the label "+line(by.Label)
	if reason := m.policy.labelled(by, t.item); reason != "" {
		return m.settled(e, reason)
	}
	e, _ = AsCommand(e, ledger.Command{Verb: ledger.VerbTeam, Args: strings.Fields(m.teams[by.Label])}.String())
	return e
}

// check returns the event of a result of CI that an agent should know: one that failed.
func (m maker) check(t thread, c Check, head string) (Event, bool, error) {
	if !c.failed() {
		return Event{}, false, nil
	}
	// By number: a webhook of a status shows no other id of it.
	e := m.event(t, KindCheck, c.Kind+":"+strconv.FormatInt(c.ID, 10), c.Conclusion+":"+strconv.Itoa(c.Attempt))
	e.URL, e.UpstreamAt, e.UpstreamOrder, e.Commit = line(c.URL), c.EndedAt, c.ID, c.SHA
	e.About = fmt.Sprintf("%s (%s %d)", line(c.Name), c.Kind, c.ID)
	d := t.data(c.URL)
	d.CheckName, d.Conclusion, d.SHA, d.Run, d.Head = c.Name, c.Conclusion, c.SHA, strconv.FormatInt(c.ID, 10), true
	d.Body = cut(strings.TrimSpace(c.Title+"\n"+c.Summary), maxSummary)
	// Of a digest only the excerpt is seen, so that it names the check itself.
	e.Together, e.Excerpt = "ci "+c.SHA, cut(fmt.Sprintf("Check: %s (run %d)\nCommit: %s\n%s", line(c.Name), c.ID, line(c.SHA), d.Body), maxExcerpt)
	var err error
	e.Text, err = m.render(prompt.Check, d)
	if c.SHA != head {
		// It is kept with its text: the commit may become the head again.
		e.State, e.Reason, e.Detail = ledger.Cancelled, ReasonSuperseded, StaleDetail(head)
	}
	return e, true, err
}

// failed reports whether a result is one that somebody has to do something about.
func (c Check) failed() bool {
	return c.Done && slices.Contains([]string{"failure", "error", "timed_out", "startup_failure", "action_required"}, c.Conclusion)
}

// StaleDetail explains to a person why a result of CI is cancelled.
func StaleDetail(head string) string {
	return "its commit is not the head of the pull request any more; that is " + cmp.Or(line(head), "not known")
}

func (m maker) event(t thread, kind, objectID, revision string) Event {
	key := ledger.Key{Provider: m.provider, Host: t.item.Ref.Host(), Kind: kind, ObjectID: objectID, Revision: revision}
	return Event{
		DeliveryID: ledger.DeliveryID(key, t.workItem), Key: key, WorkItem: t.workItem, NodeID: t.item.NodeID, Source: m.source,
		Kind: kind, Thread: t.node, Title: line(t.item.Title), State: ledger.Pending, Budget: m.budget,
	}
}

func (m maker) settled(e Event, reason string) Event {
	e.State, e.Reason, e.Detail, e.Text = ledger.Settled, reason, explain(reason, e.Author), ""
	e.EditedText = ""
	return e
}

// Settle settles an event for a reason.
func Settle(e Event, reason string) Event { return maker{}.settled(e, reason) }

// OnceMore returns a text that may be in the conversation already, as it is typed again.
func OnceMore(text string) string {
	if len(onceMore)+len(text) > prompt.MaxText {
		return text
	}
	return onceMore + text
}

// OnceMoreKey returns the natural key of the order to type a delivery again: an event of its own, so that it has an id of its own.
func OnceMoreKey(deliveryID string) ledger.Key {
	return ledger.Key{Provider: ledger.SourceManual, Host: "again", Kind: "again", ObjectID: deliveryID, Revision: onlyRevision}
}

// render returns an event's text as it can be typed. The fence is one that its writers could not know. Whatever was written
// fits: an event that cannot be rendered would stop its item for ever.
func (m maker) render(kind prompt.Kind, d prompt.Data) (string, error) {
	return m.templates.Render(kind, d, rand.Text())
}

// inOrder sorts by time, and within a second by id.
func inOrder(posts []Post) []Post {
	return slices.SortedFunc(slices.Values(posts), func(a, b Post) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// line makes somebody else's text fit for a column and a terminal: one line, nothing that does not show, and not too long.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if runes := []rune(s); len(runes) > maxTitle {
		s = string(runes[:maxTitle-1]) + "…"
	}
	return s
}
