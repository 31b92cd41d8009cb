// Command drill-build compiles what the drill runs: the programs, those of another build for a rolling upgrade, and all of them so that their
// clocks can be stepped.
//
// It knows nothing of what the drill does with them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"muxpost.dev/muxpost/test/drill"
)

func main() {
	dir := flag.String("o", "", "`directory`, in which bin and next are made")
	clocks := flag.Bool("clocks", false, "build the programs so that their clocks can be stepped (minutes, the first time)")
	flag.Parse()
	if err := build(*dir, *clocks); err != nil {
		fmt.Fprintln(os.Stderr, "drill-build:", err)
		os.Exit(1)
	}
}

func build(dir string, clocks bool) error {
	if dir == "" {
		return errors.New("say where with -o")
	}
	var flags []string
	if clocks {
		root, err := drill.Root()
		if err != nil {
			return err
		}
		patches, err := drill.Clock()
		if err != nil {
			return err
		}
		// Go passes over a directory of such a name: what lies in it is no package of this module.
		flag, err := drill.Overlay(filepath.Join(dir, "_overlay"), root, patches)
		if err != nil {
			return err
		}
		flags = []string{flag}
	}
	bin := filepath.Join(dir, "bin")
	return errors.Join(drill.Build(bin, "v0.0.1-drill", nil, "fakeagent", "fakegithub", "muxpost-drill"), drill.Build(bin, "v0.0.1-drill", flags, drill.Product()...),
		drill.Build(filepath.Join(dir, "next"), "v0.0.2-drill", flags, drill.Product()...))
}
