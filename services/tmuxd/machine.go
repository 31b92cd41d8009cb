package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/services/tmuxd/internal/server"
)

// surroundings are what the machine is looked at for.
type surroundings struct{ tmuxVersion, stateDir, socketDir, launcher, stamp string }

// machine looks at the machine: what is left on it, and what a person should repair.
func (s surroundings) machine() server.Machine {
	m := s.left()
	m.Warnings = s.warnings()
	return m
}

// left looks at what is left on the machine.
func (s surroundings) left() server.Machine {
	m := server.Machine{CPUs: runtime.GOMAXPROCS(0)}
	if fields := strings.Fields(read("/proc/loadavg")); len(fields) > 0 {
		m.Load, _ = strconv.ParseFloat(fields[0], 64)
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemAvailable:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			m.MemoryAvailable = kib << 10
		}
	}
	var fs unix.Statfs_t
	if unix.Statfs(s.stateDir, &fs) == nil {
		m.StorageAvailable = int64(fs.Bavail) * fs.Bsize
	}
	return m
}

func (s surroundings) warnings() []string {
	var out []string
	group := read("/proc/self/cgroup")
	for _, w := range []string{oldTmux(s.tmuxVersion), noLinger(group, "/var/lib/systemd/linger"), sharedUnit(group, s.launcher, killMode), noLauncher(s.launcher),
		insideAgent(s.stamp, s.launcher), fleeting(s.stateDir),
		fleetingSockets(s.socketDir, s.stateDir)} {
		if w != "" {
			out = append(out, w)
		}
	}
	return out
}

// oldTmux warns of a tmux that ends with all its sessions when something is pasted into a dead pane.
func oldTmux(version string) string {
	digits, _, _ := strings.Cut(strings.TrimLeft(version, "abcdefghijklmnopqrstuvwxyz -"), "-")
	major, rest, _ := strings.Cut(digits, ".")
	minor := strings.TrimRight(rest, "abcdefghijklmnopqrstuvwxyz")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || a > 3 || a == 3 && b >= 4 {
		return ""
	}
	return version + " is older than 3.4: pasting into a dead pane ends its whole server. muxpost never does, for its guards look first in the " +
		"same command, and each agent has a server of its own; a person who pastes by hand is not guarded. Install tmux 3.4 or newer"
}

// noLinger warns of a user service whose user does not linger: systemd ends tmuxd and every agent with the last logout. cgroup is what
// /proc/self/cgroup says, dir where systemd notes who lingers.
func noLinger(cgroup, dir string) string {
	if !strings.Contains(cgroup, "/user@") || !strings.Contains(cgroup, ".service/") {
		return ""
	}
	me, err := user.Current()
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, me.Username)); err == nil {
		return ""
	}
	return fmt.Sprintf("tmuxd runs as a service of the user %s, who does not linger: systemd ends it and every agent at the last logout. "+
		"Run: loginctl enable-linger %s", me.Username, me.Username)
}

// sharedUnit warns of a service whose stop ends the agents too: they are in its control group, unless a launcher starts them elsewhere. mode says
// what a stop ends, nothing when it cannot be told.
func sharedUnit(cgroup, launcher string, mode func(unit string, user bool) string) string {
	for line := range strings.Lines(cgroup) {
		unit := filepath.Base(strings.TrimSpace(line))
		if launcher != "" || !strings.HasPrefix(line, "0::") && !strings.Contains(line, ":name=systemd:") || !strings.HasSuffix(unit, ".service") {
			continue
		}
		text := "tmuxd is the service " + unit + " of systemd, and agents are in its control group"
		switch m := mode(unit, strings.Contains(line, "/user@")); m {
		case "process", "none":
			return ""
		case "":
			text += ": unless it says KillMode=process, every stop and restart ends them"
		default:
			text += ", of which every stop and restart ends everything (KillMode=" + m + ")"
		}
		return text + ". Install the units of deploy/systemd, or set KillMode=process"
	}
	return ""
}

// killMode asks systemd what the stop of a unit ends.
func killMode(unit string, user bool) string {
	args := []string{"show", "--property=KillMode", "--value", unit}
	if user {
		args = append(args, "--user")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// insideAgent warns of a tmuxd that an agent started, whose incarnation the stamp in our environment names: all that an agent starts ends with it.
// With a launcher the agents are systemd's, and only tmuxd would end.
func insideAgent(stamp, launcher string) string {
	if stamp == "" || launcher != "" {
		return ""
	}
	return "tmuxd was started inside an agent's session, and ends with it, as does every agent that it starts. " +
		"Run muxpost down there, and muxpost up in a shell of your own; agents that it started already end with that session all the same"
}

// noLauncher warns of a launcher that is not there: no session can start.
func noLauncher(socket string) string {
	if socket == "" {
		return ""
	}
	if _, err := os.Stat(socket); err == nil {
		return ""
	}
	return "the launcher's socket " + socket + " is not there, so that no agent can start. Run: systemctl start muxpost-agents.socket"
}

// fleeting warns of a state directory that does not last.
func fleeting(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC) {
		return "the state directory " + dir + " lies in memory: a reboot takes with it what was delivered and which conversations there were. " +
			"Set tmuxd.state_dir to a directory on a disk"
	}
	if tmp := everybodys(dir); tmp != "" {
		return "the state directory " + dir + " lies below " + tmp + ", where cleaners remove what is old. Set tmuxd.state_dir to another directory"
	}
	return ""
}

// fleetingSockets warns of a directory for sockets of which others dispose. In memory it may lie: no agent outlives a reboot. Below the state directory
// that one's warning is enough.
func fleetingSockets(dir, stateDir string) string {
	tmp := everybodys(dir)
	if tmp == "" || strings.HasPrefix(dir+"/", stateDir+"/") {
		return ""
	}
	return "the directory for sockets " + dir + " lies below " + tmp + ", where cleaners remove what is old and, after a reboot, anybody can make it first, " +
		"so that tmuxd does not start. Set tmuxd.socket_dir to a short directory of your own that lasts as long as the agents do"
}

// everybodys is the directory of everybody's below which a path lies; empty for none.
func everybodys(path string) string {
	for _, tmp := range []string{"/tmp", "/var/tmp"} {
		if strings.HasPrefix(path+"/", tmp+"/") {
			return tmp
		}
	}
	return ""
}

// read returns what a file of the kernel says, nothing when it cannot be read.
func read(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}
