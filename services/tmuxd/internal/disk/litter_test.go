package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// names are the files of the state directory, without the lock.
func (d *Dir) names(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(d.root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" {
			name, _ := filepath.Rel(d.root, path)
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func put(t *testing.T, path string, age time.Duration) {
	t.Helper()
	if _, err := os.Lstat(path); err != nil {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// unfinished leaves what the production writer leaves that dies between the write and the rename: the rename is made to fail, and what was
// written is kept under the name that it had.
func unfinished(t *testing.T, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil { // nothing is renamed onto a directory
		t.Fatal(err)
	}
	keep := filepath.Join(filepath.Dir(path), "kept")
	found := make(chan string)
	done := make(chan struct{})
	go func() { // the writer removes it again, so it is caught while it is there
		defer close(found)
		for {
			select {
			case <-done:
				return
			default:
			}
			paths, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
			if len(paths) == 1 && os.Link(paths[0], keep) == nil {
				found <- paths[0]
				return
			}
		}
	}()
	var name string
	for name == "" {
		if err := wrapper.WriteJSON(path, "x"); err == nil {
			t.Fatal("it was written")
		}
		select {
		case name = <-found:
		default:
		}
	}
	close(done)
	if err := os.Rename(keep, name); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTidy_RemovesWhatNobodyOwnsAndNothingElse(t *testing.T) {
	d := open(t)
	_, lives := sleeper(t)
	dead := gone(t)
	if err := d.Remember(host.Memory{Target: target, Stamp: "s00000001", Token: 5}); err != nil {
		t.Fatal(err)
	}
	if err := d.Append(target, host.Entry{ID: id, Phase: session.Taken}, false); err != nil {
		t.Fatal(err)
	}
	if err := d.RaiseToken(9); err != nil {
		t.Fatal(err)
	}
	record := func(target, stamp string, w wrapper.Process, state wrapper.State) {
		if err := wrapper.WriteRecord(d.record(target, stamp), wrapper.Record{Stamp: stamp, State: state, Wrapper: w}); err != nil {
			t.Fatal(err)
		}
	}
	prepare := func(stamp string, notAfter time.Duration) {
		if _, err := d.Prepare(host.Run{Target: target, Stamp: stamp, Argv: []string{"x"}, NotAfter: time.Now().Add(notAfter)}); err != nil {
			t.Fatal(err)
		}
	}
	long := 30 * 24 * time.Hour
	record(target, "s00000001", lives, wrapper.Running)
	record(target, "s00000002", dead, wrapper.Exited)
	record("loop-gone-1", "s00000003", dead, wrapper.Exited)
	record("loop-gone-1", "s00000004", lives, wrapper.Running)
	record("loop-gone-2", "s00000005", dead, wrapper.Exited)
	for _, r := range []string{target + ".s00000001", target + ".s00000002", "loop-gone-1.s00000003", "loop-gone-1.s00000004"} {
		put(t, d.path("records", r+".json"), long)
	}
	prepare("s00000006", time.Hour)
	prepare("s00000007", -time.Hour)
	prepare("s00000008", -time.Second)
	put(t, d.spec("s00000009"), long) // half a spec
	for stamp, age := range map[string]time.Duration{"s00000001": long, "s00000002": long, "s00000006": long, "s00000010": long, "s00000011": time.Minute} {
		put(t, d.prompt(stamp), age)
	}
	put(t, d.path("records", "."+target+".s00000001.json.123"), long)
	put(t, d.path("records", "."+target+".s00000002.json.123"), long)
	put(t, d.path("sessions", "."+target+".json.123"), time.Minute)
	put(t, d.path(".token.json.123"), long)
	put(t, d.path(".writable.123"), long)
	put(t, d.path("tmux.conf"), long)
	stale := unfinished(t, d.path("sessions", "loop-x.json"))
	put(t, stale, long)
	before := d.names(t)
	removed, err := d.Tidy(time.Now(), 7*24*time.Hour)
	if err != nil {
		t.Error(err)
	}
	want := []string{
		"records/loop-gone-1.s00000003.json", "records/." + target + ".s00000002.json.123", strings.TrimPrefix(stale, d.root+"/"),
		".token.json.123", ".writable.123", "specs/s00000007.json", "specs/s00000009.json", "prompts/s00000002.txt", "prompts/s00000010.txt",
	}
	slices.Sort(want)
	slices.Sort(removed)
	if !slices.Equal(removed, want) {
		t.Errorf("removed %v\nwant    %v", removed, want)
	}
	rest := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(want, name) })
	if got := d.names(t); !slices.Equal(got, rest) {
		t.Errorf("left %v\nwant %v", got, rest)
	}
	if again, err := d.Tidy(time.Now(), 7*24*time.Hour); err != nil || len(again) > 0 {
		t.Errorf("again: %v, %v", again, err)
	}
}

func TestTidy_WhatCannotBeReadStays(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(d.record("loop-gone-1", "s00000001"), []byte(`{"version":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, d.record("loop-gone-1", "s00000001"), 30*24*time.Hour)
	put(t, d.prompt("s00000001"), 30*24*time.Hour)
	if removed, err := d.Tidy(time.Now(), time.Hour); err == nil || len(removed) > 0 {
		t.Errorf("%v, %v", removed, err)
	}
}

func TestForget_LeavesTheTokenAndTheJournal(t *testing.T) {
	d := open(t)
	dead := gone(t)
	if err := d.Remember(host.Memory{Target: target, WorkItem: "github:octo/widget#7", Stamp: "s00000001", Token: 5}); err != nil {
		t.Fatal(err)
	}
	d.write(t, wrapper.Record{Stamp: "s00000001", State: wrapper.Exited, Wrapper: dead, Swept: true})
	d.write(t, wrapper.Record{Stamp: "s00000002", State: wrapper.LaunchFailed, Wrapper: dead, Swept: true})
	for stamp, delivery := range map[string]string{"s00000001": id, "s00000002": "delivery-0002"} {
		if err := d.Append(target, host.Entry{ID: delivery, Phase: session.Boot, Stamp: stamp}, false); err != nil {
			t.Fatal(err)
		}
		put(t, d.prompt(stamp), 0)
	}
	if err := d.Forget(target, 5); err != nil {
		t.Fatal(err)
	}
	if got := d.names(t); !slices.Equal(got, []string{"instance", "journal/" + target + ".jsonl", "tokens/" + target + ".json"}) {
		t.Errorf("%v", got)
	}
	if m, known, err := d.Recall(target); known || err != nil || m.Token != 5 || m.Stamp != "" {
		t.Errorf("%+v %v %v", m, known, err)
	}
	// The one may have read its prompt, the other cannot have.
	for delivery, want := range map[string]session.Phase{id: session.Submitted, "delivery-0002": session.Boot} {
		entries, err := d.Entries(target, delivery)
		if err != nil || len(entries) == 0 || entries[len(entries)-1].Phase != want {
			t.Errorf("%s: %v, %v", delivery, entries, err)
		}
	}
	if err := d.Forget(target, 3); err != nil { // a lower one never takes its place
		t.Error(err)
	}
	if m, _, err := d.Recall(target); err != nil || m.Token != 5 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestForget_StopsBeforeWhatLives(t *testing.T) {
	d := open(t)
	_, lives := sleeper(t)
	if err := d.Remember(host.Memory{Target: target, Stamp: "s00000001", Token: 5}); err != nil {
		t.Fatal(err)
	}
	d.write(t, wrapper.Record{Stamp: "s00000001", State: wrapper.Running, Wrapper: lives})
	if err := d.Forget(target, 5); err == nil {
		t.Error("the record of a living incarnation was removed")
	}
	if _, known, err := d.Recall(target); !known || err != nil {
		t.Errorf("%v %v", known, err)
	}
	if ran, err := d.Ran(target, "s00000001"); err != nil || !ran.Known {
		t.Errorf("%+v, %v", ran, err)
	}
}

func TestRecall_ATokenThatCannotBeReadIsAnError(t *testing.T) {
	d := open(t)
	put(t, d.path("tokens", target+".json"), 0)
	if _, _, err := d.Recall(target); err == nil {
		t.Error("an older act could come back")
	}
}
