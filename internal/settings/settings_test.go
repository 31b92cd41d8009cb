package settings

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

func where(dir string, env map[string]string) Where {
	return Where{DataDir: dir, BinDir: dir, Getenv: func(key string) string { return env[key] }}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// installed returns a directory with a wrapper in it, so that everything about an installation there can be right.
func installed(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mux") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.WriteFile(filepath.Join(dir, "muxpost-exec"), nil, 0o700))
	return dir
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTemplate_LoadsAndKeepsTheDefaults(t *testing.T) {
	dir := installed(t)
	if err := WriteTemplate(filepath.Join(dir, "muxpost.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := WriteTemplate(filepath.Join(dir, "muxpost.yaml")); !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("a second template: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "muxpost.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s, err := Load(where(dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Found || s.Dispatcher.Harness != "fakeagent" || len(s.Poller.Sources) != 0 {
		t.Errorf("%+v", s)
	}
	must(t, s.Check())
	for _, service := range layout.Services() {
		if s.Address(service) != s.DataDir.Address(service) {
			t.Errorf("%s listens on %s", service, s.Address(service))
		}
	}
	if m := s.Mismatches(); m != nil {
		t.Errorf("%v", m)
	}
	if d, err := s.Database(); err != nil || !d.Local() {
		t.Errorf("%v, %v", d, err)
	}
}

func TestSettings_AStandInForASourceOfOthers(t *testing.T) {
	for _, tt := range []struct {
		dispatcher Dispatcher
		base       []string
		want       bool
	}{
		{Dispatcher{Harness: StandIn}, nil, false},
		{Dispatcher{Harness: StandIn}, []string{"http://127.0.0.1:99/"}, false},
		{Dispatcher{Harness: StandIn}, []string{"http://127.0.0.1:99/", ""}, true},
		{Dispatcher{Harness: StandIn}, []string{"https://github.example.com"}, true},
		{Dispatcher{Harness: StandIn, Shadow: true}, []string{""}, false},
		{Dispatcher{Harness: "codex"}, []string{""}, false},
		{Dispatcher{}, []string{""}, false},
	} {
		s := Settings{Dispatcher: tt.dispatcher}
		for _, base := range tt.base {
			s.Poller.Sources = append(s.Poller.Sources, Source{BaseURL: base})
		}
		if got := s.StandsIn(); got != tt.want {
			t.Errorf("%+v of %q: %v", tt.dispatcher, tt.base, got)
		}
	}
}

func TestTemplate_EveryExampleCanBeSwitchedOn(t *testing.T) {
	dir := installed(t)
	text := regexp.MustCompile(`(?m)^#(  )`).ReplaceAllString(Template(), "$1")
	text = strings.ReplaceAll(text, "sources: []", "sources:")
	text = strings.ReplaceAll(text, "poller:\n", "poller:\n  database_url_file: "+dir+"/url\n")
	text = strings.ReplaceAll(text, "/etc/muxpost/database-url", dir+"/url")
	write(t, filepath.Join(dir, "url"), "postgres://h/d\n")
	write(t, filepath.Join(dir, "github-token"), "tok\n")
	write(t, filepath.Join(dir, "webhook-secret"), "a secret of more than sixteen bytes\n")
	if strings.Contains(text, "#  ") {
		t.Fatal("an example is still switched off")
	}
	s, err := Load(Where{DataDir: dir, BinDir: dir, File: write(t, filepath.Join(dir, "c.yaml"), text), Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tmuxd.Harnesses["mycli"].Binary != "mycli" || len(s.Poller.Sources) != 1 || s.Poller.Sources[0].TokenFile != filepath.Join(dir, "github-token") {
		t.Errorf("%+v", s)
	}
	must(t, s.Check())
}

func TestLoad_FlagBeforeFileBeforeEnvironmentBeforeHome(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("plain.yaml"), "poller: {listen: '127.0.0.1:9'}\n")
	write(t, path("dir.yaml"), "tmuxd: {data_dir: in-file}\n")
	home := path(".local/share/muxpost")
	for _, tt := range []struct {
		name, flagFile, flagDir, envFile, envDir string
		file, data                               string
	}{
		{name: "nothing", file: home + "/muxpost.yaml", data: home},
		{name: "environment", envFile: path("plain.yaml"), envDir: path("env"), file: path("plain.yaml"), data: path("env")},
		{name: "the environment's directory holds the file", envDir: path("env"), file: path("env/muxpost.yaml"), data: path("env")},
		{name: "file before environment, from its own directory", envFile: path("dir.yaml"), envDir: path("env"), file: path("dir.yaml"),
			data: path("in-file")},
		{name: "flags before all", flagFile: path("dir.yaml"), flagDir: path("flag"), envFile: path("plain.yaml"), envDir: path("env"),
			file: path("dir.yaml"), data: path("flag")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{layout.DataDirVariable: tt.envDir, layout.ConfigVariable: tt.envFile}
			w := Where{File: tt.flagFile, DataDir: tt.flagDir, Home: dir, Getenv: func(key string) string { return env[key] }}
			for _, services := range [][]layout.Service{nil, {layout.Tmuxd}, {layout.Dispatcher}, {layout.Poller}} {
				s, err := Load(w, services...)
				if err != nil || s.File != tt.file || string(s.DataDir) != tt.data {
					t.Errorf("%v: %s, %s, %v", services, s.File, s.DataDir, err)
				}
			}
		})
	}
	none := Where{Getenv: func(string) string { return "" }}
	if _, err := Load(none); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("no home: %v", err)
	}
	none.File = path("none.yaml")
	if _, err := Load(none); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that was named and is missing: %v", err)
	}
}

func TestLoad_OneInstallationHasOneDataDirectory(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "c.yaml"), "tmuxd: {data_dir: /a}\npoller: {data_dir: /b}\n")
	w := where("", nil)
	w.File = file
	if _, err := Load(w); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "poller.data_dir") {
		t.Errorf("%v", err)
	}
	w.DataDir = dir
	if s, err := Load(w); err != nil || string(s.DataDir) != dir {
		t.Errorf("the flag settles it: %s, %v", s.DataDir, err)
	}
}

