package disk

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// sleeper starts a process that stays until it is ended.
func sleeper(t *testing.T, env ...string) (*exec.Cmd, wrapper.Process) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := wrapper.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// gone is a process that has ended.
func gone(t *testing.T) wrapper.Process {
	t.Helper()
	cmd, p := sleeper(t)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return p
}

func (d *Dir) write(t *testing.T, r wrapper.Record) {
	t.Helper()
	if err := wrapper.WriteRecord(d.record(target, r.Stamp), r); err != nil {
		t.Fatal(err)
	}
}

func TestRan_LivesAsLongAsAnythingOfItDoes(t *testing.T) {
	d := open(t)
	_, lives := sleeper(t)
	_, marked := sleeper(t, wrapper.StampVariable+"=s00000007")
	dead := gone(t)
	for name, row := range map[string]struct {
		record wrapper.Record
		want   session.Process
	}{
		"the wrapper":               {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: lives, Child: dead}, session.ProcessAlive},
		"the harness alone":         {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: dead, Child: lives}, session.ProcessAlive},
		"what carries its stamp":    {wrapper.Record{Stamp: "s00000007", State: wrapper.Running, Wrapper: dead, Child: dead}, session.ProcessAlive},
		"nothing":                   {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: dead, Child: dead}, session.ProcessGone},
		"nothing, as it recorded":   {wrapper.Record{Stamp: "s00000007", State: wrapper.Exited, Wrapper: dead, Child: dead, Swept: true}, session.ProcessGone},
		"a group that is not seen":  {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: dead, Child: dead, Group: "/nowhere/x"}, session.ProcessUnclear},
		"a group of another boot":   {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: wrapper.Process{Pid: 5, Boot: "x"}, Group: "/nowhere/x"}, session.ProcessGone},
		"a pid that is used again":  {wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: wrapper.Process{Pid: lives.Pid, Start: 1, Boot: lives.Boot}}, session.ProcessGone},
		"found gone, and concluded": {wrapper.Record{Stamp: "s1", State: wrapper.Lost, Wrapper: dead, Swept: true}, session.ProcessGone},
	} {
		d.write(t, row.record)
		got, err := d.Ran(target, row.record.Stamp)
		if err != nil || !got.Known || got.Process != row.want || got.Ended != (row.record.State == wrapper.Exited) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if alive, err := marked.Alive(); err != nil || !alive {
		t.Errorf("a look ended something: %v", err)
	}
}

