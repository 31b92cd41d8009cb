package conf

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
)

type harness struct {
	Binary string        `conf:"binary"`
	Settle time.Duration `conf:"settle"`
}

type common struct {
	DataDir string `conf:"data_dir"`
}

type section struct {
	common
	Listen    string             `conf:"listen"`
	LogLevel  slog.Level         `conf:"log_level"`
	Timeout   time.Duration      `conf:"timeout"`
	MaxBytes  int                `conf:"max_bytes"`
	Small     uint8              `conf:"small"`
	Ratio     float64            `conf:"ratio"`
	Enabled   bool               `conf:"enabled"`
	Roots     []string           `conf:"roots"`
	Harnesses map[string]harness `conf:"harnesses"`
	Labels    map[string]string  `conf:"labels"`
	Optional  *harness           `conf:"optional"`
	Internal  string
}

func defaults() section {
	return section{
		Listen: "127.0.0.1:7001", Timeout: 10 * time.Second, MaxBytes: 1024,
		Roots:     []string{"/a", "/b", "/c"},
		Harnesses: map[string]harness{"claude": {Binary: "claude", Settle: time.Second}, "codex": {Binary: "codex"}},
	}
}

var known = []string{"tmuxd", "dispatcher", "poller"}

func TestParse_FileIsLaidOverTheDefaults(t *testing.T) {
	got, base := defaults(), defaults()
	err := parse("muxpost.yaml", []byte(`
poller: {anything: [goes, here]}
tmuxd:
  data_dir: /var/lib/muxpost
  log_level: debug
  timeout: 1m30s
  max_bytes: 65_536
  small: 255
  ratio: 2
  enabled: true
  roots: [/only]
  harnesses:
    claude: {settle: 3s}
    mine: {binary: ./mine}
  labels: {example.com/zone: a.b}
  optional: {binary: x}
`), known, "tmuxd", &got)
	if err != nil {
		t.Fatal(err)
	}
	want := section{
		common: common{DataDir: "/var/lib/muxpost"}, Listen: "127.0.0.1:7001", LogLevel: slog.LevelDebug,
		Timeout: 90 * time.Second, MaxBytes: 65536, Small: 255, Ratio: 2, Enabled: true, Roots: []string{"/only"},
		Harnesses: map[string]harness{
			"claude": {Binary: "claude", Settle: 3 * time.Second}, "codex": {Binary: "codex"}, "mine": {Binary: "./mine"},
		},
		Labels: map[string]string{"example.com/zone": "a.b"}, Optional: &harness{Binary: "x"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(section{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(defaults(), base, cmp.AllowUnexported(section{})); diff != "" {
		t.Error("the defaults changed:", diff)
	}
}

func TestParse_EmptyFileAndEmptySectionLeaveTheDefaults(t *testing.T) {
	for _, text := range []string{"", "---\n", "# nothing\n", "tmuxd:\n", "tmuxd: {}\n",
		"poller: {x: 1}\n", "tmuxd: {roots: , harnesses: }\n"} {
		got := defaults()
		if err := parse("muxpost.yaml", []byte(text), known, "tmuxd", &got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(defaults(), got, cmp.AllowUnexported(section{})); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestParse_EveryMistakeNamesItsKeyAndLine(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown section", "tmux: {}", "f.yaml:1: tmux is not a known key; did you mean tmuxd?"},
		{"unknown section far from all", "database: {}", "f.yaml:1: database is not a known key; known here: dispatcher, poller, tmuxd"},
		{"unknown key", "tmuxd:\n  listn: x", "f.yaml:2: tmuxd.listn is not a known key; did you mean tmuxd.listen?"},
		{"other spelling", "tmuxd:\n  maxBytes: 1", "f.yaml:2: tmuxd.maxBytes is not a known key; did you mean tmuxd.max_bytes?"},
		{"field without a tag", "tmuxd: {Internal: x}", "tmuxd.Internal is not a known key"},
		{"unknown key deep below", "tmuxd:\n  harnesses:\n    a:\n      bin: x", "f.yaml:4: tmuxd.harnesses.a.bin is not a known key"},
		{"duration without a unit", "tmuxd: {timeout: 30}",
			`tmuxd.timeout must be a duration with a unit, such as "30s" or "5m", not this whole number`},
		{"duration that is none", "tmuxd: {timeout: soon}", "tmuxd.timeout must be a duration"},
		{"number in text", "tmuxd: {max_bytes: '12'}", "tmuxd.max_bytes must be a whole number that fits, not this text"},
		{"fraction", "tmuxd: {max_bytes: 1.5}", "tmuxd.max_bytes must be a whole number that fits, not this number"},
		{"too large", "tmuxd: {small: 256}", "tmuxd.small must be a whole number of 0 or more that fits"},
		{"negative", "tmuxd: {small: -1}", "tmuxd.small must be a whole number of 0 or more"},
		{"beyond 64 bits", "tmuxd: {max_bytes: 99999999999999999999}", "tmuxd.max_bytes must be a whole number that fits"},
		{"not a number", "tmuxd: {ratio: .nan}", "tmuxd.ratio must be a number"},
		{"text without quotes", "tmuxd: {listen: 7001}", "tmuxd.listen must be text in quotes, not this whole number"},
		{"old truth value", "tmuxd: {enabled: yes}", "tmuxd.enabled must be true or false, not this text"},
		{"no value", "tmuxd:\n  listen:\n", "f.yaml:2: tmuxd.listen must be text in quotes, not empty"},
		{"text for a list", "tmuxd: {roots: /a}", "tmuxd.roots must be a list, not this text"},
		{"wrong element", "tmuxd:\n  roots:\n  - /a\n  - 1", "f.yaml:4: tmuxd.roots[1] must be text in quotes"},
		{"list for a group", "tmuxd: [1]", "f.yaml:1: tmuxd must be a group of keys, not a list"},
		{"bad level", "tmuxd: {log_level: loud}", "tmuxd.log_level is not valid"},
		{"not YAML", "tmuxd: {", "f.yaml is not valid YAML"},
		{"key twice", "tmuxd:\n  listen: a\n  listen: b", `mapping key "listen" already defined`},
		{"section twice", "tmuxd: {listen: a}\ntmuxd: {listen: b}", "write it once, with the keys of both"},
		{"a list at the top", "- a", "f.yaml is not valid YAML"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := defaults()
			err := parse("f.yaml", []byte(tt.text), known, "tmuxd", &got)
			if !errors.Is(err, fault.New(fault.Invalid, fault.ReasonBadConfig, "")) {
				t.Fatalf("got %v, want an invalid configuration", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got:  %s\nwant: %s", err, tt.want)
			}
		})
	}
}

func TestParse_AllMistakesAreReportedAtOnceInOrderOfLines(t *testing.T) {
	got := defaults()
	err := parse("f.yaml", []byte("tmuxd:\n  zzz: 1\n  timeout: 3\npoler: {}\n"), known, "tmuxd", &got)
	want := strings.Join([]string{
		"f.yaml:2: tmuxd.zzz is not a known key; known here: data_dir, enabled, harnesses, labels, listen, log_level, " +
			"max_bytes, optional, ratio, roots, small, timeout",
		`f.yaml:3: tmuxd.timeout must be a duration with a unit, such as "30s" or "5m", not this whole number`,
		"f.yaml:4: poler is not a known key; did you mean poller?",
	}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestParse_ValuesAreNeverRepeatedInErrors(t *testing.T) {
	var got struct {
		Port    int           `conf:"port"`
		Timeout time.Duration `conf:"timeout"`
	}
	err := parse("f.yaml", []byte("tmuxd: {port: ghp_secret, timeout: ghp_secret, token: ghp_secret}"), known, "tmuxd", &got)
	if err == nil || strings.Contains(err.Error(), "ghp_secret") {
		t.Errorf("got %v", err)
	}
}

func TestLoad_ReadsTheFileAndExplainsAMissingOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "muxpost.yaml")
	got := defaults()
	err := Load(path, known, "tmuxd", &got)
	if fault.ReasonOf(err) != fault.ReasonBadConfig || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("tmuxd: {listen: '127.0.0.1:1'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, known, "tmuxd", &got); err != nil || got.Listen != "127.0.0.1:1" {
		t.Errorf("got %q, %v", got.Listen, err)
	}
	if err := Load(filepath.Dir(path), known, "tmuxd", &got); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a directory: %v", err)
	}
	if err := Load(path, known, "tmuxd", got); fault.KindOf(err) != fault.Internal {
		t.Errorf("a struct that is not pointed to: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tmuxd:\n  listen: x\n  roots: [a, 1]\n  harnesses: {a: {bin: 1}}\n")
	f.Add("tmuxd: &a {harnesses: {x: *a}}")
	f.Add("? [1]\n: 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := defaults()
		err := parse("f.yaml", []byte(text), known, "tmuxd", &got)
		if err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	})
}
