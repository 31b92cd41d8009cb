package ledger

import (
	"os"
	"strings"
	"testing"
)

func TestGlossary_ExplainsEveryReasonAndEventOfTheLedger(t *testing.T) {
	data, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for e := range EventTypes() {
		words = append(words, string(e))
	}
	words = append(words, ReasonUnconfirmed, ReasonBaselined, ReasonUnauthorised, ReasonDeleted, ReasonRearmed, ReasonSessionOccupied)
	for _, w := range words {
		if !strings.Contains(string(data), "| `"+w+"` | ") {
			t.Errorf("docs/glossary.md does not explain %q", w)
		}
	}
}
