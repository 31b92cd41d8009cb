package tmux

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// blocks reads everything.
func blocks(t *testing.T, text string) (out []block, notifications []string) {
	t.Helper()
	p := newParser(strings.NewReader(text))
	for {
		b, n, err := p.next()
		switch {
		case errors.Is(err, io.EOF):
			return out, notifications
		case err != nil:
			t.Fatal(err)
		case n != "":
			notifications = append(notifications, n)
		default:
			out = append(out, b)
		}
	}
}

func TestParser_TellsBlocksFromNotifications(t *testing.T) {
	got, notes := blocks(t, "%begin 1 10 0\n%end 1 10 0\n%session-changed $0 a\nnoise of a hook\n%begin 1 11 1\nx\n\n%end 1 11 1\n"+
		"%begin 1 12 1\ncan't find pane\n%error 1 12 1\n%exit\n")
	if len(got) != 3 || got[0].ours || !got[1].ours || got[1].failed || !got[2].failed {
		t.Fatalf("%+v", got)
	}
	if !slices.Equal(got[1].lines, []string{"x", ""}) || !slices.Equal(got[2].lines, []string{"can't find pane"}) {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(notes, []string{"%session-changed $0 a", "%exit"}) {
		t.Errorf("%q", notes)
	}
}

func TestParser_AScreenThatShowsAnEndIsText(t *testing.T) {
	got, notes := blocks(t, "%begin 1 11 1\n%end 1 10 1\n%begin 1 12 1\n%exit\n%error 1 11 0\n%end 1 11 1\n")
	if len(got) != 1 || len(got[0].lines) != 4 || got[0].failed || len(notes) != 0 {
		t.Fatalf("%+v %q", got, notes)
	}
}

func TestParser_BoundsWhatItKeepsAndReadsOn(t *testing.T) {
	long, row := strings.Repeat("x", maxLine+5), strings.Repeat("y", 1000)+"\n"
	got, _ := blocks(t, "%begin 1 11 1\n"+long+"\n%end 1 11 1\n%begin 1 12 1\n"+strings.Repeat(row, maxBlock/1000+100)+"%end 1 12 1\n%begin 1 13 1\nz\n%end 1 13 1\n")
	if len(got) != 3 || len(got[0].lines[0]) != maxLine || !got[0].cut || !got[1].cut || got[2].cut || got[2].lines[0] != "z" {
		t.Fatalf("%d blocks", len(got))
	}
}

func TestParser_ATruncatedBlockIsNoAnswer(t *testing.T) {
	p := newParser(strings.NewReader("%begin 1 11 1\nOK|n1\n"))
	if _, _, err := p.next(); err == nil {
		t.Fatal("half a block was taken for a whole one")
	}
}

// Whatever a command prints comes out as it went in, and whatever a server writes is read to its end.
func FuzzParser(f *testing.F) {
	f.Add("row\n%end 1 2 1\n%exit", "%begin 1 2 1\n")
	f.Fuzz(func(t *testing.T, text, noise string) {
		p := newParser(strings.NewReader(noise))
		for {
			if _, _, err := p.next(); err != nil {
				break
			}
		}
		if strings.Contains("\n"+text+"\n", "\n%end 7 7 1\n") || strings.Contains("\n"+text+"\n", "\n%error 7 7 1\n") || len(text) > maxLine {
			return
		}
		got, _ := blocks(t, "%begin 7 7 1\n"+text+"\n%end 7 7 1\n")
		if len(got) != 1 || strings.Join(got[0].lines, "\n") != text {
			t.Fatalf("%q came out as %+v", text, got)
		}
	})
}
