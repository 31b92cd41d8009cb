package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/needs"
)

const dir = "../../deploy/systemd"

// unit is a unit as it is written: the values of each key, by section.
type unit map[string]map[string][]string

func (u unit) one(t *testing.T, section, key string) string {
	t.Helper()
	if values := u[section][key]; len(values) != 0 {
		return values[len(values)-1]
	}
	return ""
}

// units reads all units.
func units(t *testing.T) map[string]unit {
	t.Helper()
	all := map[string]unit{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{".service", ".socket", ".slice", ".timer"}, filepath.Ext(e.Name())) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		u, section := unit{}, ""
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			key, value, isValue := strings.Cut(line, "=")
			switch {
			case line == "" || line[0] == '#':
			case line[0] == '[':
				section = strings.Trim(line, "[]")
				u[section] = map[string][]string{}
			case !isValue || section == "" || strings.HasSuffix(line, `\`):
				t.Fatalf("%s: what is %q?", e.Name(), line)
			default:
				u[section][key] = append(u[section][key], value)
			}
		}
		all[e.Name()] = u
	}
	if len(all) != 9 {
		t.Fatalf("%d units were read", len(all))
	}
	return all
}

// restricts finds the keys that forbid something to a unit's processes.
var restricts = regexp.MustCompile(`^(Protect|Private|Restrict|SystemCall|Capability|Ambient|ReadOnly|ReadWrite|Inaccessible|Bind|Temporary|Root|NoNew|NoExec|ExecPaths|` +
	`MemoryDeny|Lock|Device|IPAddress|DynamicUser|RemoveIPC|Keyring|ProcSubset|Secure|Limit|UMask|OOMScore|Nice|CPUSched)`)

func TestUnits_NothingIsForbiddenToAgents(t *testing.T) {
	agent := units(t)["muxpost-agents@.service"]["Service"]
	for key := range agent {
		if restricts.MatchString(key) {
			t.Errorf("every agent of every host would have %s: leave that to a drop-in", key)
		}
	}
	for key, want := range map[string]string{"Type": "forking", "GuessMainPID": "no", "Slice": "muxpost-agents.slice", "Delegate": "yes", "OOMPolicy": "continue",
		"StandardInput": "socket"} {
		if got := units(t)["muxpost-agents@.service"].one(t, "Service", key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}

func TestUnits_ServicesAreRestricted(t *testing.T) {
	for name, u := range units(t) {
		service := u["Service"]
		if service == nil {
			continue
		}
		user, want := u.one(t, "Service", "User"), "muxpost"
		if name == "muxpost-tmuxd.service" || name == "muxpost-agents@.service" {
			want = "muxpost-agents"
		}
		if user != want {
			t.Errorf("%s runs as %q, want %s: agents must not reach the database", name, user, want)
		}
		if strings.Contains(strings.Join(service["Environment"], " "), "://") {
			t.Errorf("%s has a secret in its environment", name)
		}
		// What a unit removes as it stops, and whatever else goes by the user, is the agents' as well.
		if user == "muxpost-agents" && u.one(t, "Service", "RemoveIPC") == "yes" {
			t.Errorf("the stop of %s would take shared memory away from agents", name)
		}
		if name == "muxpost-agents@.service" {
			continue
		}
		for _, key := range []string{"NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "RestrictNamespaces", "SystemCallFilter", "RestrictAddressFamilies"} {
			if u.one(t, "Service", key) == "" {
				t.Errorf("%s lacks %s", name, key)
			}
		}
		if caps, set := service["CapabilityBoundingSet"]; !set || caps[0] != "" {
			t.Errorf("%s keeps capabilities", name)
		}
		if u.one(t, "Service", "Type") == "oneshot" {
			continue
		}
		for _, key := range []string{"MemoryMax", "TasksMax", "LimitNOFILE", "OOMScoreAdjust"} {
			if u.one(t, "Service", key) == "" {
				t.Errorf("%s has no %s", name, key)
			}
		}
		if u.one(t, "Service", "Restart") != "always" || u.one(t, "Service", "Type") != "notify" || u.one(t, "Install", "WantedBy") != "multi-user.target" {
			t.Errorf("%s does not come back by itself", name)
		}
	}
}

func TestUnits_FitTogether(t *testing.T) {
	all := units(t)
	socket := all["muxpost-agents.socket"]
	listens := socket.one(t, "Socket", "ListenStream")
	if tmuxd := all["muxpost-tmuxd.service"]["Service"]["Environment"]; !slices.Contains(tmuxd, "MUXPOST_LAUNCHER="+listens) {
		t.Errorf("tmuxd is told %v, and the socket is %s", tmuxd, listens)
	}
	if n, err := strconv.Atoi(socket.one(t, "Socket", "MaxConnections")); err != nil || n < 1000 || socket.one(t, "Socket", "Accept") != "yes" {
		t.Errorf("a host may have %d agents: each is a connection to systemd", n)
	}
	if mode, user := socket.one(t, "Socket", "SocketMode"), socket.one(t, "Socket", "SocketUser"); mode != "0600" || user != "muxpost-agents" {
		t.Errorf("the socket of the launcher is %s, of %s", mode, user)
	}
	install, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for name, u := range all {
		if !strings.Contains(string(install), name) {
			t.Errorf("install.sh does not install %s", name)
		}
		program, _, _ := strings.Cut(u.one(t, "Service", "ExecStart"), " ")
		if program != "" && !strings.Contains(string(install), filepath.Base(program)) {
			t.Errorf("install.sh does not install %s, which %s runs", program, name)
		}
	}
}

// The middle renews its services' certificates by itself, and a machine that was off makes up for it.
func TestUnits_CertificatesAreRenewedWithoutAPerson(t *testing.T) {
	all := units(t)
	timer := all["muxpost-certificate.timer"]
	if when, late := timer.one(t, "Timer", "OnCalendar"), timer.one(t, "Timer", "Persistent"); when != "weekly" || late != "yes" {
		t.Errorf("OnCalendar=%s, Persistent=%s", when, late)
	}
	if by := timer.one(t, "Install", "WantedBy"); by != "timers.target" {
		t.Errorf("it is wanted by %q", by)
	}
	install, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(install), "central) systemctl -q enable --now muxpost-certificate.timer") {
		t.Error("install.sh central does not switch the timer on")
	}
	if line := all["muxpost-certificate.service"].one(t, "Service", "ExecStart"); !strings.Contains(line, "/usr/local/bin/muxpost ca issue service $$s;") || strings.Contains(line, "--address") {
		t.Errorf("it runs %s", line)
	}
}

// systemd itself says whether it understands the units, and how much they leave open.
func TestUnits_SystemdTakesThem(t *testing.T) {
	analyze := needs.Program(t, "systemd-analyze")
	into := t.TempDir()
	var paths []string
	for name := range units(t) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		// The programs are not installed where this runs.
		text := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAllString(string(data), "ExecStart=/bin/true")
		path := filepath.Join(into, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		if strings.HasSuffix(name, ".service") && !strings.HasSuffix(name, "@.service") {
			if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", path).CombinedOutput(); err != nil {
				t.Errorf("%s leaves more open than it did: %v\n%s", name, err, out)
			}
		}
	}
	if out, err := exec.Command(analyze, append([]string{"verify"}, paths...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
