package team

// TreeOf is the name of the working tree of an item, by the policy, for a worker of this number.
func (s Spec) TreeOf(t Item, worker string) string {
	if s.Trees == WorkerTree && t.Kind == Task {
		return worker
	}
	return t.ID
}

// Heads are the commits that were left, by task or step.
type Heads map[string]string

// NeedsOf are the commits that the tree of an item must have before it is begun: those of the steps before and of the tasks that it needs; a
// verification, and a fix, need all.
func (s Spec) NeedsOf(t Item, heads Heads) (commits []string) {
	from := []string{PlanStep.StepID(), PRDStep.StepID()}
	switch t.Kind {
	case Task:
		from = append(from, t.Needs...)
	case VerifyStep, FixStep:
		for _, j := range s.Tasks {
			from = append(from, j.ID)
		}
		from = append(from, FixStep.StepID())
	case PlanStep, PRDStep, NoKind:
	}
	seen := map[string]bool{}
	for _, id := range from {
		if head := heads[id]; head != "" && id != t.ID && !seen[head] {
			seen[head] = true
			commits = append(commits, head)
		}
	}
	return commits
}
