package team

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// Spec is what a run is asked to do. It is stored as it is and never changed.
type Spec struct {
	Team string `json:"team"`
	// Harness runs what names none itself, and Directory is where it works, on every host.
	Harness   string            `json:"harness,omitempty"`
	Directory string            `json:"directory,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Parallel is how many attempts may run at once.
	Parallel int `json:"parallel"`
	// MaxFixLoops is how often what failed is run again.
	MaxFixLoops int `json:"max_fix_loops"`
	// Limit is how long an attempt may last, zero for the host's own; Stall how long it may make no progress, zero for ever.
	Limit time.Duration `json:"limit,omitempty"`
	Stall time.Duration `json:"stall,omitempty"`
	// Trees says who has a working tree of its own, a worktree of the repository that Directory is; empty works in the directory itself.
	Trees Trees `json:"trees,omitempty"`
	// Plan and PRD are what is done before the tasks, and Fix what is done when the verification does not hold; nil for nothing, and for
	// the usual words.
	Plan   *Step `json:"plan,omitempty"`
	PRD    *Step `json:"prd,omitempty"`
	Fix    *Step `json:"fix,omitempty"`
	Verify *Step `json:"verify"`
	Tasks  []Job `json:"tasks"`
}

// Trees is who has a working tree of its own.
type Trees string

// The policies.
const (
	NoTrees    Trees = ""
	TaskTrees  Trees = "task"
	WorkerTree Trees = "worker"
)

// Step is what is done in a phase.
type Step struct {
	Prompt string `json:"prompt,omitempty"`
	// Check names an entry of the host's table instead of a prompt: what it exits with is the verdict. Only Verify has one.
	Check   string            `json:"check,omitempty"`
	Harness string            `json:"harness,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// Job is one task of the graph.
type Job struct {
	ID      string            `json:"id"`
	Prompt  string            `json:"prompt"`
	Needs   []string          `json:"needs,omitempty"`
	Harness string            `json:"harness,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Directory is where it works, when that is another than the team's.
	Directory string `json:"directory,omitempty"`
}

const (
	// maxTasks, maxPrompts and maxLoops bound a run.
	maxTasks   = 1000
	maxPrompts = 8 << 20
	maxPrompt  = 1 << 20
	maxLoops   = 100
	maxName    = 64
	// defaultParallel is how many attempts run at once where nothing is said.
	defaultParallel = 4
	maxParallel     = 256
)

var nameForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$`)

// ValidName reports whether a team or a task may be called so.
func ValidName(name string) bool {
	return nameForm.MatchString(name) && !strings.Contains(name, "..")
}

// Check returns the spec with what it leaves out filled in. The error is fault.Invalid.
func (s Spec) Check() (Spec, error) {
	if !ValidName(s.Team) {
		return s, bad("the team's name %q must have 1 to %d characters of a-z, 0-9, and . _ - between them", clip(s.Team), maxName)
	}
	if s.Parallel == 0 {
		s.Parallel = defaultParallel
	}
	switch {
	case s.Parallel < 1 || s.Parallel > maxParallel:
		return s, bad("parallel is %d, and must be 1 to %d", s.Parallel, maxParallel)
	case s.MaxFixLoops < 0 || s.MaxFixLoops > maxLoops:
		return s, bad("max_fix_loops is %d, and must be 0 to %d", s.MaxFixLoops, maxLoops)
	case s.Limit < 0 || s.Stall < 0:
		return s, bad("limit and stall must not be negative")
	case s.Trees != NoTrees && s.Trees != TaskTrees && s.Trees != WorkerTree:
		return s, bad("trees is %q: write task, worker, or nothing", clip(string(s.Trees)))
	case len(s.Tasks) == 0:
		return s, bad("there is no task")
	case len(s.Tasks) > maxTasks:
		return s, bad("there are %d tasks, and at most %d are taken", len(s.Tasks), maxTasks)
	case s.Verify == nil:
		return s, bad("nothing says when the work is good").WithRemedy("give verify a prompt, or a check of the host's table")
	}
	if err := s.checkSteps(); err != nil {
		return s, err
	}
	return s, s.checkTasks()
}

func (s Spec) checkSteps() error {
	all := 0
	for _, named := range []struct {
		name string
		step *Step
	}{{"plan", s.Plan}, {"prd", s.PRD}, {"verify", s.Verify}, {"fix", s.Fix}} {
		step := named.step
		if step == nil {
			continue
		}
		all += len(step.Prompt)
		switch {
		case step.Check != "" && named.name != "verify":
			return bad("%s cannot be a check", named.name)
		case step.Check != "" && (step.Prompt != "" || step.Harness != ""):
			return bad("verify has a check and a prompt or a harness: one of them decides")
		case step.Check != "":
		case strings.TrimSpace(step.Prompt) == "":
			return bad("%s has no prompt", named.name)
		case step.Harness == "" && s.Harness == "":
			return bad("no harness is named for %s", named.name)
		case len(step.Prompt) > maxPrompt:
			return bad("the prompt of %s has %d bytes, and at most %d are taken", named.name, len(step.Prompt), maxPrompt)
		}
	}
	if s.Directory == "" {
		return bad("no directory is named")
	}
	for _, t := range s.Tasks {
		all += len(t.Prompt)
	}
	if all > maxPrompts {
		return bad("the prompts have %d bytes together, and at most %d are taken", all, maxPrompts)
	}
	return nil
}

func (s Spec) checkTasks() error {
	ids := map[string]int{}
	for i, t := range s.Tasks {
		switch {
		case !ValidName(t.ID):
			return bad("the task's id %q must have 1 to %d characters of a-z, 0-9, and . _ - between them", clip(t.ID), maxName)
		case strings.TrimSpace(t.Prompt) == "":
			return bad("the task %s has no prompt", t.ID)
		case len(t.Prompt) > maxPrompt:
			return bad("the prompt of the task %s has %d bytes, and at most %d are taken", t.ID, len(t.Prompt), maxPrompt)
		case t.Harness == "" && s.Harness == "":
			return bad("no harness is named for the task %s", t.ID)
		case t.Directory != "" && s.Trees != NoTrees:
			return bad("the task %s has a directory, and trees are of the team's", t.ID)
		}
		if _, twice := ids[t.ID]; twice {
			return bad("two tasks have the id %s", t.ID)
		}
		ids[t.ID] = i
	}
	for _, t := range s.Tasks {
		for i, need := range t.Needs {
			switch _, known := ids[need]; {
			case !known:
				return bad("the task %s needs %q, which is no task", t.ID, clip(need))
			case need == t.ID:
				return bad("the task %s needs itself", t.ID)
			case slices.Contains(t.Needs[:i], need):
				return bad("the task %s names %s twice among its needs", t.ID, need)
			}
		}
	}
	if cycle := s.cycle(ids); cycle != nil {
		return bad("the tasks need each other in a circle: %s", strings.Join(cycle, " needs "))
	}
	return nil
}

// cycle returns the tasks of a circle, the first again at the end; nil when there is none.
func (s Spec) cycle(ids map[string]int) []string {
	const (
		open = 1
		done = 2
	)
	mark := make([]int, len(s.Tasks))
	var path []string
	var visit func(i int) []string
	visit = func(i int) []string {
		mark[i] = open
		path = append(path, s.Tasks[i].ID)
		for _, need := range s.Tasks[i].Needs {
			switch j := ids[need]; mark[j] {
			case open:
				return append(slices.Clone(path[slices.Index(path, need):]), need)
			case 0:
				if found := visit(j); found != nil {
					return found
				}
			}
		}
		path = path[:len(path)-1]
		mark[i] = done
		return nil
	}
	for i := range s.Tasks {
		if mark[i] == 0 {
			if found := visit(i); found != nil {
				return found
			}
		}
	}
	return nil
}

func bad(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, fault.ReasonBadArgument, fmt.Sprintf(format, args...))
}

// clip keeps what somebody wrote from filling a message.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