func TestLoad_KeepsWhatABuiltinHarnessHasAndTheFileLeavesOut(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "muxpost.yaml"), "tmuxd: {harnesses: {fakeagent: {binary: /opt/fake}, mine: {binary: m, prompt: '^(.*)$'}}}\n")
	s, err := Load(where(dir, nil))
	must(t, err)
	h := s.Tmuxd.Harnesses["fakeagent"]
	want := BuiltinHarnesses()["fakeagent"]
	want.Binary, want.Channel = "/opt/fake", ChannelPaste
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	if mine := s.Tmuxd.Harnesses["mine"]; mine.WhenBusy != BusyHold || mine.ConversationID != ConversationNone || mine.Settle == 0 || mine.Survival == 0 {
		t.Errorf("%+v", mine)
	}
}

func TestLoad_AServiceIsNotStoppedByTheSectionOfAnother(t *testing.T) {
	dir := installed(t)
	write(t, filepath.Join(dir, "muxpost.yaml"), "tmuxd: {width: wide}\ndispatcher: {harnes: x}\npoller: {workers: 2}\n")
	if s, err := LoadService(where(dir, nil), layout.Poller); err != nil || s.Poller.Workers != 2 {
		t.Errorf("%+v, %v", s.Poller, err)
	}
	if _, err := LoadService(where(dir, nil), layout.Tmuxd); !errors.Is(err, fault.Invalid) || strings.Contains(err.Error(), "harnes ") {
		t.Errorf("%v", err)
	}
}

func TestLoad_TellsEveryMistakeOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "muxpost.yaml"), "pollr: {}\ntmuxd: {listn: x}\npoller: {listen: '127.0.0.1:9', workers: many}\n")
	s, err := Load(where(dir, nil))
	if !errors.Is(err, fault.Invalid) || strings.Count(err.Error(), "pollr") != 1 || !strings.Contains(err.Error(), "tmuxd.listn") ||
		!strings.Contains(err.Error(), "poller.workers") {
		t.Errorf("%v", err)
	}
	if s.Poller.Listen != "127.0.0.1:9" {
		t.Errorf("what could be read is lost: %+v", s.Poller)
	}
}

