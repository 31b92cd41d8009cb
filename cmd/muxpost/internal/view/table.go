package view

import "google.golang.org/protobuf/types/known/timestamppb"

// Table is a table before it is written: in columns for a terminal, or as a part of a page. Its texts are as they came and not clean yet.
type Table struct {
	// None is said in place of a table without rows.
	None string
	// Header names the columns, in capitals; a last one without a name has what else is to be said.
	Header []string
	Rows   [][]Cell
}

// Fact is a line of what is known about something. One without a label goes on with what the one before it is about.
type Fact struct {
	Label, Text string
}

// Write writes a table for a terminal.
func (p Printer) Write(t Table) { p.Table(t.None, t.Header, t.Rows) }

// since is a cell with how long ago a time was.
func (p Printer) since(t *timestamppb.Timestamp) Cell {
	return Cell{Text: p.Ago(t.AsTime()), At: t.AsTime()}
}

// when is a cell with a time; empty for an unset one.
func (p Printer) when(t *timestamppb.Timestamp) Cell {
	c := Text(p.When(t))
	if c.Text != "" {
		c.At = t.AsTime()
	}
	return c
}
