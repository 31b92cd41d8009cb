package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
)

// hooked loads a poller's section with webhook, and a source with the keys of source.
func hooked(t *testing.T, dir, webhook, source string) (Settings, error) {
	t.Helper()
	w := where(dir, nil)
	w.File = write(t, filepath.Join(dir, "c.yaml"), "poller:\n  database_url: postgres://h/d\n"+webhook+"  sources:\n    - name: gh\n      kind: github\n"+
		"      repositories: [o/r]\n      label: x\n"+source)
	return LoadService(w, layout.Poller)
}

func TestWebhook_NothingIsTakenWithoutASecret(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good"), "  one \n\ntwo\r\n")
	write(t, filepath.Join(dir, "own"), "three\n")
	write(t, filepath.Join(dir, "empty"), "\n  \n")
	write(t, filepath.Join(dir, "many"), strings.Repeat("x\n", maxSecrets+1))
	write(t, filepath.Join(dir, "odd"), "a\x00b\n")
	write(t, filepath.Join(dir, "open"), "known\n")
	must(t, os.Chmod(filepath.Join(dir, "open"), 0o644))
	shared := func(file string) string { return "  webhook: {listen: '127.0.0.1:8099', secret_file: " + file + "}\n" }
	for name, tt := range map[string]struct{ webhook, source, want string }{
		"no secret":           {"  webhook: {listen: '127.0.0.1:8099'}\n", "      webhook: true\n", "sources[0].webhook is on"},
		"an empty file":       {shared("empty"), "      webhook: true\n", "is empty"},
		"no file":             {shared("none"), "      webhook: true\n", "there is no file"},
		"known to all":        {shared("open"), "      webhook: true\n", "chmod 600"},
		"too many":            {shared("many"), "      webhook: true\n", "more than"},
		"a control character": {shared("odd"), "      webhook: true\n", "control character"},
		"an own empty one":    {shared("good"), "      webhook: true\n      webhook_secret_file: empty\n", "is empty"},
		"nowhere to listen":   {"", "      webhook: true\n      webhook_secret_file: own\n", "webhook.listen is not set"},
		"not on":              {"", "      webhook_secret_file: own\n", "webhook is not on"},
		"nobody's":            {shared("good"), "", "no source has webhooks"},
		"no address":          {"  webhook: {listen: '8099', secret_file: good}\n", "      webhook: true\n", "webhook.listen"},
		"the API's address":   {"  listen: '127.0.0.1:8099'\n" + shared("good"), "      webhook: true\n", "as is listen"},
		"too large":           {"  webhook: {listen: '127.0.0.1:8099', secret_file: good, max_body_mib: 26}\n", "      webhook: true\n", "max_body_mib"},
		"no size":             {"  webhook: {listen: '127.0.0.1:8099', secret_file: good, max_body_mib: 0}\n", "      webhook: true\n", "max_body_mib"},
	} {
		_, err := hooked(t, dir, tt.webhook, tt.source)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for source, want := range map[string][]string{
		"      webhook: true\n": {"one", "two"}, "      webhook: true\n      webhook_secret_file: own\n": {"three"},
	} {
		s, err := hooked(t, dir, "  webhook: {listen: '0.0.0.0:8099', secret_file: good}\n", source)
		must(t, err)
		got, err := s.Poller.Sources[0].WebhookSecrets()
		if diff := cmp.Diff(want, got); diff != "" || err != nil || s.Poller.Webhook.MaxBodyMiB != defaultMaxBody {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}
