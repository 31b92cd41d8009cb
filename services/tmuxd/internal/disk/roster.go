package disk

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Targets lists the targets that have a memory, sorted.
func (d *Dir) Targets() ([]string, error) {
	entries, err := os.ReadDir(d.path("sessions"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		// What is being written has a name that begins with a dot.
		if target, ok := strings.CutSuffix(e.Name(), ".json"); ok && !strings.HasPrefix(target, ".") {
			out = append(out, target)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Lives names the processes of a memory that live: its tmux server, and the wrapper of its incarnation. The zero Life is one that does not, or
// that nobody recorded. An error means that it cannot be told.
func (d *Dir) Lives(m host.Memory) (server, agent host.Life, err error) {
	p := wrapper.Process{Pid: m.Server.Pid, Start: m.ServerStart, Boot: m.Boot}
	if p.Pid > 0 && p.Boot == "" {
		if p, err = wrapper.Find(p.Pid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return host.Life{}, host.Life{}, err
		}
	}
	if server, err = lifeOf(p); err != nil || m.Stamp == "" {
		return server, host.Life{}, err
	}
	r, err := wrapper.ReadRecord(d.record(m.Target, m.Stamp))
	if errors.Is(err, fs.ErrNotExist) {
		return server, host.Life{}, nil
	}
	if err == nil {
		agent, err = lifeOf(r.Wrapper)
	}
	return server, agent, err
}

func lifeOf(p wrapper.Process) (host.Life, error) {
	if alive, err := p.Alive(); err != nil || !alive {
		return host.Life{}, err
	}
	return host.Life{Pid: p.Pid, Start: p.Start}, nil
}
