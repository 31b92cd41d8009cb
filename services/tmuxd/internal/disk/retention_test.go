package disk

import (
	"os"
	"strings"
	"testing"
)

// docs/retention.md says of every directory here how long what is in it is kept.
func TestDirectories_AreAllInTheDocumentOfWhatIsKept(t *testing.T) {
	d := open(t)
	if _, err := d.OpenAttempts(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(d.root)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../../../docs/retention.md")
	if err != nil {
		t.Fatal(err)
	}
	_, host, _ := strings.Cut(string(data), "\n## A host\n")
	found := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		found++
		if !strings.Contains(host, "| `"+e.Name()+"`") && !strings.Contains(host, "`, `"+e.Name()+"`") {
			t.Errorf("docs/retention.md does not say how long %s is kept", e.Name())
		}
	}
	if found < 8 {
		t.Errorf("only %d directories were found", found)
	}
}
