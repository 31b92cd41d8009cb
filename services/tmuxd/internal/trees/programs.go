package trees

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What git runs because a key of its configuration names it. An agent writes to the configuration of its tree, and of the repository that its
// worktree is of. Left out is what our own arguments and environment take the effect from, and what only a person's commands run.
var (
	// lookPrograms are run by what only looks: by a status, for the most part.
	lookPrograms = regexp.MustCompile(`^(filter\..*\.(clean|smudge|process)|lfs\.extension\..*\.(clean|smudge)|lfs\.customtransfer\..*\.path|` +
		`hook\..*\.command|core\.alternaterefscommand)$`)
	// otherPrograms are run besides by a fetch, a merge, or a checkout.
	otherPrograms = regexp.MustCompile(`^(merge\..*\.driver|gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand|credential\.(.*\.)?helper|` +
		`core\.(askpass|gitproxy)|remote\..*\.(uploadpack|vcs)|protocol\.(.*\.)?allow|gc\.recentobjectshook)$`)
	// partial are the keys of a repository whose objects git fetches when it needs them, even for a look.
	partial = regexp.MustCompile(`^(remote\..*\.(promisor|partialclonefilter)|extensions\.partialclone)$`)
)

// maxSubmodules bounds how many checked out submodules a tree may have.
const maxSubmodules = 200

// trusted is an error where git would run a program that a tree's own configuration names: then nothing is asked of git there. With acts it is also
// about what fetches, merges and checks out. The configuration of whoever runs tmuxd may name programs; it is no tree's.
func (t *Trees) trusted(ctx context.Context, dir string, acts bool) error {
	return t.trustedWith(ctx, dir, acts, map[string]bool{})
}

// trustedWith is trusted for a tree and its submodules, in each of which git runs itself once more. seen are the trees that were looked at.
func (t *Trees) trustedWith(ctx context.Context, dir string, acts bool, seen map[string]bool) error {
	if place := resolved(dir); seen[place] {
		return nil
	} else if seen[place] = true; len(seen) > maxSubmodules {
		return fmt.Errorf("it has more than %d submodules", maxSubmodules)
	}
	list, err := t.git(ctx, gitTime, dir, "config", "--list", "--show-scope", "-z")
	if err != nil {
		return err
	}
	if key := program(list, acts); key != "" {
		return fmt.Errorf("its own git configuration has %.100s, which names a program, and git would run it; where it is wanted, "+
			"set it for whoever runs tmuxd (git config --global), and unset it there", printable(key))
	}
	files, err := t.git(ctx, gitTime, dir, "ls-files", "--stage", "-z")
	if err != nil {
		return err
	}
	for entry := range strings.SplitSeq(files, "\x00") {
		what, name, _ := strings.Cut(entry, "\t")
		if !strings.HasPrefix(what, "160000 ") {
			continue
		}
		sub := filepath.Join(dir, name)
		if _, err := os.Lstat(filepath.Join(sub, ".git")); err != nil {
			continue // it is not checked out
		}
		if err := t.trustedWith(ctx, sub, acts, seen); err != nil {
			return fmt.Errorf("submodule %.100s: %w", printable(name), err)
		}
	}
	return nil
}

// program is the first key of a tree's own that names a program that git would run; empty when there is none. list is what git prints of its
// configuration: for each value its scope, its key, and it.
func program(list string, acts bool) string {
	fields := strings.Split(list, "\x00")
	var own []string
	for i := 0; i+1 < len(fields); i += 2 {
		if slices.Contains([]string{"system", "global", "command"}, fields[i]) {
			continue
		}
		key, value, set := strings.Cut(fields[i+1], "\n")
		if set && value == "" {
			continue // it takes back what another named
		}
		own = append(own, key)
		acts = acts || partial.MatchString(key)
	}
	for _, key := range own {
		if lookPrograms.MatchString(key) || acts && otherPrograms.MatchString(key) {
			return key
		}
	}
	return ""
}

// printable is a name that an agent chose, for one line.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}
