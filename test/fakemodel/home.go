package fakemodel

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// KeyVariable is what CodexHome makes codex read its key from: it must be in its environment, with any value.
const KeyVariable = "FAKE_KEY"

// CodexHome writes the config.toml of a codex that asks the server at url, a Server's URL, into dir, which is what CODEX_HOME names and
// by default ~/.codex. It starts no daemon and looks for no update; it trusts the directories, which are absolute, without asking. It fails
// when there is a config.toml already.
func CodexHome(dir, url string, trusted ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `model = %q
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "Fake"
base_url = %q
wire_api = "responses"
env_key = %q
request_max_retries = 1
stream_max_retries = 1

[tui]
screen_reader_detection_done = true

[features]
daemon_auto_start = false
`, modelName, url+"/v1", KeyVariable)
	for _, path := range trusted {
		quoted, err := json.Marshal(path) // whose escapes are TOML's too; those of %q are not
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n[projects.%s]\ntrust_level = \"trusted\"\n", quoted)
	}
	return writeNew(dir, "config.toml", []byte(b.String()))
}

// OpencodeConfig writes the opencode.json of an opencode that asks the server at url, a Server's URL, into dir, by default
// ~/.config/opencode. Every command of its shell needs a permission. It fails when there is an opencode.json already.
func OpencodeConfig(dir, url string) error {
	model := "fake/" + modelName
	data, err := json.MarshalIndent(object{
		"autoupdate": false, "share": "disabled", "model": model, "small_model": model, "enabled_providers": []string{"fake"},
		"permission": object{"bash": "ask"},
		"provider": object{"fake": object{
			"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": object{"baseURL": url + "/v1", "apiKey": "x"},
			"models": object{modelName: object{"name": "Fake One", "tool_call": true, "limit": object{"context": 1_000_000, "output": 32_000}}},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return writeNew(dir, "opencode.json", data)
}

// QwenSettings writes the settings.json of a qwen that finds its server by QwenEnviron into dir, by default ~/.qwen. It asks for no login and
// for no trust, and looks for no update. It fails when there is a settings.json already.
func QwenSettings(dir string) error {
	data, err := json.MarshalIndent(object{
		"security": object{"auth": object{"selectedType": "openai"}, "folderTrust": object{"enabled": false}},
		"general":  object{"enableAutoUpdate": false},
	}, "", "  ")
	if err != nil {
		return err
	}
	return writeNew(dir, "settings.json", data)
}

// QwenEnviron is what the environment of a qwen needs besides, so that it asks the server at url, a Server's URL.
func QwenEnviron(url string) []string {
	return []string{"OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + url + "/v1", "OPENAI_MODEL=" + modelName}
}

// writeNew never replaces a file: it might be that of a person's own agent.
func writeNew(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
