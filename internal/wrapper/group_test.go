package wrapper

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muxpost.dev/muxpost/internal/needs"
)

func TestFindGroup_ReadsWhatTheKernelWrites(t *testing.T) {
	for name, row := range map[string]struct{ groups, mounts, want string }{
		"version 2 alone": {"0::/user.slice/app.scope\n", "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/user.slice/app.scope"},
		"beside version 1": {"9:name=systemd:/x\n4:memory:/y\n0::/\n",
			"32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified"},
		"a part is mounted":         {"0::/docker/abc/job\n", "29 23 0:26 /docker/abc /sys/fs/cgroup rw master:9 - cgroup2 cgroup rw\n", "/sys/fs/cgroup/job"},
		"the part itself":           {"0::/docker/abc\n", "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "/sys/fs/cgroup"},
		"a blank in the path":       {"0::/a\n", `29 23 0:26 / /mnt/my\040groups rw - cgroup2 cgroup rw` + "\n", "/mnt/my groups/a"},
		"another part":              {"0::/docker/abcd\n", "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", ""},
		"version 1 alone":           {"4:memory:/y\n", "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", ""},
		"not mounted":               {"0::/a\n", "30 23 0:27 / /proc rw - proc proc rw\n", ""},
		"a name that looks like it": {"0::/a\n", "30 23 0:27 / /x rw - cgroup2x cgroup rw\n", ""},
		"nothing":                   {"", "", ""},
	} {
		got, err := findGroup(row.groups, row.mounts)
		if got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, row.want)
		}
	}
}

func FuzzFindGroup(f *testing.F) {
	f.Add("0::/a\n", `29 23 0:26 / /mnt/my\040groups rw - cgroup2 cgroup rw`+"\n")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		if got, err := findGroup(groups, mounts); err == nil && got == "" {
			t.Errorf("%q %q: neither a group nor an error", groups, mounts)
		}
	})
}

// group makes a real one, or skips where there can be none.
func group(t *testing.T) Group {
	t.Helper()
	g, err := NewGroup("muxpost-test-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil {
		needs.Unmet(t, err)
	}
	t.Cleanup(func() {
		_ = g.Kill()
		for range 100 {
			if g.Remove() == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("the group is left")
	})
	return g
}

// in starts a shell line in a directory of control groups.
func in(t *testing.T, dir, line string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestGroup_HoldsAndEndsWhateverWasStartedInIt(t *testing.T) {
	g := group(t)
	if populated, err := g.Populated(); err != nil || populated {
		t.Fatalf("empty: %v %v", populated, err)
	}
	inner := filepath.Join(string(g), "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	first := in(t, string(g), "trap '' TERM HUP; setsid sleep 300 & wait; wait")
	second := in(t, inner, "sleep 300")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		pids, err := g.pids()
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 4 || len(pids) == 3 && slices.Contains(pids, first.Process.Pid) && slices.Contains(pids, second.Process.Pid) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("members: %v", pids)
		}
	}
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("full: %v %v", populated, err)
	}
	if err := g.Remove(); err == nil {
		t.Error("a group with members was removed")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	_ = second.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if populated, err := g.Populated(); err != nil {
			t.Fatal(err)
		} else if !populated {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("something outlives a KILL")
		}
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if populated, err := g.Populated(); err != nil || populated {
		t.Errorf("removed: %v %v", populated, err)
	}
}

func TestGroup_OneThatCannotBeSeenIsNotTakenForEmpty(t *testing.T) {
	for _, g := range []Group{Group(filepath.Join(t.TempDir(), "x")), "/nowhere/at/all"} {
		if populated, err := g.Populated(); err == nil {
			t.Errorf("%s: populated %v", g, populated)
		}
		r := Record{Stamp: "s1", Group: g}
		self, err := Self()
		if err != nil {
			t.Fatal(err)
		}
		r.Wrapper = self
		r.Wrapper.Start++
		if left, err := r.Left(); err == nil {
			t.Errorf("%s: left %v", g, left)
		}
	}
	var none Group
	if populated, err := none.Populated(); err != nil || populated {
		t.Errorf("no group: %v %v", populated, err)
	}
	if err := errors.Join(none.Kill(), none.Remove()); err != nil {
		t.Error(err)
	}
}

func TestNewGroup_WhereThereIsOneOfThatNameThereIsNone(t *testing.T) {
	g := group(t)
	if again, err := NewGroup(filepath.Base(string(g))); !errors.Is(err, ErrNoGroup) || !strings.Contains(err.Error(), "exists") {
		t.Errorf("%q, %v", again, err)
	}
}
