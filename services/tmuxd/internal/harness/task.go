package harness

import (
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/settings"
)

// maxArgument is the longest argument that Linux passes to a program, in bytes.
const maxArgument = 128<<10 - 1

// Task is how a harness is started for one task.
type Task struct {
	Argv []string
	// Stdin is true when the prompt's file is the standard input; otherwise there is nothing to read there.
	Stdin bool
}

// RunsTasks reports whether it runs tasks.
func (h *Harness) RunsTasks() bool { return len(h.Harness.Task) > 0 }

// Task returns how to start one task, whose prompt lies in v.PromptFile. The error is fault.Invalid: the harness runs no tasks, or the prompt
// cannot stand on a command line where the entry wants it there.
func (h *Harness) Task(v Vars, prompt string) (Task, error) {
	if !h.RunsTasks() {
		return Task{}, fault.Newf(fault.Invalid, fault.ReasonNoTasks, "the harness %q runs no tasks", h.Name).
			WithRemedy("write under tmuxd.harnesses." + h.Name + ".task the arguments with which it does one task and exits")
	}
	if h.TaskPrompt == settings.TaskPromptText {
		if strings.ContainsRune(prompt, 0) {
			return Task{}, fault.Newf(fault.Invalid, fault.ReasonBadText,
				"the prompt has a NUL, which cannot stand on the command line that the harness %q wants it on", h.Name).
				WithRemedy("take it out, or set task_prompt to stdin, file or sentence")
		}
		v.Prompt = prompt
	}
	t := Task{Argv: h.command(h.Harness.Task, v), Stdin: h.TaskPrompt == settings.TaskPromptStdin || h.TaskPrompt == settings.TaskPromptFile}
	for _, arg := range t.Argv {
		if len(arg) > maxArgument {
			return Task{}, fault.Newf(fault.Invalid, fault.ReasonTextTooLarge, "the prompt makes an argument of %d bytes, and %d are possible",
				len(arg), maxArgument).WithRemedy("shorten it, or set tmuxd.harnesses." + h.Name + ".task_prompt to stdin, file or sentence")
		}
	}
	return t, nil
}

// sentence is the one sentence that points an agent to its task.
func sentence(promptFile string) string {
	return "Read the file " + promptFile + " and do the task that it describes, completely."
}
