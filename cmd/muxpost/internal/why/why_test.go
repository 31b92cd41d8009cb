package why

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/ledger"
)

// policyReasons reads the poller's own reasons out of its source: the command cannot import them.
func policyReasons(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "services", "poller", "internal", "poll", "policy.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`\n\tReason\w+\s*=\s*"([^"]+)"`).FindAllSubmatch(source, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) == 0 {
		t.Fatal("the poller's policy has no reasons any more: correct this test")
	}
	return out
}

func every(t *testing.T) map[string]bool {
	all := map[string]bool{ledger.ReasonUnconfirmed: true, ledger.ReasonBaselined: true, ledger.ReasonUnauthorised: true,
		ledger.ReasonDeleted: true, ledger.ReasonByHand: true, ledger.ReasonRearmed: true, ledger.ReasonCoalesced: true, ledger.ReasonCommand: true}
	for _, r := range dispatch.Reasons() {
		all[string(r)] = true
	}
	for _, r := range fault.Reasons() {
		all[string(r)] = true
	}
	for _, k := range fault.Kinds() {
		all[strings.ReplaceAll(k.Error(), " ", "_")] = true
	}
	for _, r := range policyReasons(t) {
		all[r] = true
	}
	return all
}

func TestOf_ExplainsEveryReason(t *testing.T) {
	for reason := range every(t) {
		e, ok := Of(reason)
		if !ok || e.Meaning == "" {
			t.Errorf("%s is not explained", reason)
		}
		if strings.HasSuffix(e.Meaning, ".") || strings.HasSuffix(e.Remedy, ".") {
			t.Errorf("%s: no full stop at the end", reason)
		}
	}
	if _, ok := Of("no such reason"); ok {
		t.Error("an unknown reason is explained")
	}
}

func TestOf_ExplainsNothingThatIsNoReason(t *testing.T) {
	all := every(t)
	for _, table := range []map[string]Explanation{outcomes(), settled(), faults()} {
		for reason := range table {
			if !all[reason] {
				t.Errorf("%s is explained and given by nobody", reason)
			}
		}
	}
}

// A reason that several parts give is explained by the first table alone.
func TestTables_DoNotOverlap(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range []map[string]Explanation{outcomes(), settled(), faults()} {
		for reason := range table {
			if seen[reason] {
				t.Errorf("%s is explained twice", reason)
			}
			seen[reason] = true
		}
	}
}

func TestWithRetry_OfWhatEndedNeverSaysThatItGoesOnByItself(t *testing.T) {
	for remedy, want := range map[string]string{
		"":        "muxpost retry d1",
		byItself:  "muxpost retry d1",
		"free it": "free it; then muxpost retry d1",
		"see to it, and muxpost retry d1 or leave it": "see to it, and muxpost retry d1 or leave it",
	} {
		if got := WithRetry(remedy, "d1"); got != want {
			t.Errorf("%q: %q", remedy, got)
		}
	}
}
