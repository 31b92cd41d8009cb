package poll

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
)

// pulls reads the open pull requests of a repository, and those that we know and that are open no more.
func (l *look) pulls(ctx context.Context, repository, place string, pulls []Item, at time.Time) {
	l.rounds.paid(l.watched.Name, repository)
	all, err := l.ledger.KnownPulls(ctx, place, nodeIDs(pulls))
	if err != nil {
		l.note(err)
		return
	}
	known := map[string]KnownPull{}
	for _, k := range all {
		known[k.NodeID] = k
	}
	for _, item := range pulls {
		k, there := known[item.NodeID]
		delete(known, item.NodeID)
		l.note(l.pull(ctx, item, k, there, at))
		if l.over() {
			return
		}
	}
	for _, k := range known {
		if !k.Open {
			continue
		}
		item, err := l.watched.Source.Item(ctx, repository, k.Number, true)
		switch {
		case errors.Is(err, fault.NotFound) || err == nil && item.NodeID != k.NodeID:
			// The repository was made anew, or can no longer be seen: that is no end of a pull request.
			err = nil
		case err == nil:
			err = l.pull(ctx, item, k, true, at)
		}
		l.note(err)
		if l.over() {
			return
		}
	}
}

// pull finds the item of a pull request, and reads its thread and its CI if they may have news.
func (l *look) pull(ctx context.Context, item Item, k KnownPull, there bool, at time.Time) error {
	r := PullRecord{}
	if k.WorkItem == "" {
		owner, found, err := l.owner(ctx, item, k)
		if err != nil {
			return err
		}
		r, k.WorkItem, k.UnlinkedAt = found, owner.WorkItem, latest(k.UnlinkedAt, owner.Since)
		if k.WorkItem == "" {
			if there && k.SeenUpdatedAt.Equal(item.UpdatedAt) && r.Closes == nil {
				return nil
			}
			return l.record(ctx, Record{Item: item, SeenAt: at, Pull: &r, Partial: true})
		}
		if r.Rule == RuleItself {
			return l.itself(ctx, item, r, at)
		}
	}
	l.result.Items++
	l.rearm(ctx, []string{k.WorkItem})
	t := thread{workItem: k.WorkItem, item: item, pull: item.Ref.String(), node: item.NodeID}
	full := WantsFull(ctx)
	rule := cmp.Or(r.Rule, k.Rule)
	if !full && k.quiet(item) && r.Rule == "" {
		return l.ci(ctx, t, rule)
	}
	state, told, err := l.maker.ended(t, item, k.Open || !there, k.ClosedUpstream, k.ShownAt)
	if err != nil {
		return err
	}
	since := k.PostsSince
	if full || k.Waiting || len(k.Missing) > 0 || k.SeenAt.IsZero() {
		since = time.Time{}
	}
	baseline := k.UnlinkedAt
	if !k.SeenAt.IsZero() {
		baseline = time.Time{} // what was there before is known by now, and what is known and changes is news
	}
	record, err := l.thread(ctx, t, since, k.Missing, baseline, at)
	if err != nil {
		return err
	}
	if told {
		record.Events = append(record.Events, state)
	}
	record.CommentsSince = latest(k.PostsSince, record.CommentsSince)
	record.Pull = &r
	if err := l.record(ctx, record); err != nil {
		return err
	}
	return l.ci(ctx, t, rule)
}

// itself takes a pull request under our care as a work item of its own.
func (l *look) itself(ctx context.Context, item Item, r PullRecord, at time.Time) error {
	l.result.Items++
	t := thread{workItem: item.Ref.String(), item: item, pull: item.Ref.String(), node: item.NodeID}
	posts, err := l.posts(ctx, t, time.Time{})
	if err != nil {
		return err
	}
	events, err := l.opened(ctx, t, posts)
	if err != nil {
		return err
	}
	return l.record(ctx, Record{
		WorkItem: t.workItem, Item: item, FirstSight: true, SeenAt: at, CommentsSince: newest(posts), Events: events, Pull: &r,
	})
}

// quiet reports whether the pull request looks as it did when its thread was last read, as Known's.
func (k KnownPull) quiet(item Item) bool {
	return k.Place == PlaceOf(item.Ref) && !k.SeenAt.IsZero() && k.SeenUpdatedAt.Equal(item.UpdatedAt) && k.Open == item.Open && k.HeadSHA == item.Pull.HeadSHA &&
		len(k.Missing) == 0 && k.SeenAt.Sub(item.UpdatedAt) >= settleTime
}

// ci reads the results of CI at the head of an open pull request. What is known already makes no event again.
func (l *look) ci(ctx context.Context, t thread, rule Rule) error {
	head := t.item.Pull.HeadSHA
	if !t.item.Open || head == "" || !l.mayTell(t.item, rule) {
		return nil
	}
	checks, err := l.watched.Source.Checks(ctx, t.item.Repository, head)
	if err != nil {
		return err
	}
	events, err := l.maker.checks(t, checks, head)
	if err != nil || len(events) == 0 {
		return err
	}
	return l.record(ctx, Record{WorkItem: t.workItem, Item: t.item, Events: events, Pull: &PullRecord{}, Partial: true})
}

// checks returns the events of results at a head: of each kind and name the latest alone.
func (m maker) checks(t thread, checks []Check, head string) ([]Event, error) {
	var events []Event
	for i, c := range checks {
		if slices.ContainsFunc(checks[i+1:], func(o Check) bool { return o.Kind == c.Kind && o.Name == c.Name && o.ID > c.ID }) ||
			slices.ContainsFunc(checks[:i], func(o Check) bool { return o.Kind == c.Kind && o.Name == c.Name && o.ID > c.ID }) {
			continue
		}
		e, failed, err := m.check(t, c, head)
		if err != nil {
			return nil, err
		}
		if failed {
			events = append(events, e)
		}
	}
	return events, nil
}

