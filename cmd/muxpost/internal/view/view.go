// Package view writes answers for people and for programs: tables and short texts for a terminal, the wire's own JSON for
// scripts. It makes everything visible that is not printable, so that what somebody wrote upstream cannot steer a terminal.
//
// It asks nobody and decides nothing.
package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Tone says how a text is coloured, where there is colour.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "\x1b[32m"
	Warn  Tone = "\x1b[33m"
	Bad   Tone = "\x1b[31m"
	Dim   Tone = "\x1b[2m"
	Bold  Tone = "\x1b[1m"

	reset = "\x1b[0m"
)

// maxCell bounds a cell of a table, in characters.
const maxCell = 100

// Cell is one cell of a table.
type Cell struct {
	Text string
	Tone Tone
	// At is the time that the text tells of, for readers that can be shown it in full; zero when it tells of none.
	At time.Time
}

// Text returns a cell without colour.
func Text(s string) Cell { return Cell{Text: s} }

// Printer writes to one place. The zero value writes nothing useful: Out and Now are required.
type Printer struct {
	Out    io.Writer
	Colour bool
	// Whole has Clip cut nothing: whoever reads it is no terminal.
	Whole bool
	// Now is what times are told relative to.
	Now time.Time
}

// Paint returns a text in a tone, where there is colour.
func (p Printer) Paint(tone Tone, s string) string {
	if !p.Colour || tone == Plain || s == "" {
		return s
	}
	return string(tone) + s + reset
}

// Line writes one line.
func (p Printer) Line(format string, args ...any) {
	fmt.Fprintf(p.Out, format+"\n", args...) //nolint:errcheck // A terminal that is gone has no reader.
}

// Table writes a table; without rows it writes the text for none.
func (p Printer) Table(none string, header []string, rows [][]Cell) {
	if len(rows) == 0 {
		p.Line("%s", none)
		return
	}
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = len([]rune(h))
	}
	for _, row := range rows {
		for i := range row {
			row[i].Text = p.Clip(row[i].Text, maxCell)
			widths[i] = max(widths[i], len([]rune(row[i].Text)))
		}
	}
	cells := make([]Cell, len(header))
	for i, h := range header {
		cells[i] = Cell{Text: h, Tone: Dim}
	}
	p.row(widths, cells)
	for _, row := range rows {
		p.row(widths, row)
	}
}

func (p Printer) row(widths []int, cells []Cell) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		b.WriteString(p.Paint(c.Tone, c.Text))
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-len([]rune(c.Text))))
		}
	}
	p.Line("%s", strings.TrimRight(b.String(), " "))
}

// JSON writes a message as the services do over HTTP, indented, with the fields that are empty.
func JSON(w io.Writer, message proto.Message) error {
	data, err := compact(message)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, out.String())
	return err
}

// JSONLine writes a message on one line.
func JSONLine(w io.Writer, message proto.Message) error {
	data, err := compact(message)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", data)
	}
	return err
}

// compact takes away protojson's spaces, which change from build to build.
func compact(message proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, data)
	return out.Bytes(), err
}

// Values writes anything else as indented JSON.
func Values(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// Clean makes one line of printable characters.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Clip is Clean with a bound, in characters.
func Clip(s string, most int) string {
	runes := []rune(Clean(s))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// Clip is the function Clip, except where nothing is to be cut.
func (p Printer) Clip(s string, most int) string {
	if p.Whole {
		return Clean(s)
	}
	return Clip(s, most)
}

// DueNow is what Due writes once the time has come.
const DueNow = "due now"

// Due writes when something is looked at next: "in 12s", or "due now" once the time has come. An unset time is empty.
func (p Printer) Due(t *timestamppb.Timestamp) string {
	switch {
	case t == nil:
		return ""
	case p.Now.Sub(t.AsTime()) > -time.Second:
		return DueNow
	}
	return p.Ago(t.AsTime())
}

// When writes a time with how long ago it was, or how far it is ahead: "Jan 2 15:04:05 (3m ago)". An unset time is empty.
func (p Printer) When(t *timestamppb.Timestamp) string {
	if t == nil || t.AsTime().IsZero() {
		return ""
	}
	return p.Time(t.AsTime())
}

// Time is When for a time that is known.
func (p Printer) Time(at time.Time) string {
	layout := "Jan 2 15:04:05"
	if p.Now.Sub(at).Abs() > 300*24*time.Hour {
		layout = "2006-01-02 15:04"
	}
	return at.In(p.Now.Location()).Format(layout) + " (" + p.Ago(at) + ")"
}

// Ago writes the distance of a time: "3m ago", "in 12s", "now".
func (p Printer) Ago(at time.Time) string {
	switch d := p.Now.Sub(at); {
	case d.Abs() < time.Second:
		return "now"
	case d > 0:
		return Short(d) + " ago"
	default:
		return "in " + Short(-d)
	}
}

// Short writes a duration by its largest unit or two.
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Quote writes a word so that a shell takes it as one.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+:@%,", r))
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Count writes a number with what it counts.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
