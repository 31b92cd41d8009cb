package settings

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

func where(dir string, env map[string]string) Where {
	return Where{DataDir: dir, Getenv: func(key string) string { return env[key] }}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTemplate_LoadsAndKeepsTheDefaults(t *testing.T) {
	dir := t.TempDir()
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
	for _, service := range layout.Services() {
		if s.Address(service) != service.Listen() {
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

func TestTemplate_EveryExampleCanBeSwitchedOn(t *testing.T) {
	dir := t.TempDir()
	text := regexp.MustCompile(`(?m)^#(  )`).ReplaceAllString(Template(), "$1")
	text = strings.ReplaceAll(text, "sources: []", "sources:")
	text = strings.ReplaceAll(text, "poller:\n", "poller:\n  database_url_file: /etc/muxpost/database-url\n")
	if strings.Contains(text, "#  ") {
		t.Fatal("an example is still switched off")
	}
	s, err := Load(Where{DataDir: dir, File: write(t, filepath.Join(dir, "c.yaml"), text), Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tmuxd.Harnesses["mycli"].Binary != "mycli" || len(s.Poller.Sources) != 1 || s.Poller.Sources[0].TokenFile != "github.token" {
		t.Errorf("%+v", s)
	}
}

func TestLoad_FlagsGoBeforeTheEnvironmentBeforeTheHomeDirectory(t *testing.T) {
	dir := t.TempDir()
	other := write(t, filepath.Join(dir, "other.yaml"), "poller: {listen: '127.0.0.1:9'}\n")
	env := map[string]string{layout.DataDirVariable: filepath.Join(dir, "env"), layout.ConfigVariable: other}
	w := where("", env)
	w.Home = dir
	s, err := Load(w)
	if err != nil || string(s.DataDir) != filepath.Join(dir, "env") || s.File != other || s.Poller.Listen != "127.0.0.1:9" {
		t.Errorf("%+v, %v", s, err)
	}
	w.Getenv = func(string) string { return "" }
	if s, err = Load(w); err != nil || string(s.DataDir) != filepath.Join(dir, ".local/share/muxpost") || s.Found {
		t.Errorf("%+v, %v", s, err)
	}
	w.File = filepath.Join(dir, "none.yaml")
	if _, err := Load(w); !errors.Is(err, fault.Invalid) {
		t.Errorf("a file that was named and is missing: %v", err)
	}
	w.Home, w.File = "", ""
	if _, err := Load(w); !errors.Is(err, fault.Invalid) {
		t.Errorf("no home: %v", err)
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

// The keys belong to the services; a copy that lags behind would refuse a good file.
func TestKeys_AreThoseOfTheServices(t *testing.T) {
	services := filepath.Join("..", "..", "..", "..", "services")
	for _, tt := range []struct {
		mine any
		file string
		name string
	}{
		{Tmuxd{}, "tmuxd/config.go", "config"},
		{Harness{}, "tmuxd/internal/harness/table.go", "Entry"},
		{Dispatcher{}, "dispatcher/config.go", "config"},
		{Host{}, "dispatcher/config.go", "hostConfig"},
		{Poller{}, "poller/config.go", "config"},
		{Source{}, "poller/config.go", "sourceConfig"},
	} {
		t.Run(tt.file+" "+tt.name, func(t *testing.T) {
			theirs, err := keysOf(filepath.Join(services, filepath.FromSlash(tt.file)), tt.name)
			if err != nil {
				t.Fatal(err)
			}
			var mine []string
			for i := range reflect.TypeOf(tt.mine).NumField() {
				mine = append(mine, reflect.TypeOf(tt.mine).Field(i).Tag.Get("conf"))
			}
			sort.Strings(mine)
			if diff := cmp.Diff(theirs, mine); diff != "" {
				t.Error("- the service, + the command:", diff)
			}
		})
	}
}

// keysOf reads the keys of a struct out of a source file.
func keysOf(path, name string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	var keys []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			if field.Tag == nil {
				continue
			}
			if key := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("conf"); key != "" {
				keys = append(keys, key)
			}
		}
		return false
	})
	sort.Strings(keys)
	if keys == nil {
		return nil, fs.ErrNotExist
	}
	return keys, nil
}

func TestMakeDataDir_IsPrivateExceptForRoot(t *testing.T) {
	for _, root := range []bool{true, false} {
		dir := layout.DataDir(filepath.Join(t.TempDir(), "a", "b"))
		if err := MakeDataDir(dir, root); err != nil {
			t.Fatal(err)
		}
		want := fs.FileMode(0o700)
		if root {
			want = 0o711
		}
		for path, mode := range map[string]fs.FileMode{string(dir): want, dir.LogDir(): 0o700, dir.RunDir(): 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
	}
}
