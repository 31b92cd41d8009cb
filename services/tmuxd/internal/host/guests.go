package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Visits is the part of Tmux that tells who else is on a server.
type Visits interface {
	// Company returns the commands that run in the panes of the target's server, by pane, and the terminals that are attached to it.
	Company(ctx context.Context, target string) (Company, error)
}

// Company is who is on a server. What it says was chosen by whoever is there, and is not trusted.
type Company struct {
	Commands map[string]string
	Clients  []Attached
}

// Attached is a terminal that is attached to a session. User is empty where tmux does not say whose it is.
type Attached struct{ SessionID, TTY, User string }

const (
	// maxGuests is how many panes, and how many terminals, are told by name, and maxGuestText how many characters of what each says of itself.
	maxGuests    = 3
	maxGuestText = 40
)

// guests says who lives in a session beside the agent: for each pane what runs in it, and who is attached. It is one more question to the
// server, asked only where there are guests. Where that gets no answer, the look that found them says which panes they are.
func (h *Host) guests(ctx context.Context, s *sight) string {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	c, err := h.Tmux.Company(ctx, s.target)
	if err != nil {
		c = Company{}
	}
	var panes, clients []string
	session := ""
	for _, p := range s.guests {
		session = p.SessionID
		pane := "pane " + quoted(p.ID, false)
		if command := c.Commands[p.ID]; command != "" {
			pane += " runs " + quoted(command, true)
		}
		panes = append(panes, pane+" (pid "+strconv.Itoa(p.Pid)+")")
	}
	for _, a := range c.Clients {
		if a.SessionID != session {
			continue
		}
		client := quoted(a.TTY, false)
		if a.User != "" {
			client += " (" + quoted(a.User, false) + ")"
		}
		clients = append(clients, client)
	}
	out := few(panes)
	if len(clients) > 0 {
		out += "; attached: " + few(clients)
	}
	return out
}

// few joins the first of many, and counts the others.
func few(all []string) string {
	if more := len(all) - maxGuests; more > 0 {
		return strings.Join(all[:maxGuests], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(all, ", ")
}

// quoted keeps what a stranger calls himself to a bounded number of characters that a terminal shows and does not act on. A name that anybody
// chooses is put in quotes: it could read like what we say.
func quoted(s string, chosen bool) string {
	n := 0
	s = strings.Map(func(r rune) rune {
		if n++; !unicode.IsPrint(r) || n > maxGuestText {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 4*maxGuestText)], ""))
	if chosen {
		return strconv.Quote(s)
	}
	return s
}
