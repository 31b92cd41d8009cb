package harness

import (
	"strings"
	"testing"
)

// The lines were taken from codex-cli 0.171.0 and opencode 1.18.33.
const (
	codexRefused = `{"timestamp":"2026-11-30T02:24:46.104Z","ordinal":9,"type":"event_msg","payload":{"type":"task_complete","turn_id":"01a2",` +
		`"last_agent_message":null,"error":{"message":"unexpected status 401 Unauthorized: no, url: http://127.0.0.1:1/v1/responses",` +
		`"codex_error_info":{"http_connection_failed":{"http_status_code":401}}},"started_at":1}}`
	codexLimited = `{"timestamp":"2026-11-30T02:24:51.177Z","ordinal":15,"type":"event_msg","payload":{"type":"task_complete","turn_id":"01a2",` +
		`"last_agent_message":null,"error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}}`
	codexQuotes = `{"timestamp":"2026-11-30T02:24:56.594Z","ordinal":25,"type":"event_msg","payload":{"type":"task_complete","turn_id":"01a2",` +
		`"last_agent_message":"\"error\":{\"message\":\"401 Unauthorized\"}","started_at":1}}`
	codexSays = `{"timestamp":"2026-11-30T02:24:56.594Z","ordinal":24,"type":"response_item","payload":{"text":"{\"type\":\"event_msg\",\"payload\":{\"type\":\"task_complete\""}}`
)

func TestFailure_OfATurnIsReadFromWhatTheProgramTold(t *testing.T) {
	for _, row := range []struct {
		name, told string
		ends       bool
		want       Failure
	}{
		{"codex", codexRefused, true, Failure{"auth", "unexpected status 401 Unauthorized: no, url: http://127.0.0.1:1/v1/responses"}},
		{"codex", codexLimited, true, Failure{"usage_limit", "exceeded retry limit, last status: 429 Too Many Requests"}},
		{"codex", codexQuotes, true, Failure{}},
		{"codex", codexSays, false, Failure{}},
		{"opencode", "error APIError 401 no such key", false, Failure{"auth", "APIError 401 no such key"}},
		{"opencode", "error ProviderAuthError anthropic", false, Failure{"auth", "ProviderAuthError anthropic"}},
		{"opencode", "error APIError 500 oops 401 ", false, Failure{}},
		{"opencode", "tries again: 401", false, Failure{}},
		{"qwen", codexRefused, false, Failure{}},
	} {
		h := entry(t, row.name)
		if got := h.FailedTurn(row.told); got != row.want {
			t.Errorf("%s: %s: %+v", row.name, row.told, got)
		}
		if got := h.EndsTurn([]byte(row.told)); got != row.ends {
			t.Errorf("%s: %s ends a turn: %v", row.name, row.told, got)
		}
	}
}

func TestFailure_OfAStartIsReadFromTheLastRows(t *testing.T) {
	for _, row := range []struct {
		name, class string
		rows        []string
	}{
		{"codex", "conversation_unknown", []string{"", "ERROR: No saved session found with ID " + thread, ""}},
		{"codex", "", []string{"  ERROR: No saved session found with ID x", "bye"}},
		{"codex", "", append([]string{"ERROR: No saved session found with ID x"}, strings.Split(strings.Repeat("row\n", 10), "\n")...)},
		{"opencode", "conversation_unknown", []string{"Error: Session not found: " + session}},
		{"opencode", "conversation_unknown", []string{"Error: Invalid session ID"}},
		{"claude", "conversation_unknown", []string{"No conversation found with session ID: " + thread}},
		{"claude", "conversation_in_use", []string{"Error: Session ID " + thread + " is already in use."}},
		{"fakeagent", "auth", []string{"■ You are not logged in"}},
		{"qwen", "", []string{"ERROR: No saved session found with ID x"}},
		{"codex", "", nil},
	} {
		got := entry(t, row.name).Failed(row.rows)
		if got.Class != row.class || (row.class == "") != (got.Line == "") {
			t.Errorf("%s: %q: %+v", row.name, row.rows, got)
		}
	}
	long := entry(t, "codex").Failed([]string{"ERROR: No saved session found with ID " + strings.Repeat("ü", 400)})
	if len(long.Line) > maxLine || long.Class == "" {
		t.Errorf("%d bytes of a line are kept", len(long.Line))
	}
}

func TestFailure_OfAProgramThatLivesStandsJustAboveItsComposer(t *testing.T) {
	codex := func(rows ...string) Screen {
		return screen("widget", append(rows, "", "› |", "", "  fake-1 default · /work/widget")...)
	}
	refused := "■ unexpected status 401 Unauthorized: no, url: http://127.0.0.1:1/v1/responses"
	for name, row := range map[string]struct {
		screen Screen
		class  string
	}{
		"just now":               {codex("› hello", "", refused), "auth"},
		"in two rows":            {codex("› hello", "", refused, "esponses"), "auth"},
		"before another message": {codex(refused, "", "› hello again", "", "• The model answers"), ""},
		"in a text":              {codex("› hello", "", "• it said: "+refused), ""},
		"a turn runs":            {screen("⠋ widget", refused, "", "› |", "", "  fake-1 default · /work/widget"), ""},
		"open elsewhere":         {screen("widget", "  🔒  This conversation is open in another app", "      Close it there and press R to continue here."), "conversation_in_use"},
		"an approval":            {screen("[ ! ] Action Required", refused, "› 1. Yes, proceed (y)"), ""},
	} {
		if got := entry(t, "codex").Read(row.screen).Failure; got.Class != row.class {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
