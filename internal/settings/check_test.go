package settings

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

func TestCheck_EachMistakeOfThePollerNamesItsKeyAndSaysWhatToWrite(t *testing.T) {
	dir := installed(t)
	write := func(name, text string, mode os.FileMode) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	write("good", "tok\n", 0o600)
	write("open", "tok\n", 0o644)
	write("empty", "\n", 0o600)
	must(t, os.Mkdir(filepath.Join(dir, "broken"), 0o700))
	write("broken/comment.tmpl", "\n{{.Nope}}{{.Quoted}}", 0o600)
	const source = "  sources:\n  - {name: gh, kind: github, repositories: [a/b], label: agent, authors: [alice], token_file: good"
	app := strings.Replace(source, "token_file: good", "app: ", 1)
	write("key", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", 0o600)
	for _, tt := range []struct{ name, text, want string }{
		{"workers", "  workers: 0\n", "poller.workers is 0: it must be 1 to 256"},
		{"budget", "  budget: -1\n", "poller.budget is -1"},
		{"no name", "  sources: [{kind: github, repositories: [a/b], label: x}]\n", `poller.sources[0].name is "": write`},
		{"the name for events by hand", strings.Replace(source, "gh,", "manual,", 1) + "}\n", "choose another"},
		{"no kind", strings.Replace(source, "kind: github, ", "", 1) + "}\n", "poller.sources[0].kind is \"\": write kind: github"},
		{"no repositories", strings.Replace(source, "[a/b]", "[]", 1) + "}\n", "poller.sources[0].repositories is empty"},
		{"a repository by its URL", strings.Replace(source, "a/b", "https://github.com/a/b", 1) + "}\n", "poller.sources[0].repositories[0]"},
		{"no label", strings.Replace(source, "label: agent", "label: ''", 1) + "}\n", "poller.sources[0].label is empty"},
		{"two labels", strings.Replace(source, "label: agent", "label: 'a,b'", 1) + "}\n", "poller.sources[0].label has a comma"},
		{"an author with @", strings.Replace(source, "alice", "'@alice'", 1) + "}\n", "poller.sources[0].authors[0]"},
		{"a short interval", source + ", interval: 1s}\n", "poller.sources[0].interval is 1s: it must be 5s to 24h"},
		{"a base URL without a scheme", source + ", base_url: github.example.com}\n", "poller.sources[0].base_url: "},
		{"a host that is none", source + ", host: 'a b'}\n", "poller.sources[0].host"},
		{"no token file", strings.Replace(source, "good", "missing", 1) + "}\n", "poller.sources[0].token_file: there is no file"},
		{"notices without a token", strings.Replace(source, ", token_file: good", "", 1) + ", notices: true}\n", "poller.sources[0].notices is on"},
		{"an assignee with @", source + ", assignee: '@bob'}\n", "poller.sources[0].assignee"},
		{"a mention that is a number", source + ", mention: 3}\n", "poller.sources[0].mention: write the login"},
		{"a mention of nobody", strings.Replace(source, ", token_file: good", "", 1) + ", mention: true}\n", "poller.sources[0].mention is true"},
		{"no trigger at all", strings.Replace(source, "label: agent", "mention: false", 1) + "}\n", "or set assignee, mention or team_labels"},
		{"a team's label that is two", source + ", team_labels: {'a,b': crew}}\n", `poller.sources[0].team_labels: "a,b" is no label`},
		{"a team's label that is the other", source + ", team_labels: {Agent: crew}}\n", `poller.sources[0].team_labels: "Agent" is label, too`},
		{"a team's label twice", source + ", team_labels: {Crew: a, crew: b}}\n", `poller.sources[0].team_labels: "crew" is there twice`},
		{"a team that has no name", source + ", team_labels: {crew: 'a b'}}\n", `poller.sources[0].team_labels: "crew" has the team "a b"`},
		{"a team's label without a token", strings.Replace(source, ", token_file: good", "", 1) + ", team_labels: {crew: crew}}\n", "poller.sources[0].team_labels is set"},
		{"a kind of CI that is none", source + ", ci: [checks]}\n", `poller.sources[0].ci[0] is "checks": write one of check_run, status`},
		{"a kind of CI twice", source + ", ci: [status, status]}\n", "listed twice"},
		{"a short max_interval", source + ", max_interval: 5s}\n", "poller.sources[0].max_interval is 5s: it must be interval (30s) to 24h"},
		{"full reads all the time", source + ", full_read: 1m}\n", "poller.sources[0].full_read is 1m0s: it must be 10m"},
		{"a token and an app", source + ", app: {id: 1, private_key_file: key}}\n", "poller.sources[0] has token_file and app"},
		{"an app without an id", app + "{private_key_file: key}}\n", "poller.sources[0].app.id: write the App's id"},
		{"an app without a key", app + "{id: 1}}\n", "poller.sources[0].app.private_key_file: it is not set"},
		{"an app's key that is none", app + "{id: 1, private_key_file: good}}\n", "does not hold a private key in PEM"},
		{"an app's key that others can read", app + "{id: Iv1.8a61f9b3a7aba766, private_key_file: open}}\n", "run chmod 600"},
		{"an app's installation", app + "{id: 1, private_key_file: key, installation_id: -1}}\n", "poller.sources[0].app.installation_id"},
		{"reactions without a token", strings.Replace(source, ", token_file: good", "", 1) + ", reactions: true}\n", "poller.sources[0].reactions is on"},
		{"digests after less than none", "  digest_after: -1\n", "poller.digest_after is -1"},
		{"templates that are not there", "  templates: nowhere\n", "poller.templates: "},
		{"a broken template", "  templates: broken\n", filepath.Join(dir, "broken", "comment.tmpl") + ":2:"},
		{"a token for everybody", strings.Replace(source, "good", "open", 1) + "}\n", "chmod 600"},
		{"an empty token", strings.Replace(source, "good", "empty", 1) + "}\n", "should hold one token"},
		{"a name twice", source + "}\n  - {name: gh, kind: github, repositories: [a/c], label: x}\n", "names must differ"},
		{"a repository twice", source + "}\n  - {name: two, kind: github, repositories: [A/B], label: x}\n", "list it once"},
		{"two database URLs", "  database_url_file: good\n", "keep one of them"},
		{"a dispatcher that is none", "  dispatcher: here\n", "poller.dispatcher"},
	} {
		write("muxpost.yaml", "poller:\n  database_url: postgres://x/y\n"+tt.text, 0o600)
		_, err := LoadService(where(dir, nil), layout.Poller)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	write("muxpost.yaml", "poller:\n  database_url: postgres://x/y\n"+source+", base_url: 'http://127.0.0.1:99', interval: 1s}\n", 0o600)
	s, err := LoadService(where(dir, nil), layout.Poller)
	must(t, err)
	c := s.Poller
	token, err := c.Sources[0].Token()
	if err != nil || c.Listen != "unix:"+dir+"/run/poller.sock" || c.Dispatcher != "unix:"+dir+"/run/dispatcher.sock" || c.Workers != 8 || c.Budget != 3 || token != "tok" ||
		c.Sources[0].Host != "127.0.0.1:99" {
		t.Errorf("%+v, %q, %v", c, token, err)
	}
}

func TestCheck_EachMistakeOfTmuxdNamesItsKey(t *testing.T) {
	dir := installed(t)
	for text, want := range map[string]string{
		"listen: 0.0.0.0:7411":  "tmuxd.listen: 0.0.0.0:7411 could be reached from other machines",
		"listen: nowhere":       `tmuxd.listen: "nowhere" is not an address`,
		"listen: 'unix:t.sock'": "tmuxd.listen: \"unix:t.sock\" does not hold an absolute path",
		"state_dir: here":       `tmuxd.state_dir: "here" is not an absolute path`,
		"socket_dir: /" + strings.Repeat("a", MaxSocketDir): "tmuxd.socket_dir: the path",
		"roots: [/]":                                    "tmuxd.roots",
		"roots: [/a/../b]":                              "tmuxd.roots",
		"capacity: -1":                                  "tmuxd.capacity is -1",
		"directory: '{target}'":                         "tmuxd.directory",
		"width: 10":                                     "tmuxd.width is 10",
		"height: 5000":                                  "tmuxd.height is 5000",
		"exec: none":                                    "tmuxd.exec: the wrapper " + filepath.Join(dir, "none"),
		"harnesses: {Bad: {binary: b}}":                 "tmuxd.harnesses.Bad: a name has",
		"harnesses: {mine: {prompt: '^(.*)'}}":          "tmuxd.harnesses.mine.binary: name the program",
		"tasks: {limit: 0s}":                            "tmuxd.tasks.limit is 0s: every attempt has an end",
		"tasks: {limit: 48h}":                           "at most tasks.max_limit (24h0m0s)",
		"tasks: {max_running: 0}":                       "tmuxd.tasks.max_running is 0",
		"tasks: {keep_for: 0s}":                         "tmuxd.tasks.keep_for is 0s",
		"tasks: {keep: 0}":                              "tmuxd.tasks.keep is 0",
		"harnesses: {mine: {binary: ' ', task: [x]}}":   "tmuxd.harnesses.mine.binary: name the program",
		"harnesses: {mine: {binary: b}}":                "tmuxd.harnesses.mine.prompt: a pattern",
		"harnesses: {mine: {binary: b, task: [serve]}}": "tmuxd.harnesses.mine.task: serve starts a server",
		"harnesses: {mine: {binary: 'codex app-server', task: [x]}}":             "tmuxd.harnesses.mine.task: app-server starts a server",
		"harnesses: {mine: {binary: b, task: [x], task_prompt: argv}}":           `tmuxd.harnesses.mine.task_prompt is "argv": write stdin`,
		"harnesses: {mine: {binary: b, task: [x], task_prompt: file}}":           "tmuxd.harnesses.mine.task needs {prompt_file}",
		"harnesses: {mine: {binary: b, task: [x], task_prompt: sentence}}":       "tmuxd.harnesses.mine.task needs {sentence}",
		"harnesses: {mine: {binary: b, task: ['{prompt}'], task_prompt: stdin}}": "tmuxd.harnesses.mine.task has {prompt}, which goes",
		"harnesses: {mine: {binary: b, task: [x], fresh: [y]}}":                  "tmuxd.harnesses.mine.prompt: a pattern",
		"harnesses: {fakeagent: {survival: 1m}}":                                 "tmuxd.harnesses.fakeagent.survival is 1m0s: it must be 0s to 10s",
		"harnesses: {fakeagent: {channel: mail}}":                                `tmuxd.harnesses.fakeagent.channel is "mail": write "paste", "socket" or "app-server"`,
		"harnesses: {qwen: {channel: socket}}":                                   "tmuxd.harnesses.qwen.channel is socket, and nothing tells the program where to listen",
		"harnesses: {codex: {companion: [serve]}}":                               "tmuxd.harnesses.codex.companion needs {socket}",
		"harnesses: {codex: {channel_resume: [resume]}}":                         "tmuxd.harnesses.codex.channel_resume needs {conversation_id}",
		`harnesses: {fakeagent: {dialogs: ['\d']}}`:                              "tmuxd.harnesses.fakeagent.dialogs[0] is not a POSIX",
	} {
		write(t, filepath.Join(dir, "muxpost.yaml"), "tmuxd: {"+text+"}\n")
		_, err := LoadService(where(dir, nil), layout.Tmuxd)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	write(t, filepath.Join(dir, "muxpost.yaml"), "tmuxd: {socket_dir: /"+strings.Repeat("a", MaxSocketDir-1)+"}\n")
	_, err := LoadService(where(dir, nil), layout.Tmuxd)
	must(t, err)
}

// git's arguments are for every user of the host to read, and the address of a clone's remote for its agent.
func TestCheck_ATreesRepositoryHasNoPasswordInItsAddress(t *testing.T) {
	dir := installed(t)
	for address, secret := range map[string]bool{
		"https://bob:hidden@git.example.com/{owner}/{repo}.git": true,
		"https://:hidden@git.example.com/x.git":                 true,
		"HTTPS://bob:hid%40den@git.example.com:8443/x.git":      true,
		"https://bob:hid@den@git.example.com/x.git":             true,
		"https://ghp_hidden@github.com/x/y.git":                 true,
		"https://github_pat_11hidden@github.com/x/y.git":        true,
		"ssh://git:hidden@git.example.com/x.git":                true,
		"https://git.example.com/{owner}/{repo}.git":            false,
		"https://bob@git.example.com:8443/x.git":                false,
		"https://git.example.com/a:b@c/x.git":                   false,
		"https://ghost@git.example.com/x.git":                   false,
		"ssh://git@git.example.com:2222/{owner}/{repo}.git":     false,
		"git@github.com:{owner}/{repo}.git":                     false,
		"/srv/git/{repo}.git":                                   false,
	} {
		for _, kind := range []string{"clone", "worktree"} {
			write(t, filepath.Join(dir, "muxpost.yaml"), "tmuxd: {trees: [{kind: "+kind+", repository: '"+address+"'}]}\n")
			_, err := LoadService(where(dir, nil), layout.Tmuxd)
			told := err != nil && strings.Contains(err.Error(), "tmuxd.trees[0].repository has a password in it")
			if told != secret || kind == "clone" && !secret && err != nil {
				t.Errorf("%s of %s: %v", kind, address, err)
			}
			if secret && err != nil && strings.Contains(err.Error(), "hid") {
				t.Errorf("%s of %s: it is repeated: %v", kind, address, err)
			}
		}
	}
}

func TestCheckListen_TakesWhatOnlyThisMachineReaches(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.1:7411": true, "localhost:1": true, "[::1]:1": true, "unix:/run/t.sock": true,
		"": false, ":7411": false, "127.0.0.1": false, "127.0.0.1:http": false, "192.0.2.1:1": false, "example.com:1": false, "unix:": false,
		"unix:/" + strings.Repeat("a", maxSocketPath): false,
	} {
		if err := CheckListen(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestCheck_FindsWhatDoesNotFitTogether(t *testing.T) {
	dir := installed(t)
	for text, want := range map[string]string{
		"dispatcher: {}": "dispatcher.harness is not set",
		"dispatcher: {harness: fakeagent, first_spawn: maybe}":                                     `dispatcher.first_spawn is "maybe"`,
		"dispatcher: {harness: fakeagent, first_spawn: opened}":                                    "",
		"dispatcher: {harness: fakeagent, breaker: {deaths: -1}}":                                  "dispatcher.breaker.deaths is -1",
		"dispatcher: {harness: fakeagent, breaker: {within: 25h}}":                                 "dispatcher.breaker.within is 25h0m0s",
		"dispatcher: {harness: fakeagent, breaker: {within: 0s}}":                                  "dispatcher.breaker.within is 0s",
		"dispatcher: {harness: fakeagent, breaker: {parked: -1s}}":                                 "dispatcher.breaker.parked is -1s",
		"dispatcher: {harness: fakeagent, breaker: {deaths: 0, parked: 1h}}":                       "",
		"dispatcher: {harness: nobody}":                                                            `dispatcher.harness is "nobody", which tmuxd's table does not have`,
		"dispatcher: {harness: fakeagent, listen: '127.0.0.1:1'}\npoller: {listen: '127.0.0.1:1'}": "dispatcher and poller would both listen on 127.0.0.1:1",
		"dispatcher: {harness: fakeagent, database_url: 'postgres://x'}":                           "for one of dispatcher and poller",
		"dispatcher: {harness: nobody, host: {address: '127.0.0.1:1'}}":                            "",
		"dispatcher: {harness: fakeagent}\npoller: {workers: 0}\ntmuxd: {width: 1}":                "poller.workers is 0",
	} {
		file := write(t, filepath.Join(dir, "muxpost.yaml"), text+"\n")
		s, err := Load(where(dir, nil))
		must(t, err)
		err = s.Check()
		if want == "" {
			must(t, err)
			continue
		}
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%s: %v", text, err)
		}
		if strings.Contains(text, "width: 1") && !strings.Contains(err.Error(), "tmuxd.width") {
			t.Errorf("one mistake hides another: %v", err)
		}
	}
}

func TestProgram_IsTheSameForEveryService(t *testing.T) {
	for _, service := range layout.Services() {
		p := Program{Service: service, About: "does something."}
		w, text, err := p.Parse([]string{"-config", "c", "--data-dir", "d"}, Where{Home: "/h"})
		if err != nil || text != "" || w.File != "c" || w.DataDir != "d" || w.Home != "/h" {
			t.Errorf("%+v, %q, %v", w, text, err)
		}
		if _, text, err := p.Parse([]string{"-version"}, Where{}); err != nil || !strings.HasPrefix(text, service.Binary()+" ") {
			t.Errorf("%q, %v", text, err)
		}
		for _, args := range [][]string{{"--nope"}, {"serve"}, {"--config"}} {
			if _, _, err := p.Parse(args, Where{}); !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "--help") {
				t.Errorf("%v: %v", args, err)
			}
		}
		_, help, err := p.Parse([]string{"-h"}, Where{})
		must(t, err)
		for _, want := range []string{"Usage: " + service.Binary(), "--config", "--data-dir", "--version", "--help", "listen", "data_dir", "log_level",
			layout.ConfigVariable, layout.DataDirVariable, "fills in what the file leaves out"} {
			if !strings.Contains(help, want) {
				t.Errorf("the help of %s does not say %q:\n%s", service, want, help)
			}
		}
		if database := strings.Contains(help, layout.DatabaseURLVariable); database == (service == layout.Tmuxd) {
			t.Errorf("%s and the database: %v", service, database)
		}
	}
}

// What is not measured is named by the key that it is of.
func TestBuiltinHarnesses_AreSoundAndNameWhatIsUnmeasuredByItsKey(t *testing.T) {
	if _, err := CheckHarnesses(BuiltinHarnesses()); err != nil {
		t.Fatal(err)
	}
	keys := keysOf(reflect.TypeFor[Harness](), "")
	for name, h := range BuiltinHarnesses() {
		for _, key := range h.Unmeasured {
			if !slices.Contains(keys, key) {
				t.Errorf("%s: %s is no key", name, key)
			}
		}
	}
}

func TestCheckHarnesses_AnEdgeNeedsAFooterAndNoFrame(t *testing.T) {
	h := Harness{Binary: "x", Prompt: "^> (.*)$", Edge: "^-+$"}
	for want, change := range map[string]func(*Harness){
		"footer is needed": func(*Harness) {},
		"framed":           func(h *Harness) { h.Footer, h.Framed = "^f", true },
		"edge: error":      func(h *Harness) { h.Footer, h.Edge = "^f", "(" },
		"":                 func(h *Harness) { h.Footer = "^f" },
	} {
		changed := h
		change(&changed)
		_, err := CheckHarnesses(map[string]Harness{"x": changed})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// The documentation names every key, and no other.
func TestDocumentation_NamesEveryKey(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	must(t, err)
	sections := strings.Split(string(data), "\n## ")
	for section, value := range map[string]any{"tmuxd": Tmuxd{}, "dispatcher": Dispatcher{}, "poller": Poller{}, "command": Command{}} {
		text := ""
		for _, s := range sections {
			if strings.HasPrefix(s, section+"\n") {
				text = s
			}
		}
		for _, keys := range [][]string{keysOf(reflect.TypeOf(value), ""), nested(section)} {
			for _, key := range keys {
				if !strings.Contains(text, "`"+key+"`") {
					t.Errorf("the section %s does not explain %s", section, key)
				}
			}
		}
	}
}

func nested(section string) []string {
	switch section {
	case "tmuxd":
		return keysOf(reflect.TypeFor[Harness](), "")
	case "poller":
		return keysOf(reflect.TypeFor[Source](), "")
	}
	return nil
}

func TestSource_WhatIsLeftOutAndWhatMayStandThere(t *testing.T) {
	dir := installed(t)
	load := func(text string) Source {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte("poller:\n  database_url: postgres://x/y\n  sources:\n  - {name: gh, kind: github, "+
			"repositories: [a/b], "+text+"}\n"), 0o600))
		s, err := LoadService(where(dir, nil), layout.Poller)
		must(t, err)
		return s.Poller.Sources[0]
	}
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600))
	s := load("label: agent")
	if !s.ReadsPulls() || !slices.Equal(s.CI, []string{"check_run", "status"}) || s.MaxInterval != 10*s.Interval || s.FullRead != time.Hour {
		t.Errorf("%+v", s)
	}
	s = load("assignee: helper, mention: 'helper[bot]', pulls: false, ci: [], app: {id: 12345, private_key_file: key}")
	login, self, ok := s.MentionOf()
	id, err := s.App.AppID()
	if s.ReadsPulls() || len(s.CI) != 0 || login != "helper[bot]" || self || !ok || id != "12345" || err != nil || !s.Authenticated() {
		t.Errorf("%+v", s)
	}
	s = load("mention: true, app: {id: Iv23liAbCd, private_key_file: key}")
	if _, self, ok := s.MentionOf(); !self || !ok {
		t.Errorf("%+v", s)
	}
}

func TestCommand_AnotherMachineIsCalledByItsCertificateAlone(t *testing.T) {
	dir := installed(t)
	for _, tt := range []struct{ text, want string }{
		{"{}", ""},
		{"{dispatcher: '10.0.0.5:7412'}", "command.dispatcher is another machine's: set command.tls.ca_file"},
		{"{poller: '10.0.0.5:7413', tls: {ca_file: ca.pem}}", ""},
		{"{poller: nowhere}", "command.poller"},
		{"{tls: {cert_file: c.pem}}", "go together"},
		{"{token_file: nope}", "command.token_file: there is no file " + filepath.Join(dir, "nope")},
		{"{token: muxpost_x_y}", "token"},
	} {
		must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte("dispatcher: {harness: fakeagent, database_url: 'postgres://x/y'}\n"+
			"poller: {database_url: 'postgres://x/y'}\ncommand: "+tt.text+"\n"), 0o600))
		s, err := Load(where(dir, nil))
		if err == nil {
			err = s.Check()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.text, err)
		}
		// A service does not mind what the command's section says.
		if _, err := LoadService(where(dir, nil), layout.Poller); err != nil {
			t.Errorf("the poller minds %s: %v", tt.text, err)
		}
	}
	// A poller may come in where other machines do.
	both := Settings{Poller: Poller{Dispatcher: "10.0.0.5:7412"}, Dispatcher: Dispatcher{Listen: "unix:/d", TLS: ServerTLS{Listen: "10.0.0.5:7412"}}}
	if m := both.Mismatches(); len(m) != 0 {
		t.Errorf("%+v", m)
	}
	s, err := Load(where(t.TempDir(), map[string]string{"MUXPOST_TOKEN_FILE": "/t"}))
	if err != nil || s.Command.TokenFile != "/t" || s.Called(layout.Poller) != s.Poller.Listen {
		t.Errorf("%+v, %v", s.Command, err)
	}
}
