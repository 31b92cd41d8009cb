package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
)

const dir = "../../deploy/compose"

// file is what the checks read of compose.yaml.
type file struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       map[string]any
	PullPolicy  string `yaml:"pull_policy"`
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	Privileged  bool
	SecurityOpt []string `yaml:"security_opt"`
	Restart     string
	NetworkMode string `yaml:"network_mode"`
	PID         string
	Profiles    []string
	Command     []string
	Environment map[string]string
	Networks    []string
	Ports       []string
	Volumes     []mount
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Deploy      struct {
		Resources struct {
			Limits struct {
				CPUs, Memory string
				Pids         int
			}
		}
	}
}

// mount is a volume in either of its forms.
type mount struct {
	Type, Source, Target string
	ReadOnly             bool `yaml:"read_only"`
}

func (m *mount) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		part := strings.Split(n.Value, ":")
		*m = mount{Type: "volume", Source: part[0], Target: part[1], ReadOnly: len(part) > 2 && part[2] == "ro"}
		return nil
	}
	type plain mount
	return n.Decode((*plain)(m))
}

var (
	variable = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)
	oneShot  = []string{"secrets", "migrate"}
	observed = []string{"collector", "jaeger", "prometheus", "grafana"}
	// unasked are the services whose images hold nothing that could ask them, so that they have no healthcheck.
	unasked = []string{"collector", "jaeger"}
)

// rendered is compose.yaml as it is without any variable set.
func rendered(t *testing.T) file {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var f file
	if err := yaml.Unmarshal(variable.ReplaceAll(data, []byte("$1")), &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Services) < 10 {
		t.Fatalf("%d services were read", len(f.Services))
	}
	return f
}

func TestCompose_EveryServiceIsContained(t *testing.T) {
	for name, s := range rendered(t).Services {
		if user, _, _ := strings.Cut(s.User, ":"); !regexp.MustCompile(`^[1-9]\d*$`).MatchString(user) {
			t.Errorf("%s runs as %q: name a user by a number other than 0", name, s.User)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged || s.PID != "" || s.NetworkMode == "host" ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do more than it needs: read_only, cap_drop: [ALL], no-new-privileges, and nothing of the host's", name)
		}
		if l := s.Deploy.Resources.Limits; l.CPUs == "" || l.Memory == "" || l.Pids == 0 {
			t.Errorf("%s has no limit of cpus, memory and pids: %+v", name, l)
		}
		for _, m := range s.Volumes {
			if m.Type == "bind" && !m.ReadOnly || strings.Contains(m.Source, "docker.sock") {
				t.Errorf("%s writes to %s of the host", name, m.Source)
			}
		}
	}
}

func TestCompose_ImagesArePinned(t *testing.T) {
	all := rendered(t).Services
	builders := map[string]int{}
	for _, s := range all {
		if len(s.Build) > 0 {
			builders[s.Image]++
		}
	}
	for name, s := range all {
		if strings.HasPrefix(s.Image, "muxpost/") { // by the version that is built
			if builders[s.Image] != 1 || (len(s.Build) == 0) != (s.PullPolicy == "never") {
				t.Errorf("%s: %s is built by %d services, and pulled by %q; one builds it, and nobody pulls it", name, s.Image, builders[s.Image], s.PullPolicy)
			}
			continue
		}
		_, tag, _ := strings.Cut(s.Image, ":")
		if !regexp.MustCompile(`^v?\d+\.\d+`).MatchString(tag) {
			t.Errorf("%s: the tag of %q does not say which version it is", name, s.Image)
		}
	}
	docker, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range regexp.MustCompile(`(?m)^ARG \w+_IMAGE=(\S+)$`).FindAllStringSubmatch(string(docker), -1) {
		if !regexp.MustCompile(`:\d+\.\d+`).MatchString(image[1]) {
			t.Errorf("the Dockerfile's %s does not say which version it is", image[1])
		}
		compose, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
		if err != nil || !strings.Contains(string(compose), ":-"+image[1]+"}") {
			t.Errorf("compose.yaml has another image than the Dockerfile's %s: %v", image[1], err)
		}
	}
}

func TestCompose_StartIsGatedByHealth(t *testing.T) {
	f := rendered(t)
	for name, s := range f.Services {
		asked := len(s.Healthcheck.Test) > 1 && s.Healthcheck.Test[0] == "CMD"
		if once := slices.Contains(oneShot, name); once != (s.Restart == "no") || asked == (once || slices.Contains(unasked, name)) {
			t.Errorf("%s: a service that stays has restart and a healthcheck in exec form, a one-shot has neither", name)
		}
		for on, d := range s.DependsOn {
			want := "service_healthy"
			if slices.Contains(oneShot, on) {
				want = "service_completed_successfully"
			}
			if d.Condition != want {
				t.Errorf("%s depends on %s by %q, not %s", name, on, d.Condition, want)
			}
		}
		if optional := slices.Contains(observed, name); optional != (len(s.Profiles) > 0) {
			t.Errorf("%s: what watches is under a profile, and nothing else is", name)
		}
	}
	for _, needs := range [][2]string{{"postgres", "secrets"}, {"migrate", "postgres"}, {"dispatcher", "migrate"}, {"poller", "dispatcher"},
		{"host-a", "secrets"}, {"host-b", "secrets"}} {
		if _, ok := f.Services[needs[0]].DependsOn[needs[1]]; !ok {
			t.Errorf("%s does not wait for %s", needs[0], needs[1])
		}
	}
}

