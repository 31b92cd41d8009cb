package ledger

import (
	"os"
	"strings"
	"testing"
)

func TestGlossary_ExplainsEveryStateReasonAndEventOfTheLedger(t *testing.T) {
	data, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for e := range EventTypes() {
		words = append(words, string(e))
	}
	for _, s := range States() {
		words = append(words, s.String())
	}
	words = append(words, ReasonUnconfirmed, ReasonBaselined, ReasonUnauthorised, ReasonDeleted, ReasonByHand, ReasonRearmed, ReasonSessionOccupied,
		ReasonCoalesced, ReasonCommand)
	for _, w := range words {
		if !strings.Contains(string(data), "| `"+w+"` | ") {
			t.Errorf("docs/glossary.md does not explain %q", w)
		}
	}
}
