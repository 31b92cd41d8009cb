package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// decodeAll decodes chunks and joins neighbouring texts, the one thing that the cuts may change.
func decodeAll(chunks ...[]byte) []event {
	var d decoder
	var out []event
	add := func(events []event) {
		for _, e := range events {
			if n := len(out); n > 0 && e.kind == evText && out[n-1].kind == evText {
				out[n-1].text += e.text
				continue
			}
			out = append(out, e)
		}
	}
	for _, c := range chunks {
		add(d.feed(c))
	}
	add(d.flush())
	return out
}

// singles cuts bytes into reads of one byte.
func singles(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) }

func TestDecode_GivesTheKeyForItsBytes(t *testing.T) {
	tests := []struct {
		name, in string
		want     []event
	}{
		{"typed text", "héllo", []event{{evText, "héllo"}}},
		{"enter among text", "a\rb", []event{{evText, "a"}, {evEnter, ""}, {evText, "b"}}},
		{"editing keys", "\x7f\x08\x15\x03\t\n", []event{
			{evBackspace, ""}, {evBackspace, ""}, {evKill, ""}, {evInterrupt, ""}, {evTab, ""}, {evNewline, ""}}},
		{"lone escape", "\x1b", []event{{evEscape, ""}}},
		{"two escapes", "\x1b\x1b", []event{{evEscape, ""}, {evEscape, ""}}},
		{"alt enter", "\x1b\r", []event{{evNewline, ""}}},
		{"alt letter and arrows mean nothing", "\x1bx\x1b[A\x1bOP\x1b[1;5C", nil},
		{"paste keeps newlines", "\x1b[200~a\nb\x1b[201~\r", []event{{evPaste, "a\nb"}, {evEnter, ""}}},
		{"paste has one kind of line end", "\x1b[200~a\r\nb\rc\x1b[201~", []event{{evPaste, "a\nb\nc"}}},
		{"keys inside a paste are text", "\x1b[200~\x03\x1b[A\x1b\x1b[201~", []event{{evPaste, "\x03\x1b[A\x1b"}}},
		{"the end marker inside a text ends it", "\x1b[200~a\x1b[201~\ry", []event{{evPaste, "a"}, {evEnter, ""}, {evText, "y"}}},
		{"a stray end marker is nothing", "\x1b[201~a", []event{{evText, "a"}}},
		{"an open paste gives nothing", "\x1b[200~abc\r", nil},
		{"bytes that are no text", "a\xffb\xe2\x82", []event{{evText, "a\uFFFDb\uFFFD"}}},
		{"a sequence without an end", "\x1b[" + strings.Repeat("1", 70) + "\r",
			[]event{{evText, "11111111"}, {evEnter, ""}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decodeAll([]byte(tt.in))
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(event{})); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.want, decodeAll(singles([]byte(tt.in))...), cmp.AllowUnexported(event{})); d != "" {
				t.Error("byte by byte:", d)
			}
		})
	}
}

func FuzzDecode_CutsNeverChangeTheEvents(f *testing.F) {
	f.Add([]byte("a\x1b[200~b\r\nc\x1b[201~\r\x1b"), []byte{3, 1, 2})
	f.Add([]byte("\x1b\x1b[200~\x1b[201\x1b[201~é\xe2\x82\xac"), []byte{1})
	f.Add([]byte("\x1b[1;1;1;\x1bO\x1b[A/quit\r"), []byte{2, 5})
	f.Fuzz(func(t *testing.T, in, cuts []byte) {
		var chunks [][]byte
		rest := in
		for i := 0; len(cuts) > 0 && len(rest) > 0; i = (i + 1) % len(cuts) {
			n := min(len(rest), int(cuts[i])+1)
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		chunks = append(chunks, rest)
		if d := cmp.Diff(decodeAll(in), decodeAll(chunks...), cmp.AllowUnexported(event{})); d != "" {
			t.Error(d)
		}
	})
}

func TestDecode_TimeOfAPasteGrowsWithItsSizeOnly(t *testing.T) {
	text := strings.Repeat("x\x1b[201", 4<<20/7)
	var d decoder
	d.feed([]byte(pasteBegin))
	for rest := text; rest != ""; {
		n := min(len(rest), 4095)
		if got := d.feed([]byte(rest[:n])); got != nil {
			t.Fatalf("the paste ended early: %d events", len(got))
		}
		rest = rest[n:]
	}
	got := d.feed([]byte(pasteEnd))
	if len(got) != 1 || got[0].text != text {
		t.Fatal("the paste is not what was sent")
	}
}
