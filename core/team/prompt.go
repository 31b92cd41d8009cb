package team

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

const (
	// maxCarried is how much of another attempt's text goes into a prompt, in bytes: its end.
	maxCarried = 24 << 10
	// maxReason is how much of what a verification said is kept.
	maxReason = 500
)

// usualFix is what is done when a verification does not hold and the spec says nothing.
const usualFix = "The work of the team was verified, and the verification does not hold. Correct the work so that it does."

// Carried is a text that goes into a prompt: what an earlier step or try left.
type Carried struct {
	// Title says what it is, in our words.
	Title string
	Text  string
	// Cut is true when Text is the end of something longer already. Most is how much of it is told, in bytes; zero for the usual.
	Cut  bool
	Most int
}

// Told is what an agent is told.
type Told struct {
	Team, TaskID string
	Kind         Kind
	// Prompt is the spec's.
	Prompt string
	// Number is which execution of the task it is, from 1.
	Number int
	// Branch is that of the working tree that it has; empty without one.
	Branch string
	// Before are the artifacts of the steps before, and what the previous executions ended with, oldest first.
	Before []Carried
	// Nonce is one that those who wrote Before could not know.
	Nonce string
}

// Compose writes the prompt of an attempt: what it is, the spec's words, then what earlier steps and tries left, between fences.
func Compose(t Told) string {
	var b strings.Builder
	what := fmt.Sprintf("This is the task %s of the team %s.", t.TaskID, t.Team)
	if t.Kind != Task {
		what = fmt.Sprintf("This is the step %s of the team %s.", t.Kind, t.Team)
	}
	if t.Number > 1 {
		what += fmt.Sprintf(" It is tried for the %s time: what was said of the tries before stands below.", ordinal(t.Number))
	}
	prompt := t.Prompt
	if prompt == "" && t.Kind == FixStep {
		prompt = usualFix
	}
	if t.Branch != "" {
		what += fmt.Sprintf(" You work in a git worktree on the branch %s: commit what you do there, for only commits reach the tasks after this one.", t.Branch)
	}
	b.WriteString(what + "\n\n" + strings.TrimSpace(prompt) + "\n")
	for i, c := range t.Before {
		if i == 0 {
			b.WriteString("\nWhat stands between fences was left by earlier steps and tries: it is information about the work.\n")
		}
		fence := "-----" + t.Nonce + "-----"
		fmt.Fprintf(&b, "\n%s:\n%s\n%s\n%s\n", c.Title, fence, strings.TrimSpace(strings.ReplaceAll(c.end(), fence, "")), fence)
	}
	if t.Kind == VerifyStep {
		fmt.Fprintf(&b, "\nWhen you have verified it, say so in the last line of your answer: the word %s, a colon and a blank, and then either the "+
			"word pass, or the word fail and in the same line why.\n", verdictWord(t.Nonce))
	}
	return b.String()
}

// end is the last part of a text, which goes into a prompt: it says when something stood before it.
func (c Carried) end() string {
	text, cut := c.Text, c.Cut
	if most := cmp.Or(c.Most, maxCarried); len(text) > most {
		text, cut = text[len(text)-most:], true
	}
	if !cut {
		return text
	}
	return "[…] " + strings.ToValidUTF8(text, "")
}

func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// verdictWord begins the line with a verdict. It holds the nonce, and the instruction never has it before a verdict, so that neither an
// earlier answer nor the prompt's own echo is taken for one.
func verdictWord(nonce string) string {
	return "VERDICT-" + nonce
}

// ReadVerdict finds the verdict in what an agent wrote: the last line that is one. said is false when there is none.
func ReadVerdict(nonce, output string) (holds bool, why string, said bool) {
	form := regexp.MustCompile(`(?m)^[\s>*•\-│|` + "`" + `]*` + regexp.QuoteMeta(verdictWord(nonce)) + `[*` + "`" + `]*: *[*` + "`" + `]*(?i:(pass|fail))\b[*:. ]*(.*)$`)
	all := form.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return false, "", false
	}
	last := all[len(all)-1]
	why = strings.TrimSpace(last[2])
	if len(why) > maxReason {
		why = strings.ToValidUTF8(why[:maxReason], "") + "…"
	}
	return strings.EqualFold(last[1], "pass"), why, true
}
