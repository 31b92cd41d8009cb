package console

import (
	"net/url"
	"strings"
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
)

// grid is a table of a page.
type grid struct {
	// Caption says what the table is, to who cannot see what stands above it.
	Caption string
	None    string
	Columns []string
	Rows    [][]cell
	// More is how many rows there are that are not shown.
	More int
}

// cell is one cell of it. Label is its column's name, for a narrow window.
type cell struct {
	Label, Text, Tone, URL string
	// Full and Machine are the time that it tells of.
	Full, Machine string
}

// maxCell bounds what a cell shows, in characters, and maxRows how many rows a table has that is not shown in parts.
const (
	maxCell = 400
	maxRows = 500
)

// linked are the columns that name what has a page.
func linked(column, text string) string {
	switch column {
	case "ITEM":
		return itemURL(text)
	case "DELIVERY":
		return deliveryURL(text)
	case "RUN":
		return runURL(text)
	case "PULL REQUEST":
		return upstreamURL(text)
	}
	return ""
}

// gridOf makes a table of a page of one that the command would write. Columns that are left out are said elsewhere on the page.
func gridOf(caption string, t view.Table, now time.Time, without ...string) grid {
	g := grid{Caption: caption, None: t.None}
	left := map[int]bool{}
	for i, name := range t.Header {
		for _, w := range without {
			left[i] = left[i] || w == name
		}
		if !left[i] {
			g.Columns = append(g.Columns, titled(name))
		}
	}
	g.More = max(0, len(t.Rows)-maxRows)
	for _, row := range t.Rows[:len(t.Rows)-g.More] {
		var cells []cell
		for i, from := range row {
			if left[i] {
				continue
			}
			c := cell{Label: titled(t.Header[i]), Text: view.Clip(from.Text, maxCell), Tone: toneClass(from.Tone), URL: linked(t.Header[i], from.Text)}
			if !from.At.IsZero() {
				c.Full, c.Machine = from.At.In(now.Location()).Format(fullTime), from.At.UTC().Format(time.RFC3339Nano)
			}
			cells = append(cells, c)
		}
		g.Rows = append(g.Rows, cells)
	}
	return g
}

// titled writes the name of a column: NEXT LOOK is Next look.
func titled(name string) string {
	if name == "" {
		return "Detail"
	}
	return name[:1] + strings.ToLower(name[1:])
}

// toneClass is the class of a tone. What it means is said in words too.
func toneClass(t view.Tone) string {
	switch t {
	case view.Good:
		return "good"
	case view.Warn:
		return "warn"
	case view.Bad:
		return "bad"
	case view.Dim:
		return "dim"
	case view.Bold:
		return "bold"
	}
	return ""
}

// itemURL is the page of a work item; empty for what is none.
func itemURL(item string) string {
	ref, err := workitem.Parse(item)
	if err != nil {
		return ""
	}
	return "/item?of=" + url.QueryEscape(ref.String())
}

// deliveryURL is the page of a delivery; empty for what is none.
func deliveryURL(id string) string {
	if !session.ValidDeliveryID(id) {
		return ""
	}
	return "/deliveries/" + id
}

func runURL(id string) string {
	if id == "" {
		return ""
	}
	return "/teams/" + url.PathEscape(id)
}

// upstreamURL is where an issue or a pull request can be read; empty for what is none. GitHub leads from the one form to the other.
func upstreamURL(item string) string {
	ref, err := workitem.Parse(item)
	if err != nil {
		return ""
	}
	_, number, _ := strings.Cut(ref.String(), "#")
	return "https://" + ref.Host() + "/" + ref.Owner() + "/" + ref.Repo() + "/issues/" + number
}

// webURL is an address that somebody else gave, if it is one of the web.
func webURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return u.String()
}
