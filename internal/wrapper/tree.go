package wrapper

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// StampVariable is in the environment of everything that a harness starts, with the incarnation's stamp. By it tmuxd finds what outlived a
// wrapper that was killed, where there is no control group. A program can leave it behind: it finds, and proves nothing.
const StampVariable = "MUXPOST_STAMP"

// killTick is how often what was killed is looked for again.
const killTick = 10 * time.Millisecond

// Alive reports whether anything of a run lives. It is quick where the wrapper lives, where it recorded that nothing is left, and where there is
// a control group to ask; else it looks at every process. An error means that it cannot be told.
func (r Record) Alive() (bool, error) {
	for _, p := range []Process{r.Wrapper, r.Child} {
		if alive, err := p.Alive(); err != nil || alive {
			return alive, err
		}
	}
	if boot, err := bootID(); err != nil || boot != r.Wrapper.Boot || r.Swept {
		return false, err
	}
	if r.Group != "" {
		return r.Group.Populated()
	}
	left, err := r.Left()
	return len(left) > 0, err
}

// Left returns what lives of a run, its wrapper not among it: the members of its control group and, while the wrapper lives, what descends
// from it (orphans come back to it), or once it is gone the harness and what carries the run's stamp, each with what descends from it. An
// error means that it cannot be told.
func (r Record) Left() ([]Process, error) {
	boot, all, err := snapshot()
	if err != nil {
		return nil, err
	}
	if boot != r.Wrapper.Boot {
		return nil, nil // nothing outlives a boot
	}
	pids, err := r.Group.pids()
	if err != nil {
		return nil, err
	}
	if w, ok := all[r.Wrapper.Pid]; ok && w.start == r.Wrapper.Start && !w.ended() {
		pids = append(pids, descendants(all, r.Wrapper.Pid)...)
	} else {
		roots := stamped(all, r.Stamp)
		if c, ok := all[r.Child.Pid]; ok && c.start == r.Child.Start {
			roots = append(roots, r.Child.Pid)
		}
		for _, root := range roots {
			pids = append(append(pids, root), descendants(all, root)...)
		}
	}
	slices.Sort(pids)
	var out []Process
	for _, pid := range slices.Compact(pids) {
		// One that the group names and the snapshot does not has started since.
		s, ok := all[pid]
		if !ok {
			if s, err = readStat(pid); err != nil {
				continue
			}
		}
		if !s.ended() && pid != r.Wrapper.Pid {
			out = append(out, Process{Pid: pid, Start: s.start, Boot: boot})
		}
	}
	return out, nil
}

// KillLeft sends KILL to whatever Left returns, and to what it starts meanwhile, until nothing is left or the time is over. It returns what
// remains: a process that hangs in the kernel, or one of another user.
func (r Record) KillLeft(limit time.Duration) ([]Process, error) {
	for end := time.Now().Add(limit); ; time.Sleep(killTick) {
		groupErr := r.Group.Kill()
		left, err := r.Left()
		if err != nil || len(left) == 0 {
			return left, err
		}
		for _, p := range left {
			_ = p.Signal(syscall.SIGKILL) // one that we may not signal remains, and is returned
		}
		if time.Now().After(end) {
			return left, groupErr
		}
	}
}

// Descendants returns what lives below a process, as long as that lives.
func Descendants(of Process) ([]Process, error) {
	boot, all, err := snapshot()
	if root, ok := all[of.Pid]; err != nil || !ok || boot != of.Boot || root.start != of.Start {
		return nil, err
	}
	var out []Process
	for _, pid := range descendants(all, of.Pid) {
		if s := all[pid]; !s.ended() {
			out = append(out, Process{Pid: pid, Start: s.start, Boot: boot})
		}
	}
	return out, nil
}

// snapshot reads all processes that there are, by pid, with the id of the boot.
func snapshot() (boot string, all map[int]stat, err error) {
	if boot, err = bootID(); err != nil {
		return "", nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return "", nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", nil, err
	}
	all = make(map[int]stat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err == nil {
			all[pid] = s
		} else if !gone(err) {
			return "", nil, err
		}
	}
	return boot, all, nil
}

// descendants returns the pids of everything below a process.
func descendants(all map[int]stat, root int) []int {
	children := map[int][]int{}
	for pid, s := range all {
		children[s.parent] = append(children[s.parent], pid)
	}
	out := slices.Clone(children[root])
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// stamped returns the pids of the processes whose environment carries a stamp. Those of other users cannot be read, and are passed over.
func stamped(all map[int]stat, stamp string) []int {
	want := []byte(StampVariable + "=" + stamp)
	var out []int
	for pid, before := range all {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil || stamp == "" || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return bytes.Equal(kv, want) }) {
			continue
		}
		// The environment was that of the process in the snapshot only if it still has the pid.
		if now, err := readStat(pid); err == nil && now.start == before.start {
			out = append(out, pid)
		}
	}
	return out
}
