package poll

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"muxpost.dev/muxpost/core/ledger"
)

// marker begins a hidden line in everything that muxpost itself writes upstream, and that agents are asked to write.
const marker = "<!-- muxpost"

// The poller's own reasons, beside the ledger's: for settling an event when it comes in, and for ending one afterwards.
const (
	// ReasonOwn: muxpost wrote it, or the account that it acts as.
	ReasonOwn = "own"
	// ReasonBot: a machine wrote it. Two machines that answer each other would never end.
	ReasonBot = "bot"
	// ReasonEditor: it was edited by somebody who may not steer, or by nobody knows whom.
	ReasonEditor = "editor"
	// ReasonEmpty: there is nothing in it that an agent could read, such as an approval without a word.
	ReasonEmpty = "empty"
	// ReasonLoop: dropped, because more was written about its item within a short time than people write.
	ReasonLoop = "loop"
	// ReasonUntold: settled, because it tells the end of an item, or a result of its CI, and no agent was told anything of the item.
	ReasonUntold = "untold"
	// ReasonSuperseded: cancelled, because it was edited upstream before it was delivered, and a later revision is in its place; or
	// because it is a result of CI, and its commit is no longer the head.
	ReasonSuperseded = "superseded"
	// ReasonTypedAgain: settled as unconfirmed, and typed once more under another id by a person's order.
	ReasonTypedAgain = "typed_again"
	// ReasonDone: settled by a person's word, in place of being tried again.
	ReasonDone = "done"
)

// Policy says who may steer. The zero value lets nobody.
type Policy struct {
	// Authors are the logins whose posts and items count, in any case.
	Authors []string
	// Associations are what the provider may say of an author for his posts and items to count, such as MEMBER.
	Associations []string
	// Machines are the logins of bots whose posts count, in any case; without it, nobody's who is a machine.
	Machines []string
	// TrustLabel lets an item's opening event through whoever wrote the item: putting a label on it, or assigning it, takes triage rights.
	// Mentioning an account takes none.
	TrustLabel bool
	// Mention is the login whose mention puts an item under our care, if one who may steer mentions it; empty for none.
	Mention string
	// Own is the login that the source's token acts as; empty when it is not known. What it writes is ours, unless it is among the
	// authors: then it is a person's, and only the mark tells what is ours.
	Own string
}

// post judges a post by its own author, and by who edited it: a reason to settle it, or none.
func (p Policy) post(c Post) (reason string) {
	if reason := p.judge(c.Author, c.Body); reason != "" {
		return reason
	}
	if !c.EditorKnown && c.UpdatedAt.After(c.CreatedAt) {
		return ReasonEditor
	}
	if p.edited(c.Author, c.Editor, c.EditorKnown) {
		return ReasonEditor
	}
	return ""
}

// opening judges an item: a reason to settle its opening event, or none.
func (p Policy) opening(i Item) (reason string) {
	if strings.Contains(i.Body, marker) {
		return ReasonOwn
	}
	if p.trusts(i) {
		return ""
	}
	return p.judge(i.Author, "")
}

// labelled judges who put the label on that has a team run: a reason to settle that, or none. Nobody says what he is to the repository, unless he
// wrote the item.
func (p Policy) labelled(by Labelling, i Item) (reason string) {
	if strings.EqualFold(by.Author.Login, i.Author.Login) && by.Author.Machine == i.Author.Machine {
		by.Author.Association = i.Author.Association
	}
	reason = p.judge(by.Author, "")
	if p.TrustLabel && reason == ledger.ReasonUnauthorised {
		return ""
	}
	return reason
}

// mentioned reports whether somebody who may steer mentions the account: in what he wrote of the item himself, or in a post.
func (p Policy) mentioned(i Item, posts []Post) bool {
	if p.judge(i.Author, "") == "" && mentions(i.Title+"\n"+i.Body, p.Mention) {
		return true
	}
	return slices.ContainsFunc(posts, func(c Post) bool { return p.post(c) == "" && mentions(c.Body, p.Mention) })
}

// mentions reports whether a text names an account as GitHub reads it: @login, with nothing before or behind that a login could have.
func mentions(text, login string) bool {
	if login == "" {
		return false
	}
	text, name := strings.ToLower(text), "@"+strings.ToLower(login)
	word := func(r rune) bool { return r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for {
		at := strings.Index(text, name)
		if at < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		behind, _ := utf8.DecodeRuneInString(text[at+len(name):])
		if !word(before) && !word(behind) {
			return true
		}
		text = text[at+len(name):]
	}
}

// trusts reports whether an item counts by its label, or by whom it is assigned to, whoever wrote it.
func (p Policy) trusts(i Item) bool {
	return p.TrustLabel && (i.Care == CareLabel || i.Care == CareAssigned)
}

func (p Policy) judge(a Author, body string) (reason string) {
	switch {
	case strings.Contains(body, marker):
		return ReasonOwn
	case has(p.Machines, a.Login) && a.Machine:
		return ""
	case p.own(a):
		return ReasonOwn
	case a.Machine:
		return ReasonBot
	case !p.allows(a):
		return ledger.ReasonUnauthorised
	}
	return ""
}

// edited reports whether somebody else than the author changed it who may not steer. Nobody says what an editor is to the repository,
// so only the list of logins counts.
func (p Policy) edited(author, editor Author, known bool) bool {
	if !known || editor == (Author{}) {
		return false
	}
	if strings.EqualFold(author.Login, editor.Login) && editor.Login != "" && !editor.Machine {
		return false
	}
	if editor.Machine {
		return !has(p.Machines, editor.Login)
	}
	return !has(p.Authors, editor.Login)
}

func (p Policy) own(a Author) bool {
	return p.Own != "" && strings.EqualFold(p.Own, a.Login) && !has(p.Authors, a.Login)
}

// allows compares names as the provider does. A name that is missing is nobody's.
func (p Policy) allows(a Author) bool {
	if a.Login == "" {
		return false
	}
	return has(p.Authors, a.Login) || a.Association != "" && slices.Contains(p.Associations, strings.ToUpper(a.Association))
}

func has(names []string, login string) bool {
	return login != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, login) })
}

// explainEdit says why an edit was settled, for a person.
func explainEdit(editor Author, known bool) string {
	switch {
	case !known:
		return "it was edited, and nobody can say by whom"
	case editor.Machine:
		return "edited by a machine (" + line(editor.Login) + ") that is not among the source's machines"
	case editor == goneEditor || editor.Login == "":
		return "edited by an account that is gone"
	}
	return "edited by " + line(editor.Login) + ", who is not among the source's authors"
}

// explain says why an event was settled, for a person.
func explain(reason, login string) string {
	if login == "" {
		login = "an account that is gone"
	}
	switch reason {
	case ReasonOwn:
		return "it carries the mark of muxpost's own posts, or the source's own account wrote it"
	case ReasonBot:
		return "written by a machine (" + login + "), and machines do not steer agents"
	case ReasonEmpty:
		return "there is nothing in it to read"
	case ledger.ReasonUnauthorised:
		return login + " is not among the source's authors"
	case ledger.ReasonBaselined:
		return "it was there before the item was first seen"
	case ReasonUntold:
		return "no agent was told of the item, so none is told of its end or its CI"
	}
	return ""
}
