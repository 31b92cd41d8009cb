package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is what processes have taken: seconds of processors, and bytes of memory in proportion to who shares it.
type usage struct {
	cpu float64
	pss int64
}

// processes adds up what those of the stack have taken, by what they are: each service, postgres, the tmux servers, and the wrappers of agents.
func (m *measuring) processes() map[string]usage {
	out := map[string]usage{}
	services := map[int]string{}
	for _, service := range []string{"tmuxd", "dispatcher", "poller"} {
		var file struct{ Process struct{ Pid int } }
		if data, err := os.ReadFile(filepath.Join(m.Dir, "run", service+".json")); err == nil && json.Unmarshal(data, &file) == nil {
			services[file.Process.Pid] = service
		}
	}
	postmaster := 0
	if data, err := os.ReadFile(filepath.Join(m.Dir, "postgres", "data", "postmaster.pid")); err == nil {
		line, _, _ := bytes.Cut(data, []byte("\n"))
		postmaster, _ = strconv.Atoi(string(line))
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		fields, comm := stat(dir)
		if len(fields) < 13 {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name := services[pid]
		switch {
		case name != "":
		case postmaster > 0 && (pid == postmaster || fields[1] == strconv.Itoa(postmaster)):
			name = "postgres"
		case strings.HasPrefix(comm, "tmux: server") && bytes.Contains(args, []byte(m.Dir)):
			name = "tmux"
		case strings.HasPrefix(comm, "muxpost-exec") && bytes.Contains(args, []byte(m.Dir)):
			name = "wrappers"
		default:
			continue
		}
		u := out[name]
		const ticks = 100 // a second, which Linux has fixed for whoever reads them
		for _, f := range fields[11:13] {
			n, _ := strconv.ParseFloat(f, 64)
			u.cpu += n / ticks
		}
		u.pss += pss(dir)
		out[name] = u
	}
	return out
}

// stat returns the fields of a process behind its name, the state first, and its name.
func stat(dir string) (fields []string, comm string) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	from, to := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if err != nil || from < 0 || to < from {
		return nil, ""
	}
	return strings.Fields(string(data[to+1:])), string(data[from+1 : to])
}

func pss(dir string) int64 {
	file, err := os.Open(filepath.Join(dir, "smaps_rollup"))
	if err != nil {
		return 0
	}
	defer file.Close() //nolint:errcheck // It was only read.
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "Pss: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// disk is how many bytes the files below each directory have; of traces, those of looks apart.
func (m *measuring) disk() map[string]int64 {
	out := map[string]int64{}
	for _, dir := range []string{"traces", "log", "tmuxd/journal", "tmuxd/sessions", "tmuxd/records", "tmuxd/tokens"} {
		_ = filepath.WalkDir(filepath.Join(m.Dir, dir), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil //nolint:nilerr // What is gone takes nothing.
			}
			if info, err := d.Info(); err == nil && strings.Contains(d.Name(), "-routine-") {
				out["routine"] += info.Size()
			} else if err == nil {
				out[dir] += info.Size()
			}
			return nil
		})
	}
	return out
}
