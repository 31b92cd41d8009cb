package tmux

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestUnescape_ReadsWhatIsShownBefore34(t *testing.T) {
	for row, want := range map[string]string{
		"": "", "plain é": "plain é", `a\\b`: `a\b`, `\\`: `\`, `\\\\`: `\\`, `\\n`: `\n`, `\033[1m`: "\x1b[1m", `\\033`: `\033`, `\t|\s`: "\t| ", `\177`: "\x7f",
		`\\\033`: "\\\x1b", `\`: `\`, `\03`: "03", `\q`: "q",
	} {
		if got := unescape(row); got != want {
			t.Errorf("%s: %q instead of %q", row, got, want)
		}
	}
}

func TestShot_RowsAsTheyAreReported(t *testing.T) {
	for _, row := range []struct{ lines, want []string }{
		{nil, nil},
		{[]string{"B|n"}, nil},
		{[]string{"B|n", `\`, "END|n"}, nil},
		{[]string{"B|n", `\`, "a", `\\`, "", "", "END|n", "x"}, []string{"a", `\\`, ""}},
		{[]string{"x", "B|n", `\\`, "a", `\\`, "", "END|n"}, []string{"a", `\`}},
		{[]string{"B|n", `\`, "a wrapped one", "END|n"}, []string{"a wrapped one"}},
	} {
		if got := (reply{lines: row.lines}).shot("B|n", "END|n"); len(got)+len(row.want) > 0 && !cmp.Equal(got, row.want) {
			t.Errorf("%q: %q instead of %q", row.lines, got, row.want)
		}
	}
}

func TestShot_IsWhatTheScreenShows(t *testing.T) {
	rows := []string{`C:\new\table \\ \033[1m \`, `%end 1 2 3`, `é 界 $HOME ${x} "q" 'q' #{pane_id} ; }`, `\`, `\\`, "", "  indented"}
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			// The first line is longer than the pane is wide, and one is bold.
			r := newRigOf(t, bin, `printf '%s\n' "$(printf %0250d 7)" '`+strings.ReplaceAll(strings.Join(rows, "\n"), "'", `'\''`)+
				`'; printf '\033[1mbold\033[0m\nready'; exec cat >/dev/null`)
			r.until("it shows everything", func() bool { return strings.Contains(r.screen(), "ready") })
			s, ok, err := r.Capture(r.ctx(), target, r.guard)
			if err != nil || !ok || len(s.Rows) != 50 {
				t.Fatalf("%d rows, %v, %v", len(s.Rows), ok, err)
			}
			want := append([]string{strings.Repeat("0", 200), strings.Repeat("0", 49) + "7"}, rows...)
			if d := cmp.Diff(append(want, "bold", "ready"), s.Rows[:len(rows)+4]); d != "" {
				t.Error(d)
			}
			c, ok, err := r.Scrollback(r.ctx(), target, r.guard, host.Extent{Lines: 10, Join: true, Attributes: true})
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			want = append([]string{strings.Repeat("0", 249) + "7"}, rows...)
			last := len(c.Lines) - 1
			if d := cmp.Diff(append(want, "\x1b[1mbold"), c.Lines[:last]); d != "" || c.Scrollback != 0 || !strings.HasPrefix(c.Lines[last], "\x1b[0m") {
				t.Errorf("%d, %q, %s", c.Scrollback, c.Lines[last], d)
			}
			n := Nonce()
			if got, err := r.say(r.ctx(), n, "list-buffers ; display-message -p 'END|"+n+"'"); err != nil || len(got.lines) != 1 {
				t.Errorf("buffers are left: %q, %v", got.lines, err)
			}
		})
	}
}

// resident is the memory of a server, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// An agent lives for weeks, and its server with it: what stays there of each look and each act is more, one day, than the host has.
func TestServer_KeepsNothingOfLooksAndLittleOfActs(t *testing.T) {
	for _, bin := range releases() {
		t.Run(releaseOf(t, bin), func(t *testing.T) {
			// The screen is full: eight kilobytes.
			r, note := titled(t, bin, `stty -echo; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
				do printf '%0200d\n' $n; done; printf ready; while read -r line; do printf '\033]2;%s\007' "$line"; done`)
			screen := r.seen()
			words := map[bool]struct{ title, word string }{false: {"⠋ w", "working"}, true: {"w", "idle"}}
			wrong := func(ok bool, err error) {
				t.Helper()
				if err != nil || !ok {
					t.Fatalf("%v, %v", ok, err)
				}
			}
			n := 0
			for _, what := range []struct {
				name  string
				often int
				bytes int64 // for each
				do    func()
			}{
				{"Observe", 1000, 256, func() { r.view() }},
				{"Company", 1000, 256, func() { _, err := r.Company(r.ctx(), target); wrong(true, err) }},
				{"Capture", 1000, 256, func() { _, ok, err := r.Capture(r.ctx(), target, r.guard); wrong(ok, err) }},
				{"Scrollback", 500, 512, func() {
					_, ok, err := r.Scrollback(r.ctx(), target, r.guard, host.Extent{Lines: 100, Join: true})
					wrong(ok, err)
				}},
				{"Output", 500, 512, func() {
					_, ok, err := Attempts{c: r.Client}.Output(r.ctx(), target, attempt.Pane{Stamp: r.guard.Stamp, SessionID: r.guard.Session, ID: r.guard.Pane,
						Wrapper: attempt.Process{Pid: r.guard.Pid}})
					wrong(ok, err)
				}},
				{"a delivery and a title that is noted", 200, 8 << 10, func() {
					n++
					id, w := fmt.Sprintf("delivery-%04d", n), words[n%2 == 0]
					pasted := session.Ring{}.With(id, session.Pasted)
					r.rules(host.Done)(r.Paste(r.ctx(), target, r.guard, host.Text{ID: id, Typed: w.title, Look: screen, Ring: pasted}))
					r.rules(host.Done)(r.Submit(r.ctx(), target, r.guard, id, session.Pasted, screen, pasted.With(id, session.Submitted)))
					r.until("it is noted", func() bool { got, _ := os.ReadFile(note); return string(got) == w.word })
				}},
			} {
				for range what.often / 2 {
					what.do()
				}
				before := resident(t, r.made.Server.Pid)
				for range what.often {
					what.do()
				}
				grown := resident(t, r.made.Server.Pid) - before
				t.Logf("%s: %d bytes each", what.name, grown/int64(what.often))
				if grown > what.bytes*int64(what.often) {
					t.Errorf("%d times %s: the server has grown by %d bytes", what.often, what.name, grown)
				}
			}
			out, err := exec.CommandContext(r.ctx(), bin, "-S", r.Socket(target), "list-buffers").Output()
			if err != nil || len(out) > 0 {
				t.Errorf("buffers are left: %s, %v", out, err)
			}
		})
	}
}
