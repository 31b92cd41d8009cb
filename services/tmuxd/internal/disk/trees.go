package disk

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/attempt"
)

const (
	// ticksPerSecond is the unit of the times in /proc, which Linux has fixed for whoever reads them.
	ticksPerSecond = 100
	// treeTime is how long a KILL of everything below a wrapper may take.
	treeTime = 200 * time.Millisecond
	// maxRemains is how many of the processes that are left are named.
	maxRemains = 20
)

// Age is for how long the wrapper of an attempt has lived, on the clock of the boot, which nobody sets.
func (a Attempts) Age(m attempt.Memory) (time.Duration, bool) {
	w := a.record(m).Wrapper
	if alive, err := w.Alive(); err != nil || !alive {
		return 0, false
	}
	data, err := os.ReadFile("/proc/uptime")
	text, _, _ := strings.Cut(string(data), " ")
	up, parseErr := strconv.ParseFloat(text, 64)
	if err != nil || parseErr != nil {
		return 0, false
	}
	return time.Duration(up*float64(time.Second)) - time.Duration(w.Start)*(time.Second/ticksPerSecond), true
}

// Progress reads how far everything below the wrapper of an attempt has come.
func (a Attempts) Progress(m attempt.Memory) (attempt.Progress, error) {
	left, err := a.record(m).Left()
	if err != nil {
		return attempt.Progress{}, err
	}
	var out attempt.Progress
	ids := fnv.New64a()
	for _, p := range left {
		cpu, stopped, err := used(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return attempt.Progress{}, err
		}
		out.CPU += cpu
		out.IO += moved(p)
		out.Stopped = out.Stopped || stopped
		fmt.Fprintf(ids, "%d.%d ", p.Pid, p.Start)
	}
	out.Processes = ids.Sum64()
	return out, nil
}

// used returns how much processor time a process has used, with its children that ended, and whether it stands stopped.
func used(p wrapper.Process) (ticks uint64, stopped bool, err error) {
	fields, err := wrapper.StatFields(p.Pid)
	if err != nil {
		return 0, false, err
	}
	for _, field := range fields[11:15] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, false, err
		}
		ticks += n
	}
	return ticks, fields[0] == "T" || fields[0] == "t", nil
}

// moved returns how many bytes a process has read and written. Of one whose counters are not ours to read it is none.
func moved(p wrapper.Process) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/io")
	if err != nil {
		return 0
	}
	var sum uint64
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" {
			n, _ := strconv.ParseUint(value, 10, 64)
			sum += n
		}
	}
	return sum
}

// End signals everything below the wrapper of an attempt, TERM or with hard KILL, and returns what of it lives.
func (a Attempts) End(m attempt.Memory, hard bool) ([]int, error) {
	r := a.record(m)
	var left []wrapper.Process
	var err error
	if hard {
		left, err = r.KillLeft(treeTime)
	} else if left, err = r.Left(); err == nil {
		err = term(left)
	}
	return pids(left[:min(len(left), maxRemains)]), err
}

// EndWrapper kills the wrapper of an attempt itself.
func (a Attempts) EndWrapper(m attempt.Memory) error {
	return a.record(m).Wrapper.Signal(syscall.SIGKILL)
}
