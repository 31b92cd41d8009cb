package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/layout"
)

// mistakes loads a configuration for both services that it is about.
func mistakes(t *testing.T, text string) error {
	t.Helper()
	dir := installed(t)
	must(t, os.WriteFile(filepath.Join(dir, "muxpost.yaml"), []byte(text), 0o600))
	for _, service := range []layout.Service{layout.Dispatcher, layout.Tmuxd} {
		if _, err := LoadService(where(dir, nil), service); err != nil {
			return err
		}
	}
	return nil
}

func TestHosts_TheirMistakesAreTold(t *testing.T) {
	for name, row := range map[string]struct{ dispatcher, tmuxd, want string }{
		"both":                   {"host: {address: \"127.0.0.1:1\"}, hosts: [{name: a, address: \"127.0.0.1:2\"}]", "", "host and hosts are both set"},
		"no name":                {"hosts: [{address: \"127.0.0.1:2\"}]", "", "hosts[0].name is empty"},
		"twice":                  {"hosts: [{name: a, address: \"127.0.0.1:2\"}, {name: a, address: \"127.0.0.1:3\"}]", "", "there are two hosts \"a\""},
		"one address":            {"hosts: [{name: a, address: \"127.0.0.1:2\"}, {name: b, address: \"127.0.0.1:2\"}]", "", "two hosts at"},
		"another machine":        {"hosts: [{name: a, address: \"10.0.0.5:2\"}]", "", "set tls"},
		"another machine, alone": {"host: {name: a, address: \"10.0.0.5:2\"}", "", "name it under hosts"},
		"half a certificate":     {"tls: {cert_file: /c}", "", "tls.key_file is not set"},
		"a relative path":        {"tls: {cert_file: c, key_file: /k, ca_file: /a}", "", "not an absolute path"},
		"a pattern":              {"placement: [{match: octo}]", "", "placement[0].match"},
		"a label":                {"placement: [{labels: {\"A b\": x}}]", "", "is no name"},
		"nowhere to listen":      {"", "tls: {cert_file: /c, key_file: /k, ca_file: /a}", "tls.listen is"},
		"a socket for others":    {"", "tls: {listen: \"unix:/s\", cert_file: /c, key_file: /k, ca_file: /a}", "tls.listen is"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "dispatcher: {database_url: 'postgres://x/y', harness: fakeagent, " + row.dispatcher + "}\ntmuxd: {" + row.tmuxd + "}\n"
			if err := mistakes(t, text); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	good := "dispatcher: {database_url: 'postgres://x/y', harness: fakeagent, hosts: [{name: a, address: \"10.0.0.5:2\"}, {name: b, address: \"unix:/b.sock\"}], " +
		"tls: {cert_file: /c, key_file: /k, ca_file: /a}, placement: [{match: octo/*, labels: {gpu: \"yes\"}}]}\n" +
		"tmuxd: {labels: {gpu: \"yes\"}, tls: {listen: \"0.0.0.0:7413\", cert_file: /c, key_file: /k, ca_file: /a}}\n"
	if err := mistakes(t, good); err != nil {
		t.Error(err)
	}
}
