package dispatch

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestReasons_AreInTheRunbook(t *testing.T) {
	data, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if !strings.Contains(string(data), "| `"+string(r)+"` | ") {
			t.Errorf("docs/runbook.md does not explain %q", r)
		}
	}
}

func TestEvents_AreInTheirDocument(t *testing.T) {
	data, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, fields := string(data), EventFields()
	for e, meaning := range EventTypes() {
		row := fmt.Sprintf("| `%s` | %s | `%s` |", e, meaning, strings.Join(fields[e], "`, `"))
		if !strings.Contains(doc, row+"\n") {
			t.Errorf("docs/events.md has no row\n%s", row)
		}
		for _, name := range append(CommonFields(), fields[e]...) {
			if name != "work_item" && name != "delivery_id" && !strings.Contains(doc, "\n| `"+name+"`") && !strings.Contains(doc, ", `"+name+"` | ") {
				t.Errorf("docs/events.md does not explain the field %s", name)
			}
		}
	}
	if len(fields) != len(EventTypes()) {
		t.Errorf("%d types have fields, and there are %d", len(fields), len(EventTypes()))
	}
	if rows := strings.Count(doc, "\n| `dispatch.") + strings.Count(doc, "\n| `session.") + strings.Count(doc, "\n| `host.") + strings.Count(doc, "\n| `team.") + strings.Count(doc, "\n| `task."); rows != len(fields) {
		t.Errorf("docs/events.md has %d rows of types, and there are %d", rows, len(fields))
	}
}
