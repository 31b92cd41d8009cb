package view

import (
	"strings"

	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// TreeState is the state of the session that a working tree is for, with its flags.
func TreeState(t *tmuxdv1.WorkingTree) string {
	words := []string{Word(t.GetState().String(), "STATE_")}
	for _, f := range t.GetFlags() {
		words = append(words, Word(f.String(), "FLAG_"))
	}
	return strings.Join(words, ", ")
}

// Trees writes working trees.
func (p Printer) Trees(trees []*tmuxdv1.WorkingTree) {
	rows := make([][]Cell, 0, len(trees))
	for _, t := range trees {
		holds := Cell{Text: t.GetHolds(), Tone: Good}
		if !t.GetNothingToLose() {
			holds = Cell{Text: t.GetHolds(), Tone: Warn}
		}
		rows = append(rows, []Cell{
			Text(t.GetWorkItem()), Text(TreeState(t)), Text(Word(t.GetKind().String(), "TREE_KIND_")), Text(t.GetBranch()),
			Text(p.Ago(t.GetCreateTime().AsTime())), Text(t.GetDirectory()), holds,
		})
	}
	p.Table("no working tree was made yet", []string{"ITEM", "AGENT", "KIND", "BRANCH", "MADE", "DIRECTORY", "HOLDS"}, rows)
}
