package trees

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// read returns what is remembered of a tree. Releases before this one did not write down whether they made it: one that bears the name of its
// session was made, since nobody gives a directory of his own such a name. Of any other that is not certain, and it stays.
func read(file string) (tree Tree, err error) {
	record := struct {
		*Tree
		Made *bool `json:"made"`
	}{Tree: &tree}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	switch {
	case err != nil:
	case record.Made != nil:
		tree.Made = *record.Made
	default:
		tree.Made = tree.Target != "" && filepath.Base(tree.Directory) == tree.Target
	}
	return tree, err
}

// judge says of each tree whether it may be removed at all. all are all that are remembered.
func judge(all []Tree) {
	places, at, below := make([]string, len(all)), map[string][]int{}, map[string]int{}
	for i, t := range all {
		places[i] = resolved(t.Directory)
		at[places[i]] = append(at[places[i]], i)
		for _, dir := range above(places[i]) {
			below[dir] = i
		}
	}
	for i := range all {
		all[i].Stays = stays(all, i, places[i], at, below)
	}
}

// stays says in a line why a tree is not removed; empty when it may be. at are the trees in each place, and below has one that lies below it.
func stays(all []Tree, i int, place string, at map[string][]int, below map[string]int) string {
	if !all[i].Made {
		return "muxpost did not make it, or does not know that it did"
	}
	for _, j := range at[place] {
		if j != i {
			return "the agent of " + all[j].WorkItem + " works there too"
		}
	}
	for _, dir := range above(place) {
		if others := at[dir]; len(others) > 0 {
			return "it lies in " + dir + ", where the agent of " + all[others[0]].WorkItem + " works"
		}
	}
	if j, ok := below[place]; ok {
		return "in it lies " + all[j].Directory + ", where the agent of " + all[j].WorkItem + " works"
	}
	return ""
}

// above are the directories that a path lies in.
func above(path string) (dirs []string) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == filepath.Dir(dir) {
			return dirs
		}
	}
}

// again returns what is known of a tree now.
func (t *Trees) again(tree Tree) (Tree, error) {
	known, err := t.Known()
	for _, k := range known {
		if k.Target == tree.Target && k.Directory == tree.Directory {
			return k, err
		}
	}
	return tree, err
}

// occupy keeps a directory from being made. ok is false when it is being made, or removed.
func (t *Trees) occupy(directory string) (release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.making[directory] != nil {
		return nil, false
	}
	m := &making{since: time.Now(), done: make(chan struct{})}
	t.making[directory] = m
	return func() { t.over(directory, m) }, true
}

// resolved is a path without symbolic links, as far as it is there.
func resolved(path string) string {
	path = filepath.Clean(path)
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}