// owner finds the item that a pull request belongs to: the one that it closes, else the one whose branch it is of, else itself if it is
// under our care. A stranger's pull request from a fork belongs to no item but itself: its CI runs what the stranger wrote.
func (l *look) owner(ctx context.Context, item Item, k KnownPull) (owner Owner, r PullRecord, err error) {
	if k.Rule == RuleByHand {
		return Owner{}, r, nil // it was taken off its item
	}
	if l.mayBelong(item) {
		// GitHub finds out a moment later what somebody wrote that it closes.
		if k.Closes == nil || !k.SeenUpdatedAt.Equal(item.UpdatedAt) || k.UnlinkedAt.Sub(item.UpdatedAt) < settleTime {
			if r.Closes, err = l.closes(ctx, item); err != nil {
				return Owner{}, r, err
			}
			k.Closes = r.Closes
		}
		if owner, err = l.first(ctx, k.Closes); err != nil || owner.WorkItem != "" {
			r.Rule, r.Detail = RuleClosing, "it closes "+owner.WorkItem
			return owner, r, err
		}
		if owner, err = l.branch(ctx, item); err != nil || owner.WorkItem != "" {
			r.Rule, r.Detail = RuleBranch, "its branch is "+line(item.Pull.Head)
			return owner, r, err
		}
	}
	if item.Care != "" && item.Open {
		r.Rule, r.Detail = RuleItself, "by "+item.Care
		return Owner{WorkItem: item.Ref.String()}, r, nil
	}
	return Owner{}, r, nil
}

// mayBelong reports whether a pull request may belong to an item by what it says of itself: its branch is in the repository, which takes
// the right to write there, or its author may steer.
func (l *look) mayBelong(item Item) bool {
	return sameRepository(item) || l.maker.policy.allows(item.Author) && !item.Author.Machine
}

// mayTell reports whether what CI says of a pull request may reach an agent: its words are those of whoever wrote what it ran. An operator who
// linked it has seen it, and whoever put on a label that is trusted.
func (l *look) mayTell(item Item, rule Rule) bool {
	return l.mayBelong(item) || rule == RuleByHand || rule == RuleItself && l.maker.policy.trusts(item)
}

func sameRepository(item Item) bool {
	return strings.EqualFold(item.Pull.HeadRepository, item.Repository)
}

// first returns the first of refs that is an item of ours.
func (l *look) first(ctx context.Context, refs []string) (Owner, error) {
	if len(refs) == 0 {
		return Owner{}, nil
	}
	items, err := l.ledger.Items(ctx, refs)
	for _, ref := range refs {
		if owner, ok := items[ref]; ok {
			return owner, err
		}
	}
	return Owner{}, err
}

// closes returns what a pull request closes: as the provider says, and where that cannot be asked, by its own words.
func (l *look) closes(ctx context.Context, item Item) ([]string, error) {
	out := []string{}
	if l.watched.Graph != nil {
		refs, err := l.watched.Graph.Closes(ctx, item.NodeID)
		if err == nil {
			for _, ref := range refs {
				out = append(out, ref.String())
			}
			return out, nil
		}
		if kind := fault.KindOf(err); kind == fault.Throttled || kind == fault.Unavailable {
			return nil, err
		}
	}
	for _, ref := range closingWords(item) {
		out = append(out, ref.String())
	}
	return out, nil
}

// closing is what GitHub takes for a word that closes an issue, and the issue: by number, by repository and number, or by its address.
var closing = regexp.MustCompile(`(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(?:([\w.-]+)/([\w.-]+))?#(\d{1,10})\b`)

// closingWords returns the issues that a pull request closes by its own words.
func closingWords(item Item) (refs []workitem.Ref) {
	owner, name, _ := strings.Cut(item.Repository, "/")
	for _, m := range closing.FindAllStringSubmatch(item.Body, 50) {
		o, n := owner, name
		if m[1] != "" {
			o, n = m[1], m[2]
		}
		if ref, err := workitem.New(item.Ref.Host(), o, n, m[3]); err == nil && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// branch returns the item whose branch a pull request is of: one in the repository itself, that is there. A fork's branch may have any name.
func (l *look) branch(ctx context.Context, item Item) (Owner, error) {
	number, ok := numberOf(l.watched.Branch, item.Pull.Head)
	if !ok || !sameRepository(item) {
		return Owner{}, nil
	}
	login, name, _ := strings.Cut(item.Repository, "/")
	ref, err := workitem.New(item.Ref.Host(), login, name, strconv.FormatUint(number, 10))
	if err != nil {
		return Owner{}, nil //nolint:nilerr // It is no name of an item.
	}
	owner, err := l.first(ctx, []string{ref.String()})
	if err != nil || owner.WorkItem == "" || l.watched.Graph == nil {
		return Owner{}, err
	}
	there, err := l.watched.Graph.HasBranch(ctx, item.Repository, item.Pull.Head)
	if err != nil || !there {
		return Owner{}, err
	}
	return owner, nil
}

// numberOf reads the number out of a branch's name by a pattern that has {number}; what follows it in the name after a dash is free.
func numberOf(pattern, branch string) (uint64, bool) {
	before, after, ok := strings.Cut(pattern, "{number}")
	if !ok || !strings.HasPrefix(branch, before) {
		return 0, false
	}
	rest := branch[len(before):]
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	rest = rest[len(digits):]
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || number == 0 {
		return 0, false
	}
	return number, rest == after || strings.HasPrefix(rest, after+"-")
}
