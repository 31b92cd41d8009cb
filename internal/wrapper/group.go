package wrapper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Group is a control group (cgroup v2), by its directory. The empty group has no members.
type Group string

// ErrNoGroup means that there can be no control group here: no cgroup v2, or one that is not ours to change.
var ErrNoGroup = errors.New("no control group can be made here")

// groupMagic is the type of the file system of cgroup v2.
const groupMagic = 0x63677270

// NewGroup makes a control group of this name below the caller's own. Every failure is ErrNoGroup.
func NewGroup(name string) (Group, error) {
	own, err := ownGroup()
	if err == nil {
		own = filepath.Join(own, name)
		err = os.Mkdir(own, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGroup, err)
	}
	return Group(own), nil
}

// ownGroup returns the directory of the group that this process is in.
func ownGroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return findGroup(string(groups), string(mounts))
}

// findGroup finds the directory of the group of version 2 that /proc/self/cgroup names, in a mount of which /proc/self/mountinfo tells.
func findGroup(groups, mounts string) (string, error) {
	path := ""
	for line := range strings.Lines(groups) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") || path == "" {
			continue
		}
		// The mount may show a part of the hierarchy: f[3] is where it begins, f[4] where it is mounted.
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(f[3], "/")); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(unescape(f[4]), rest), nil
		}
	}
	return "", errors.New("this process is in no control group of version 2 that is mounted")
}

// unescape reads a path as mountinfo writes it: blanks and the like in octal.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Populated reports whether a process lives in the group or below it. An error means that it cannot be told.
func (g Group) Populated() (bool, error) {
	if g == "" {
		return false, nil
	}
	data, err := os.ReadFile(filepath.Join(string(g), "cgroup.events"))
	if absent(err) {
		// Only an empty group can be removed. That it is not there counts where control groups are to be seen.
		return false, g.visible()
	}
	return bytes.HasPrefix(data, []byte("populated 1")), err
}

// visible is an error unless the group lies in a hierarchy that this process sees.
func (g Group) visible() error {
	for dir := filepath.Dir(string(g)); ; dir = filepath.Dir(dir) {
		var fs syscall.Statfs_t
		err := syscall.Statfs(dir, &fs)
		switch {
		case err == nil && fs.Type == groupMagic:
			return nil
		case err == nil, dir == "/":
			return fmt.Errorf("the control group %s cannot be seen from here", string(g))
		case !absent(err):
			return err
		}
	}
}

// pids returns the processes in the group and below it.
func (g Group) pids() ([]int, error) {
	if populated, err := g.Populated(); err != nil || !populated {
		return nil, err
	}
	var out []int
	err := g.walk(func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !absent(err) {
			return err
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out, err
}

// Kill ends everything in the group and below it at once, with KILL, where the kernel can (5.14 and later). Elsewhere it does nothing.
func (g Group) Kill() error {
	if g == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(string(g), "cgroup.kill"), os.O_WRONLY, 0)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteString("1"); absent(err) {
		return nil
	}
	return err
}

// Remove removes the group, which must be empty, with the groups that were made in it.
func (g Group) Remove() error {
	if g == "" {
		return nil
	}
	var dirs []string
	if err := g.walk(func(dir string) error { dirs = append(dirs, dir); return nil }); err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := syscall.Rmdir(dirs[i]); err != nil && !absent(err) {
			return fmt.Errorf("cannot remove the control group %s: %w", dirs[i], err)
		}
	}
	return nil
}

// walk calls f with the directory of the group and of each below it, parents first. One that is removed meanwhile is passed over.
func (g Group) walk(f func(dir string) error) error {
	return filepath.WalkDir(string(g), func(path string, d fs.DirEntry, err error) error {
		switch {
		case absent(err):
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		return f(path)
	})
}

// absent reports whether an error says that a group is not there, or is being removed.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
