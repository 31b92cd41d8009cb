package dispatch

import (
	"os"
	"strings"
	"testing"
)

func TestReasons_AreInTheGlossary(t *testing.T) {
	data, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(data), "| `"+string(r)+"` | ") {
			t.Errorf("docs/glossary.md does not explain %q", r)
		}
	}
}
