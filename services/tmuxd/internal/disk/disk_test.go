package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/needs"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const target, id = "loop-octo-widget-7", "delivery-0001"

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "state"), "/bin/muxpost-exec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOpen_SaysWhatIsWrongWithADirectory(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"relative": "absolute", shared: "only its owner", file: "cannot make", link: "is a link"} {
		if _, err := Open(path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	d := open(t)
	if _, err := Open(d.root, ""); err == nil || !strings.Contains(err.Error(), "another tmuxd") {
		t.Errorf("twice: %v", err)
	}
}

// Who owns a directory changes what lies in it, whatever its mode.
func TestOpen_RefusesADirectoryOfAnotherUser(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		needs.Unmet(t, err) // only root may give a directory away
	}
	if d, err := Open(theirs, ""); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("%v, %v", d, err)
	}
	if left, err := os.ReadDir(theirs); err != nil || len(left) > 0 {
		t.Errorf("it was written to: %v, %v", left, err)
	}
}

func TestMemory_ReadsBackAndKnowsTheServersProcess(t *testing.T) {
	d := open(t)
	if _, known, err := d.Recall(target); known || err != nil {
		t.Fatalf("%v %v", known, err)
	}
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := host.Memory{Target: target, Stamp: "s1", Conversation: "c1", Server: host.Server{Pid: cmd.Process.Pid}, CreatedAt: time.Unix(5, 0).UTC(), Token: 9}
	if err := d.Remember(m); err != nil {
		t.Fatal(err)
	}
	got, known, err := d.Recall(target)
	if err != nil || !known || got.ServerStart == 0 || got.Boot == "" {
		t.Fatalf("%+v %v %v", got, known, err)
	}
	if lives := d.ServerLives(got); lives != session.ProcessAlive {
		t.Errorf("alive: %v", lives)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if lives := d.ServerLives(got); lives != session.ProcessGone {
		t.Errorf("gone: %v", lives)
	}
	if lives := d.ServerLives(host.Memory{}); lives != session.ProcessNone {
		t.Errorf("none: %v", lives)
	}
	m.ServerStart, m.Boot = got.ServerStart, got.Boot
	if diff := cmp.Diff(m, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(d.path("sessions", target+".json"), []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Recall(target); err == nil {
		t.Error("half a memory is read: it must be an error, not absence")
	}
}

func TestJournal_PassesOverATornLineAndKeepsTheRest(t *testing.T) {
	d := open(t)
	if e, err := d.Entries(target, id); err != nil || len(e) != 0 {
		t.Fatalf("%v %v", e, err)
	}
	first := host.Entry{Time: time.Unix(1, 0).UTC(), ID: id, Phase: session.Pasting, Stamp: "s1", Harness: "h", Conversation: "c", Directory: "/w"}
	if err := d.Append(target, first, false); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.path("journal", target+".jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"` + id + `","phase":"subm`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	second := first
	second.Phase = session.Submitted
	other := first
	other.ID = "delivery-0002"
	for _, e := range []host.Entry{second, other} {
		if err := d.Append(target, e, true); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Entries(target, id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]host.Entry{first, second}, got); diff != "" {
		t.Error(diff)
	}
}

func TestJournal_APhaseOfALaterVersionIsAnErrorNotNothing(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(d.path("journal", target+".jsonl"), []byte(`{"id":"`+id+`","phase":"queued"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Entries(target, id); err == nil {
		t.Error("an unknown phase is passed over")
	}
}

func TestToken_OnlyGrowsAndSurvives(t *testing.T) {
	d := open(t)
	for _, token := range []int64{5, 3, 7} {
		if err := d.RaiseToken(token); err != nil {
			t.Fatal(err)
		}
	}
	root := d.root
	d.Close()
	again, err := Open(root, "")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.Token(); got != 7 {
		t.Errorf("token %d", got)
	}
}

func TestSpec_WhoeverUnlinksItWasFirst(t *testing.T) {
	d := open(t)
	argv, err := d.Prepare(host.Run{Target: target, Stamp: "s1", Argv: []string{"x"}, NotAfter: time.Now()})
	if err != nil || len(argv) != 2 {
		t.Fatalf("%v %v", argv, err)
	}
	if !d.Revoke("s1") || d.Revoke("s1") {
		t.Error("a spec is taken back exactly once")
	}
}

func TestRan_ReadsWhatTheWrapperWrote(t *testing.T) {
	d := open(t)
	if r, err := d.Ran(target, "s1"); err != nil || r.Known || r.Process != session.ProcessNone {
		t.Fatalf("%+v %v", r, err)
	}
	self, err := wrapper.Self()
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range map[wrapper.State]host.Ran{
		wrapper.Launching:    {Known: true, Process: session.ProcessAlive, Reached: true},
		wrapper.Running:      {Known: true, Process: session.ProcessAlive, Reached: true},
		wrapper.Exited:       {Known: true, Process: session.ProcessAlive, Reached: true, Ended: true, Exit: host.Exit{Known: true, Code: 7}},
		wrapper.Signaled:     {Known: true, Process: session.ProcessAlive, Reached: true, Ended: true, Exit: host.Exit{Known: true, Signal: 9}},
		wrapper.LaunchFailed: {Known: true, Process: session.ProcessAlive, Ended: true},
	} {
		rec := wrapper.Record{Stamp: "s1", State: state, Wrapper: self}
		switch state {
		case wrapper.Exited:
			rec.Code = 7
		case wrapper.Signaled:
			rec.Signal = 9
		}
		if err := wrapper.WriteRecord(d.record(target, "s1"), rec); err != nil {
			t.Fatal(err)
		}
		got, err := d.Ran(target, "s1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
	}
	if err := os.WriteFile(d.record(target, "s1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Ran(target, "s1"); err == nil || r.Process != session.ProcessUnclear {
		t.Errorf("half a record: %+v %v", r, err)
	}
}

func TestTranscripts_ReadLinesOfAnyLengthInWhatChangedSince(t *testing.T) {
	d := open(t)
	dir := t.TempDir()
	found := func(since time.Time) (hit bool) {
		t.Helper()
		err := d.Transcripts(filepath.Join(dir, "*.jsonl"), since, nil, func(_ string, line []byte) bool {
			hit = hit || strings.Contains(string(line), "needle")
			return !hit
		})
		if err != nil {
			t.Fatal(err)
		}
		return hit
	}
	if found(time.Time{}) {
		t.Error("found in nothing")
	}
	path := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(path, []byte("first\n"+strings.Repeat("x", 3<<20)+"needle"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !found(time.Time{}) {
		t.Error("not found")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if found(old.Add(time.Minute)) {
		t.Error("found in what did not change since")
	}
}

func TestTranscripts_ReadNothingTwiceButWhatWasNotWhole(t *testing.T) {
	d := open(t)
	path := filepath.Join(t.TempDir(), "a.jsonl")
	read := map[string]int64{}
	write := func(flags int, text string) (lines []string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if err := d.Transcripts(path, time.Time{}, read, func(_ string, line []byte) bool { lines = append(lines, string(line)); return true }); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	for _, step := range []struct {
		flags int
		text  string
		want  []string
	}{
		{os.O_APPEND, "one\ntwo\nthr", []string{"one", "two", "thr"}},
		{os.O_APPEND, "ee\n", []string{"three"}},
		{os.O_APPEND, "", nil},
		{os.O_APPEND, "four", []string{"four"}},
		{os.O_TRUNC, "anew\n", []string{"anew"}}, // shorter than what was read
	} {
		if got := write(step.flags, step.text); !slices.Equal(got, step.want) {
			t.Errorf("%q: read %q", step.text, got)
		}
	}
}
