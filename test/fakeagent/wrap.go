package main

import (
	"slices"
	"strings"
	"unicode"
)

// wrapTail breaks text into rows of at most w columns and returns the last n of them, at least one; whole says that
// these are all. Only the end of a long text is looked at, so a frame costs little whatever stands in the box.
func wrapTail(text string, w, n int) (rows []string, whole bool) {
	w, n = max(w, 1), max(n, 1)
	for {
		i := strings.LastIndexByte(text, '\n')
		part := wrapLine(printable(text[i+1:]), w)
		for len(part) > 0 && len(rows) < n {
			rows = append(rows, part[len(part)-1])
			part = part[:len(part)-1]
		}
		if len(rows) == n || i < 0 {
			slices.Reverse(rows)
			return rows, i < 0 && len(part) == 0
		}
		text = text[:i]
	}
}

// printable replaces what would act on the terminal instead of being seen.
func printable(s string) []rune {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == '\t':
			out = append(out, ' ', ' ', ' ', ' ')
		case unicode.IsControl(r):
			out = append(out, '\uFFFD')
		default:
			out = append(out, r)
		}
	}
	return out
}

// wrapLine breaks one line after its spaces, and inside a word only when the word alone is too long. A space that does
// not fit hangs over the end of its row.
func wrapLine(line []rune, w int) []string {
	var rows []string
	start, col, gap := 0, 0, 0
	for i, r := range line {
		if r == ' ' && col >= w {
			gap = i + 1
			continue
		}
		if c := cells(r); col+c > w && i > start {
			cut := i
			if gap > start {
				cut = gap
			}
			rows = append(rows, clip(string(line[start:cut]), w))
			start = cut
			col = 0
			for _, moved := range line[start:i] {
				col += cells(moved)
			}
		}
		col += cells(r)
		if r == ' ' {
			gap = i + 1
		}
	}
	return append(rows, clip(string(line[start:]), w))
}

// clip keeps as much of a line as fits into w columns, without what would act on the terminal.
func clip(s string, w int) string {
	col := 0
	var b strings.Builder
	for _, r := range printable(s) {
		if col += cells(r); col > w {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// width is the number of columns of a line.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// cells is the number of columns of a rune: none for marks that combine, two for the wide scripts and emoji.
func cells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0x303e, r >= 0x3041 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f680 && r <= 0x1f6ff, r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
