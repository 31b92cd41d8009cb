package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every command that a document names is there, with its flags. What stands in code, or in a block, and begins with "muxpost " is one.
func TestDocs_NameOnlyCommandsThatAreThere(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range append(files, "../../README.md", "../../deploy/README.md", "../../deploy/systemd/README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)`muxpost ([a-z][^`]*)`|^ {4}muxpost ([a-z].*)$").FindAllStringSubmatch(string(data), -1) {
			line, _, _ := strings.Cut(m[1]+m[2], " #")
			line, _, _ = strings.Cut(line, " && ")
			line, _, _ = strings.Cut(line, " | ")
			words := strings.Fields(strings.TrimRight(line, ".…"))
			cmd, _, err := newRoot(newApp(nil, nil, nil)).Find(words)
			if err != nil || cmd.Name() == "muxpost" {
				t.Errorf("%s: there is no command: muxpost %s", file, line)
				continue
			}
			for _, w := range words {
				if flag, ok := strings.CutPrefix(w, "--"); ok && flag != "" {
					flag, _, _ = strings.Cut(flag, "=")
					if cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil && flag != "help" {
						t.Errorf("%s: muxpost %s: %s has no flag --%s", file, line, cmd.CommandPath(), flag)
					}
				}
			}
			checked++
		}
	}
	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}
