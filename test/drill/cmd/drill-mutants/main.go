// Command drill-mutants switches off one guard of the product after the other, runs the drill where it should show, and prints a table of what
// was noticed. It fails when nothing was.
//
// It knows only how to build and run them; which guards there are says the package drill.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/test/drill"
)

func main() {
	only := flag.String("only", "", "try only the guards whose name this `pattern` matches")
	seeds := flag.Int("seeds", 2, "with how many `seeds` at most each is tried, from 1 on")
	during := flag.Duration("time", 40*time.Second, "how long each run tells events")
	control := flag.Bool("control", false, "try the guards that are on, in the same widened moments: nothing must be noticed")
	verbose := flag.Bool("v", false, "show what the drill finds")
	flag.Parse()
	dir, err := os.MkdirTemp("", "drill-mutants")
	if err == nil {
		t := trial{dir: dir, seeds: *seeds, during: *during, control: *control, verbose: *verbose}
		err = errors.Join(t.all(*only), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill-mutants:", err)
		os.Exit(1)
	}
}

type trial struct {
	dir, root        string
	seeds            int
	during           time.Duration
	control, verbose bool
}

func (t trial) all(only string) (err error) {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if t.root, err = drill.Root(); err != nil {
		return err
	}
	if err := drill.Build(filepath.Join(t.dir, "bin"), "v0.0.1-drill", nil); err != nil {
		return err
	}
	fmt.Println("| guard that was off | what it holds off | noticed | seed |\n|---|---|---|---|")
	var missed []string
	for i, m := range drill.Mutants() {
		if !chosen.MatchString(m.Name) {
			continue
		}
		noticed, seed, err := t.try(filepath.Join(t.dir, strconv.Itoa(i)), m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if (noticed == "") != t.control {
			missed = append(missed, m.Name)
		}
		fmt.Printf("| %s | %s | %s | %d |\n", m.Name, m.What, noticed, seed)
	}
	switch {
	case len(missed) == 0:
		return nil
	case t.control:
		return fmt.Errorf("noticed although the guard is on: %s", strings.Join(missed, "; "))
	}
	return fmt.Errorf("not noticed: %s", strings.Join(missed, "; "))
}

// try builds a mutant and runs the drill on it until something is noticed that has to be.
func (t trial) try(dir string, m drill.Mutant) (noticed string, seed int, err error) {
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(t.dir, "bin"))); err != nil {
		return "", 0, err
	}
	patches := m.Slow
	if !t.control {
		patches = append(patches, m.Off...)
	}
	overlay := ""
	if len(patches) > 0 {
		if overlay, err = drill.Overlay(dir+"-sources", t.root, patches); err != nil {
			return "", 0, err
		}
		if err := drill.Build(dir, "v0.0.1-drill", []string{overlay}, m.Programs...); err != nil {
			return "", 0, err
		}
	}
	for seed = 1; seed <= t.seeds; seed++ {
		args := append([]string{"-seed", strconv.Itoa(seed), "-time", t.during.String(), "-settle", "45s"}, m.Args...)
		cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "muxpost-drill"), args...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		failed := cmd.Run()
		line := strings.TrimSpace(out.String())
		fmt.Fprintf(os.Stderr, "%s: %s (%v)\n", m.Name, line, failed)
		if t.verbose || line == "" {
			fmt.Fprint(os.Stderr, said.String())
		}
		if line == "" {
			return "", seed, fmt.Errorf("the drill has no verdict: %w", failed)
		}
		var all []string
		expected := false
		for _, count := range counts.FindAllStringSubmatch(line, -1) {
			if count[1] == "seed" || count[1] == "events" || count[2] == "0" {
				continue
			}
			all = append(all, count[0])
			for _, name := range m.Notice {
				expected = expected || name == count[1]
			}
		}
		if noticed = strings.Join(all, " "); expected || t.control && noticed != "" {
			return noticed, seed, nil
		}
	}
	if t.control {
		return noticed, seed - 1, nil
	}
	// Something else than what the guard is about is no proof.
	return t.test(overlay, m), seed - 1, nil
}

// test has the tests of the guard's own package notice that it is off.
func (t trial) test(overlay string, m drill.Mutant) string {
	if len(m.Tests) == 0 {
		return ""
	}
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-count", "1", overlay}, m.Tests...)...)
	cmd.Dir = t.root
	out, err := cmd.CombinedOutput()
	failed := failures.FindAllStringSubmatch(string(out), -1)
	if err == nil || len(failed) == 0 {
		fmt.Fprintf(os.Stderr, "%s: %v: %s\n", m.Name, err, out)
		return ""
	}
	return "by its tests alone: " + failed[0][1]
}

var failures = regexp.MustCompile(`--- FAIL: (\w+)`)

var counts = regexp.MustCompile(`(\w+)=(\d+)`)
