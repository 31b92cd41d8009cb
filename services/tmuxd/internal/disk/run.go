package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// killTime is how long a KILL may take until what it does not end is said to remain.
const killTime = 3 * time.Second

// Ran returns what the wrapper recorded of an incarnation. It lives as long as anything of it does: its wrapper, its harness, or what that
// started.
func (d *Dir) Ran(target, stamp string) (host.Ran, error) {
	r, err := d.read(target, stamp)
	wrapperLives := session.ProcessUnclear
	if err == nil && !r.Ended() {
		wrapperLives = process(r.Wrapper)
	}
	if wrapperLives == session.ProcessGone {
		// It may have written its last record and ended between the two looks.
		r, err = d.read(target, stamp)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return host.Ran{Process: session.ProcessNone}, nil
	}
	if err != nil {
		return host.Ran{Process: session.ProcessUnclear}, err
	}
	out := host.Ran{Known: true, Process: session.ProcessGone, Reached: r.ReachedHarness(), Ended: r.Ended(), Detail: r.Detail}
	alive := wrapperLives == session.ProcessAlive
	if !alive {
		alive, err = r.Alive()
	}
	switch {
	case err != nil:
		out.Process = session.ProcessUnclear
	case alive:
		out.Process = session.ProcessAlive
	}
	if r.State == wrapper.Exited || r.State == wrapper.Signaled {
		out.Exit = host.Exit{Known: true, Signal: r.Signal, Code: r.Code, At: r.EndedAt}
	}
	return out, nil
}

// read reads the record of an incarnation.
func (d *Dir) read(target, stamp string) (wrapper.Record, error) {
	path := d.record(target, stamp)
	r, err := d.records.get(path, time.Now, wrapper.ReadRecord)
	if err == nil && r.Stamp != stamp {
		return wrapper.Record{}, fmt.Errorf("%s: %w: it names another incarnation", path, wrapper.ErrMalformed)
	}
	return r, err
}

// Tree looks for everything that lives of an incarnation.
func (d *Dir) Tree(target, stamp string) (host.Tree, error) {
	r, err := d.read(target, stamp)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Tree{}, nil
	}
	if err != nil {
		return host.Tree{}, err
	}
	out := host.Tree{Known: true, Recorded: r.Ended() || r.State == wrapper.Lost, EndedAt: r.EndedAt, Whole: r.Group != ""}
	if out.Wrapper, err = r.Wrapper.Alive(); err != nil {
		return host.Tree{}, err
	}
	if out.Harness, err = r.Child.Alive(); err != nil {
		return host.Tree{}, err
	}
	if r.Swept && !out.Wrapper {
		return out, nil
	}
	left, err := r.Left()
	if err != nil {
		return host.Tree{}, err
	}
	if out.Wrapper {
		out.Pids = append(out.Pids, r.Wrapper.Pid)
	}
	out.Pids = append(out.Pids, pids(left)...)
	return out, nil
}

// Term asks an incarnation to end: its wrapper, which passes it on, or, where that is gone, whatever else lives of it.
func (d *Dir) Term(target, stamp string) error {
	r, err := d.read(target, stamp)
	if err != nil {
		return err
	}
	alive, err := r.Wrapper.Alive()
	if err != nil {
		return err
	}
	ask := []wrapper.Process{r.Wrapper}
	if !alive {
		if ask, err = r.Left(); err != nil {
			return err
		}
	}
	return term(ask)
}

// term sends TERM to each of them. One that is stopped takes it only once it goes on.
func term(processes []wrapper.Process) (err error) {
	for _, p := range processes {
		err = errors.Join(err, p.Signal(syscall.SIGTERM), p.Signal(syscall.SIGCONT))
	}
	return err
}

func pids(processes []wrapper.Process) (out []int) {
	for _, p := range processes {
		out = append(out, p.Pid)
	}
	return out
}

// Kill ends with KILL what lives of an incarnation, and its wrapper only if that is asked for: it is to record the end of the others.
func (d *Dir) Kill(target, stamp string, wrapperToo bool) error {
	r, err := d.read(target, stamp)
	if err != nil {
		return err
	}
	_, err = r.KillLeft(killTime) // what remains is for Tree to say
	if !wrapperToo {
		return err
	}
	// What comes back to it while it dies is orphaned once more.
	err = errors.Join(err, r.Wrapper.Signal(syscall.SIGKILL))
	for end := time.Now().Add(killTime); err == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if alive, aliveErr := r.Wrapper.Alive(); aliveErr != nil || !alive {
			break
		}
	}
	_, leftErr := r.KillLeft(killTime)
	return errors.Join(err, leftErr)
}

// Enroll writes the record of a living incarnation that has none: its wrapper is the process of this pid, if that is a child of its tmux
// server's.
func (d *Dir) Enroll(target, stamp string, pid, server int) error {
	p, err := wrapper.ChildOf(server, pid)
	if err != nil {
		return err
	}
	return wrapper.WriteRecord(d.record(target, stamp), wrapper.Record{Stamp: stamp, State: wrapper.Running, Wrapper: p})
}

