package ledger

import (
	"os"
	"strings"
	"testing"
)

func TestDocs_ExplainEveryStateReasonAndEventOfTheLedger(t *testing.T) {
	var events, words []string
	for e := range EventTypes() {
		events = append(events, string(e))
	}
	for _, s := range States() {
		words = append(words, s.String())
	}
	words = append(words, ReasonUnconfirmed, ReasonBaselined, ReasonUnauthorised, ReasonDeleted, ReasonByHand, ReasonRearmed, ReasonSessionOccupied,
		ReasonCoalesced, ReasonCommand, ReasonPaused)
	for file, words := range map[string][]string{"glossary.md": events, "runbook.md": words} {
		data, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if !strings.Contains(string(data), "| `"+w+"` | ") {
				t.Errorf("docs/%s does not explain %q", file, w)
			}
		}
	}
}