func TestDatabase_MustBeTheSameForBoth(t *testing.T) {
	for _, tt := range []struct {
		name, text, env string
		want            Database
		bad             bool
	}{
		{name: "none is local", text: "poller: {}\n"},
		{name: "environment", env: "postgres://e/x", want: Database{URL: "postgres://e/x", From: "the variable MUXPOST_DATABASE_URL"}},
		{name: "file goes first", env: "postgres://e/x", want: Database{URL: "postgres://a/x", InFile: true},
			text: "poller: {database_url: 'postgres://a/x'}\ndispatcher: {database_url: 'postgres://a/x'}\n"},
		{name: "only one", text: "poller: {database_url: 'postgres://a/x'}\n", bad: true},
		{name: "two", text: "poller: {database_url: 'postgres://a/x'}\ndispatcher: {database_url: 'postgres://b/x'}\n", bad: true},
		{name: "two forms", text: "poller: {database_url: 'postgres://a/x', database_url_file: u}\n", bad: true},
		{name: "missing file", text: "poller: {database_url_file: u}\ndispatcher: {database_url_file: u}\n", bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := write(t, filepath.Join(dir, "muxpost.yaml"), tt.text)
			s, err := Load(where(dir, map[string]string{layout.DatabaseURLVariable: tt.env}))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Database()
			if tt.bad {
				if !errors.Is(err, fault.Invalid) {
					t.Errorf("%v, %v", got, err)
				}
				if check := s.Check(); check == nil || !strings.Contains(check.Error(), "database") {
					t.Errorf("the check says %v", check)
				}
				return
			}
			if tt.want.InFile {
				tt.want.From = file
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestDatabaseURL_IsTheSectionsOrTheEnvironments(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "url"), " postgres://me:secret@h/d\n")
	write(t, filepath.Join(dir, "empty"), "\n")
	env := map[string]string{layout.DatabaseURLVariable: "postgres://e/x"}
	for _, tt := range []struct {
		text string
		env  map[string]string
		want string
		bad  string
	}{
		{text: "", env: env, want: "postgres://e/x"},
		{text: "database_url_file: url", env: env, want: "postgres://me:secret@h/d"},
		{text: "database_url_file: empty", env: env, bad: "is empty"},
		{text: "database_url_file: none", bad: "poller.database_url_file cannot be read"},
		{text: "", bad: "MUXPOST_DATABASE_URL"},
	} {
		write(t, filepath.Join(dir, "muxpost.yaml"), "poller: {"+tt.text+"}\n")
		s, err := Load(where(dir, tt.env))
		must(t, err)
		got, err := s.DatabaseURL(layout.Poller)
		if got != tt.want || (tt.bad == "") != (err == nil) || tt.bad != "" && !strings.Contains(err.Error(), tt.bad) {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}

func TestHere_FollowsWhereTheHostsAre(t *testing.T) {
	const tls = "{listen: '0.0.0.0:7411', cert_file: /c, key_file: /k, ca_file: /a}"
	for text, want := range map[string][]layout.Service{
		"":                            layout.Services(),
		"dispatcher: {harness: h}\n":  layout.Services(),
		"tmuxd: {tls: " + tls + "}\n": {layout.Tmuxd}, // as muxpost hosts join writes it
		"tmuxd: {tls: " + tls + "}\ndispatcher: {harness: h}\n":                            layout.Services(),
		"dispatcher: {harness: h, hosts: []}\n":                                            {layout.Dispatcher, layout.Poller},
		"dispatcher: {harness: h, hosts: [{name: a, address: 'a:7411'}]}\n":                {layout.Dispatcher, layout.Poller},
		"dispatcher: {harness: h, hosts: [{name: a, address: 'unix:DIR/run/tmuxd.sock'}]}": layout.Services(),
	} {
		dir := t.TempDir()
		if text != "" {
			must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600))
		}
		s, err := Load(where(dir, nil))
		must(t, err)
		var here []layout.Service
		for _, service := range layout.Services() {
			if s.Here(service) {
				here = append(here, service)
			}
		}
		if !slices.Equal(here, want) {
			t.Errorf("%q: %v, want %v", text, here, want)
		}
	}
}

func TestLoad_TakesWhatAServiceManagerHandsOver(t *testing.T) {
	dir, given := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(given, "url"), []byte("postgres://given/x"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte("dispatcher: {database_url_file: /etc/secret/url}\npoller: {database_url_file: other}\n"), 0o600))
	s, err := Load(where(dir, map[string]string{"CREDENTIALS_DIRECTORY": given, "MUXPOST_LAUNCHER": "/run/l"}))
	must(t, err)
	if url, err := s.DatabaseURL(layout.Dispatcher); err != nil || url != "postgres://given/x" {
		t.Errorf("a credential: %q, %v", url, err)
	}
	if want := filepath.Join(dir, "other"); s.Poller.DatabaseURLFile != want || s.Tmuxd.Launcher != "/run/l" {
		t.Errorf("a file that is no credential: %s, want %s; the launcher %s", s.Poller.DatabaseURLFile, want, s.Tmuxd.Launcher)
	}
	s.Tmuxd.Launcher = "run/l"
	if err := s.Check(layout.Tmuxd); err == nil || !strings.Contains(err.Error(), "tmuxd.launcher") {
		t.Errorf("a launcher without an absolute path: %v", err)
	}
}