// Conclude records that an incarnation was found to be gone, unless its wrapper recorded how it ended, and takes away its control group.
func (d *Dir) Conclude(target, stamp string, at time.Time) error {
	r, err := d.read(target, stamp)
	if err != nil {
		return err
	}
	if err := r.Group.Remove(); err != nil {
		return err
	}
	if r.Swept {
		return nil
	}
	r.Swept = true
	if !r.Ended() {
		r.State, r.EndedAt = wrapper.Lost, at
	}
	return wrapper.WriteRecord(d.record(target, stamp), r)
}

// Unsettled returns, by target, the stamps of the records whose wrapper is gone and did not record that nothing is left. A record that cannot
// be read is not ours to judge.
func (d *Dir) Unsettled() (map[string][]string, error) {
	paths, err := filepath.Glob(d.path("records", "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, path := range paths {
		target, stamp, ok := recorded(path)
		r, err := wrapper.ReadRecord(path)
		if ok && err == nil && !r.Swept && process(r.Wrapper) == session.ProcessGone {
			out[target] = append(out[target], stamp)
		}
	}
	return out, nil
}

// Below names the processes of panes and all that descends from them. Only children of the tmux server count.
func (d *Dir) Below(server int, panes []int) ([]host.Life, error) {
	var out []host.Life
	for _, pid := range panes {
		p, err := wrapper.ChildOf(server, pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		below, err := wrapper.Descendants(p)
		if err != nil {
			return nil, err
		}
		for _, p := range append(below, p) {
			out = append(out, host.Life{Pid: p.Pid, Start: p.Start})
		}
	}
	return out, nil
}

// Living returns the pids of those that live.
func (d *Dir) Living(lives []host.Life) ([]int, error) {
	var out []int
	for _, l := range lives {
		p, err := wrapper.Find(l.Pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || err == nil && p.Start != l.Start {
			continue
		}
		if err != nil {
			return nil, err
		}
		alive, err := p.Alive()
		if err != nil {
			return nil, err
		}
		if alive {
			out = append(out, l.Pid)
		}
	}
	return out, nil
}

// keepRecords is how many records of a target's earlier incarnations are kept at most.
const keepRecords = 20

// prune removes the oldest records of a target, but none of an incarnation that lives.
func (d *Dir) prune(target string) {
	paths, _ := filepath.Glob(d.record(target, "*"))
	if len(paths) <= keepRecords {
		return
	}
	slices.SortFunc(paths, func(a, b string) int { return modified(a).Compare(modified(b)) })
	for _, path := range paths[:len(paths)-keepRecords] {
		if _, stamp, ok := recorded(path); ok {
			_ = d.dropRecord(target, stamp) // it is tried again at the next start
		}
	}
}

// modified is when a file was last written; zero when that cannot be told.
func modified(path string) time.Time {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// recorded reads target and stamp from the path of a record.
func recorded(path string) (target, stamp string, ok bool) {
	name, isRecord := strings.CutSuffix(filepath.Base(path), ".json")
	target, stamp, ok = strings.Cut(name, ".")
	return target, stamp, ok && isRecord && target != "" && stamp != ""
}

// errLives means that a file belongs to an incarnation that is not over.
var errLives = errors.New("the incarnation lives")

// dropRecord removes a record. The journal takes over what only the record knew: that a first prompt may have been read.
func (d *Dir) dropRecord(target, stamp string) error {
	r, err := d.read(target, stamp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, wrapper.ErrMalformed) {
		return err
	}
	if alive, aliveErr := r.Alive(); aliveErr != nil || alive {
		return cmp.Or(aliveErr, errLives)
	}
	// What a malformed one means nobody knows: the prompt may have been read.
	if err != nil || r.ReachedHarness() {
		if err := d.settleBoots(target, stamp); err != nil {
			return err
		}
	}
	_ = r.Group.Remove() // it is gone, or a little memory of the kernel stays
	return os.Remove(d.record(target, stamp))
}

// settleBoots has the journal say of the first prompts of an incarnation that they may have arrived, where it said that they were on their way.
func (d *Dir) settleBoots(target, stamp string) error {
	last := map[string]line{}
	if err := d.scan(target, func(l line) error { last[l.ID] = l; return nil }); err != nil {
		return err
	}
	for _, l := range last {
		if l.Phase != session.Boot.String() || l.Stamp != stamp {
			continue
		}
		err := d.Append(target, host.Entry{Time: l.Time, ID: l.ID, Phase: session.Submitted, Stamp: l.Stamp, Harness: l.Harness,
			Conversation: l.Conversation, Directory: l.Directory}, true)
		if err != nil {
			return err
		}
	}
	return nil
}
