package notify

import (
	"fmt"
	"strings"

	"muxpost.dev/muxpost/core/ledger"
)

// mark is the hidden line by which a notice is found again, and by which the poller ignores it as its own.
func mark(p Post) string { return fmt.Sprintf("<!-- muxpost notice %s %s -->", p.What, p.DeliveryID) }

// text is a notice: an id, a link, a count and what to do.
func text(p Post) string {
	switch p.What {
	case ledger.PostAnswer:
		return mark(p) + "\n" + p.Words.Text + "\n"
	case ledger.NoticeStarted:
		agent := "an agent"
		if p.Words.Harness != "" {
			agent = "an agent (" + code(p.Words.Harness) + ")"
		}
		if p.Words.Host != "" {
			agent += " on the host " + code(p.Words.Host)
		}
		return fmt.Sprintf("%s\n**muxpost** started %s for this.\n\n- look over its shoulder: `muxpost attach %s`\n", mark(p), agent, p.WorkItem)
	default:
	}
	what, remedy := said(p)
	return fmt.Sprintf("%s\n%s\n\n- delivery: `%s`\n- event: %s\n- what to do: %s\n", mark(p), what, p.DeliveryID, p.URL, remedy)
}

// code is a word as Markdown shows it literally.
func code(word string) string {
	return "`" + strings.NewReplacer("`", "", "\n", " ").Replace(word) + "`"
}

// late is what an order is answered with that could not be carried out in time.
var late = fmt.Sprintf("**muxpost** could not do that within %d minutes, because something did not answer, and does not do it any more. "+
	"Write it again, or use `muxpost` on the command line.", int(ledger.CommandTime.Minutes()))

func said(p Post) (what, remedy string) {
	explain := fmt.Sprintf("`muxpost explain %s` says why", p.DeliveryID)
	switch p.What {
	case ledger.NoticeGaveUp:
		return fmt.Sprintf("**muxpost** could not deliver this to the agent and gave up after %d tries.", p.Tries),
			explain + fmt.Sprintf("; once that is put right, `muxpost retry %s` tries it again, or write it again as a new comment", p.DeliveryID)
	case ledger.NoticeUnconfirmed:
		return "**muxpost** typed this to the agent once, and nothing shows whether it arrived. It is not typed again by itself.",
			fmt.Sprintf("look with `muxpost attach %s` whether the agent has it; if it has, `muxpost done %s`; if not, "+
				"`muxpost retry --type-again %s` types it once more", p.WorkItem, p.DeliveryID, p.DeliveryID)
	case ledger.NoticeHeld:
		return fmt.Sprintf("**muxpost** has held this back for more than %d minutes; it goes to the agent as soon as what is in the way "+
			"has passed.", int(ledger.HeldLong.Minutes())), explain + fmt.Sprintf(", and `muxpost attach %s` shows the agent's terminal", p.WorkItem)
	default:
	}
	return "", ""
}