func TestRan_ARecordOfAnotherIncarnationIsNotRead(t *testing.T) {
	d := open(t)
	r := wrapper.Record{Stamp: "s2", State: wrapper.Exited}
	if err := wrapper.WriteRecord(d.record(target, "s1"), r); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Ran(target, "s1"); !errors.Is(err, wrapper.ErrMalformed) || got.Process != session.ProcessUnclear || got.Ended {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRan_OfALaterVersionIsUnclearAndNoEnd(t *testing.T) {
	d := open(t)
	if err := os.WriteFile(d.record(target, "s1"), []byte(`{"version":2,"stamp":"s1","state":"exited"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Ran(target, "s1"); !errors.Is(err, wrapper.ErrNewer) || got.Process != session.ProcessUnclear || got.Ended || got.Known {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := d.Tree(target, "s1"); !errors.Is(err, wrapper.ErrNewer) {
		t.Error(err)
	}
}

func TestConclude_KeepsWhatTheWrapperSaidAndTellsWhatItCouldNot(t *testing.T) {
	d := open(t)
	dead, at := gone(t), time.Unix(100, 0).UTC()
	d.write(t, wrapper.Record{Stamp: "s1", State: wrapper.Exited, Code: 7, Wrapper: dead, EndedAt: time.Unix(50, 0)})
	d.write(t, wrapper.Record{Stamp: "s2", State: wrapper.Running, Wrapper: dead, EndedAt: time.Time{}})
	if got, err := d.Unsettled(); err != nil || !slices.Equal(got[target], []string{"s1", "s2"}) || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, stamp := range []string{"s1", "s2"} {
		if err := d.Conclude(target, stamp, at); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.Unsettled(); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	first, err := d.Ran(target, "s1")
	if err != nil || !first.Ended || first.Exit.Code != 7 || first.Exit.At.Unix() != 50 {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := d.Tree(target, "s2")
	if err != nil || !second.Recorded || !second.EndedAt.Equal(at) || len(second.Pids) > 0 {
		t.Errorf("%+v, %v", second, err)
	}
	if ran, err := d.Ran(target, "s2"); err != nil || ran.Ended || ran.Exit.Known || ran.Process != session.ProcessGone {
		t.Errorf("nobody knows how it ended: %+v, %v", ran, err)
	}
}

func TestTermAndKill_ReachWhatIsRecordedAndNothingElse(t *testing.T) {
	d := open(t)
	shell := exec.Command("sh", "-c", "trap '' TERM; sleep 300 & wait; wait")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.Wait() }()
	own, err := wrapper.Find(shell.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_, beside := sleeper(t)
	d.write(t, wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: own})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tree, err := d.Tree(target, "s1")
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", tree, err)
		}
		if len(tree.Pids) == 2 && tree.Wrapper && tree.Known && !tree.Whole {
			break
		}
	}
	other := own
	other.Start++
	d.write(t, wrapper.Record{Stamp: "s2", State: wrapper.Running, Wrapper: other})
	if err := errors.Join(d.Term(target, "s2"), d.Kill(target, "s2", true)); err != nil {
		t.Error(err)
	}
	if alive, err := own.Alive(); err != nil || !alive {
		t.Fatalf("another process of its pid was hit: %v", err)
	}
	if err := d.Kill(target, "s1", false); err != nil {
		t.Error(err)
	}
	tree, err := d.Tree(target, "s1")
	if err != nil || len(tree.Pids) > 1 {
		t.Errorf("%+v, %v", tree, err)
	}
	if err := d.Kill(target, "s1", true); err != nil {
		t.Error(err)
	}
	if tree, err := d.Tree(target, "s1"); err != nil || len(tree.Pids) > 0 {
		t.Errorf("%+v, %v", tree, err)
	}
	if alive, err := beside.Alive(); err != nil || !alive {
		t.Errorf("what lived beside it was ended: %v", err)
	}
}

func TestEnroll_OnlyTheChildOfItsServer(t *testing.T) {
	d := open(t)
	_, p := sleeper(t)
	if err := d.Enroll(target, "s1", p.Pid, 1); err == nil {
		t.Error("a process that is nobody's pane was enrolled")
	}
	if ran, err := d.Ran(target, "s1"); err != nil || ran.Known {
		t.Errorf("%+v, %v", ran, err)
	}
	if err := d.Enroll(target, "s1", p.Pid, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if tree, err := d.Tree(target, "s1"); err != nil || !tree.Wrapper || !slices.Equal(tree.Pids, []int{p.Pid}) {
		t.Errorf("%+v, %v", tree, err)
	}
}

func TestBelow_NamesPanesWithTheirDescendantsAndLivingTellsWhichLive(t *testing.T) {
	d := open(t)
	cmd, p := sleeper(t)
	lives, err := d.Below(os.Getpid(), []int{p.Pid, 1, 1 << 30})
	if err != nil || !slices.Equal(lives, []host.Life{{Pid: p.Pid, Start: p.Start}}) {
		t.Fatalf("%v, %v", lives, err)
	}
	if got, err := d.Living(lives); err != nil || !slices.Equal(got, []int{p.Pid}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := d.Living([]host.Life{{Pid: p.Pid, Start: p.Start + 1}}); err != nil || len(got) > 0 {
		t.Errorf("another process of its pid: %v, %v", got, err)
	}
	_ = syscall.Kill(p.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if got, err := d.Living(lives); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPrepare_KeepsTheLatestRecordsAndEveryLivingOne(t *testing.T) {
	d := open(t)
	_, lives := sleeper(t)
	dead := gone(t)
	stamps := make([]string, keepRecords+3)
	for i := range stamps {
		stamps[i] = "s0000000" + string(rune('a'+i))
		r := wrapper.Record{Stamp: stamps[i], State: wrapper.Exited, Wrapper: dead, Swept: true}
		if i == 0 {
			r.State, r.Wrapper, r.Swept = wrapper.Running, lives, false
		}
		d.write(t, r)
		at := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := os.Chtimes(d.record(target, stamps[i]), at, at); err != nil {
			t.Fatal(err)
		}
	}
	boot := host.Entry{Time: time.Unix(1, 0).UTC(), ID: id, Phase: session.Boot, Stamp: stamps[1], Harness: "h", Conversation: "c", Directory: "/w"}
	if err := d.Append(target, boot, true); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Prepare(host.Run{Target: target, Stamp: "s2", Argv: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]bool{0: true, 1: false, 2: false, 3: true, keepRecords + 2: true} {
		if ran, err := d.Ran(target, stamps[i]); err != nil || ran.Known != want {
			t.Errorf("%d: %+v, %v", i, ran, err)
		}
	}
	// What only the record knew, that the prompt may have been read, is in the journal now.
	entries, err := d.Entries(target, id)
	if err != nil || len(entries) != 2 || entries[1].Phase != session.Submitted || entries[1].Stamp != stamps[1] || entries[1].Directory != "/w" {
		t.Errorf("%+v, %v", entries, err)
	}
}