func TestCompose_SecretsAreFilesOfThoseWhoNeedThem(t *testing.T) {
	holders := map[string][]string{}
	for name, s := range rendered(t).Services {
		for key, value := range s.Environment {
			if regexp.MustCompile(`(?i)password|secret|token|key|database_url`).MatchString(key) && !strings.HasSuffix(key, "_FILE") || strings.Contains(value, "://") {
				t.Errorf("%s has %s in its environment, where every inspection shows it", name, key)
			}
		}
		for _, m := range s.Volumes {
			if regexp.MustCompile(`^(authority|database-secret|tls-.*)$`).MatchString(m.Source) {
				holders[m.Source] = append(holders[m.Source], name)
				if name != "secrets" && !m.ReadOnly {
					t.Errorf("%s may change %s", name, m.Source)
				}
			}
		}
	}
	for source, want := range map[string]string{
		"authority": "secrets", "database-secret": "dispatcher migrate poller postgres secrets", "tls-dispatcher": "dispatcher secrets",
		"tls-poller": "poller secrets",
		"tls-host-a": "host-a secrets", "tls-host-b": "host-b secrets", "tls-operator": "secrets",
	} {
		slices.Sort(holders[source])
		if got := strings.Join(holders[source], " "); got != want {
			t.Errorf("%s is mounted by %s, want %s", source, got, want)
		}
	}
}

// A socket in a volume that two containers have would be a way without a certificate.
func TestCompose_ServicesShareNoDirectory(t *testing.T) {
	of := map[string]string{}
	for name, s := range rendered(t).Services {
		for _, m := range s.Volumes {
			if m.Target != string(layout.DataDir("/var/lib/muxpost")) {
				continue
			}
			if other, twice := of[m.Source]; twice {
				t.Errorf("%s and %s both have %s", name, other, m.Source)
			}
			of[m.Source] = name
		}
	}
	if len(of) != 4 {
		t.Errorf("these have a data directory: %v", of)
	}
}

func TestCompose_NothingIsReachedFromOtherMachines(t *testing.T) {
	f := rendered(t)
	for name, s := range f.Services {
		for _, p := range s.Ports {
			if host, _, err := net.SplitHostPort(p[:strings.LastIndex(p, ":")]); err != nil || host != "127.0.0.1" {
				t.Errorf("%s publishes %s: begin it with 127.0.0.1", name, p)
			}
		}
		reached := slices.Contains(s.Networks, "database")
		if needs := slices.Contains([]string{"postgres", "migrate", "dispatcher", "poller"}, name); reached != needs {
			t.Errorf("%s is on the database's network: %v", name, reached)
		}
	}
}

// What an agent says about itself is taken by the collector. What others look at is not within its reach, and nobody logs in there.
func TestCompose_AgentsReachNothingThatShowsTelemetry(t *testing.T) {
	f := rendered(t)
	agents := 0
	for name, s := range f.Services {
		viewer := slices.Contains(observed, name)
		if shows := slices.Contains(s.Networks, "telemetry"); shows != viewer {
			t.Errorf("%s is on the network of what shows telemetry: %v", name, shows)
		}
		if !strings.HasPrefix(s.Image, "muxpost/host:") {
			continue
		}
		agents++
		for other, o := range f.Services {
			for _, network := range o.Networks {
				if slices.Contains(observed, other) && other != "collector" && slices.Contains(s.Networks, network) {
					t.Errorf("the agents of %s reach %s by the network %s", name, other, network)
				}
			}
		}
		if !slices.Contains(s.Networks, "intake") || !slices.Contains(f.Services["collector"].Networks, "intake") {
			t.Errorf("%s and the collector have no network in common", name)
		}
	}
	if agents < 2 {
		t.Errorf("%d services have agents", agents)
	}
	for key, want := range map[string]string{"GF_AUTH_BASIC_ENABLED": "false", "GF_AUTH_DISABLE_LOGIN_FORM": "true",
		"GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer"} {
		if got := f.Services["grafana"].Environment[key]; got != want {
			t.Errorf("grafana has %s=%q, want %q: anybody could log in as its first administrator", key, got, want)
		}
	}
}

// The services take the configuration as it is, from the files that the stack has.
func TestCompose_TheConfigurationIsGood(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(dir, "muxpost.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	bin, files := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(bin, "muxpost-exec"): "", filepath.Join(files, "url"): "postgres://muxpost@postgres/muxpost",
		filepath.Join(files, "muxpost.yaml"): strings.ReplaceAll(string(data), "/run/muxpost/database/url", filepath.Join(files, "url")),
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := settings.Load(settings.Where{File: filepath.Join(files, "muxpost.yaml"), DataDir: "/var/lib/muxpost", BinDir: bin, Getenv: func(string) string { return "" }})
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := rendered(t)
	for _, h := range s.Dispatcher.Hosts {
		if name, _, _ := strings.Cut(h.Address, ":"); name != h.Name || f.Services[name].Image == "" {
			t.Errorf("there is no service for the host %+v", h)
		}
	}
	for _, service := range layout.Services() {
		if s.Address(service) != s.DataDir.Address(service) {
			t.Errorf("%s does not listen where a probe asks", service)
		}
	}
}
