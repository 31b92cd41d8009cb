package view

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// RunState says in a word how a run stands.
func RunState(r *teamv1.Run) string {
	word := strings.ToLower(strings.TrimPrefix(r.GetPhase().String(), "PHASE_"))
	if r.GetProblem() != "" {
		word = "unreadable"
	}
	if r.GetEnding() {
		return word + ", ending"
	}
	return word
}

func runTone(r *teamv1.Run) Tone {
	switch {
	case r.GetProblem() != "":
		return Bad
	case r.GetPhase() == teamv1.Phase_PHASE_COMPLETE:
		return Good
	case r.GetPhase() == teamv1.Phase_PHASE_FAILED:
		return Bad
	case r.GetPhase() == teamv1.Phase_PHASE_CANCELLED || r.GetEnding() || r.GetWaits() != "":
		return Warn
	}
	return Plain
}

// taskState says in words how a task stands.
func taskState(t *teamv1.TaskStatus) Cell {
	switch t.GetState() {
	case teamv1.TaskState_TASK_STATE_PENDING:
		return Cell{Text: "pending", Tone: Dim}
	case teamv1.TaskState_TASK_STATE_IN_PROGRESS:
		return Cell{Text: "in progress", Tone: Bold}
	case teamv1.TaskState_TASK_STATE_COMPLETED:
		return Cell{Text: "completed", Tone: Good}
	case teamv1.TaskState_TASK_STATE_FAILED:
		return Cell{Text: "failed", Tone: Bad}
	case teamv1.TaskState_TASK_STATE_BLOCKED:
		return Cell{Text: "blocked", Tone: Warn}
	case teamv1.TaskState_TASK_STATE_UNSPECIFIED:
	}
	return Cell{Text: "corrupt", Tone: Bad}
}

// Runs writes a table of runs.
func (p Printer) Runs(runs []*teamv1.Run) { p.Write(p.RunsTable(runs)) }

// RunsTable is the table of runs.
func (p Printer) RunsTable(runs []*teamv1.Run) Table {
	rows := make([][]Cell, 0, len(runs))
	for _, r := range runs {
		held := ""
		switch {
		case r.GetPhase() >= teamv1.Phase_PHASE_COMPLETE:
		case r.GetCoordinated():
			held = "yes"
		default:
			held = "no"
		}
		rows = append(rows, []Cell{Text(r.GetTeam()), {Text: RunState(r), Tone: runTone(r)}, p.when(r.GetPhaseSince()), Text(fmt.Sprint(r.GetTasks())), Text(held),
			Text(r.GetWho()), Text(r.GetRunId()), Text(cmp.Or(r.GetProblem(), r.GetWaits(), r.GetDetail(), r.GetReason()))})
	}
	return Table{"there is no run", []string{"TEAM", "PHASE", "SINCE", "TASKS", "COORDINATED", "BY", "RUN", "DETAIL"}, rows}
}

// Run writes how a run stands.
func (p Printer) Run(whole *teamv1.GetRunResponse) {
	p.RunHead(whole.GetRun())
	p.Line("")
	p.Write(p.TasksTable(whole.GetTasks(), whole.GetAttempts()))
	if n := owed(whole.GetAttempts()); n > 0 {
		p.Line("")
		p.Line("%s still to be stopped at hosts that do not answer", Count(n, "attempt is", "attempts are"))
	}
	p.branches(whole.GetAttempts())
	for _, a := range whole.GetAttempts() {
		if a.GetSocketPath() != "" {
			p.Line("")
			p.Line("look at %s on %s with: tmux -N -S %s attach -r", a.GetTaskId(), Clean(a.GetHost()), Quote(a.GetSocketPath()))
		}
	}
}

func owed(attempts []*teamv1.AttemptStatus) (n int) {
	for _, a := range attempts {
		if a.GetOwed() {
			n++
		}
	}
	return n
}

// RunHead writes the lines above the tasks.
func (p Printer) RunHead(r *teamv1.Run) {
	p.Line("%s  %s  %s of %d tasks completed, %d of %d fix loops spent", p.Paint(Bold, Clean(r.GetTeam())), p.Paint(runTone(r), RunState(r)),
		fmt.Sprint(r.GetCompleted()), r.GetTasks(), r.GetFixLoops(), r.GetMaxFixLoops())
	p.Line("run %s, begun %s%s", r.GetRunId(), p.When(r.GetCreateTime()), byWhom(r.GetWho()))
	switch {
	case r.GetEndTime() != nil:
		p.Line("ended %s%s: %s", p.When(r.GetEndTime()), byWhom(r.GetEndedBy()), p.Clip(cmp.Or(r.GetDetail(), r.GetReason()), 300))
	case r.GetCoordinated():
		p.Line("coordinated by %s", Clean(r.GetCoordinator()))
	default:
		p.Line("%s", p.Paint(Warn, "nobody coordinates it now"))
	}
	if r.GetEnding() {
		p.Line("%s", p.Paint(Warn, "it is being ended"+byWhom(r.GetEndedBy())+": "+p.Clip(cmp.Or(r.GetDetail(), r.GetReason()), 300)))
	}
	if w := r.GetProblem(); w != "" {
		p.Line("%s", p.Paint(Bad, p.Clip(w, 400)))
	} else if w := r.GetWaits(); w != "" {
		p.Line("%s", p.Paint(Warn, "waits: "+p.Clip(w, 300)))
	}
}

func byWhom(who string) string {
	if who == "" {
		return ""
	}
	return " by " + Clean(who)
}

// TasksTable is the table of tasks with their workers.
func (p Printer) TasksTable(tasks []*teamv1.TaskStatus, attempts []*teamv1.AttemptStatus) Table {
	last := map[string]*teamv1.AttemptStatus{}
	for _, a := range attempts {
		last[a.GetTaskId()] = a
	}
	rows := make([][]Cell, 0, len(tasks))
	for _, t := range tasks {
		a := last[t.GetTaskId()]
		if strings.HasPrefix(t.GetTaskId(), "@") && a == nil {
			continue // a step that was not come to yet
		}
		number := ""
		if t.GetNumber() > 1 {
			number = fmt.Sprint(t.GetNumber())
		}
		why := t.GetWhy()
		if n := a.GetUncommitted(); n > 0 {
			why = strings.TrimPrefix(why+"; ", "; ") + Count(int(n), "file", "files") + " not committed"
		}
		rows = append(rows, []Cell{Text(t.GetTaskId()), taskState(t), Text(number), Text(a.GetWorker()), Text(p.span(a)), Text(strings.Join(t.GetNeeds(), " ")),
			Text(why)})
	}
	return Table{"it has no tasks", []string{"TASK", "STATE", "TRY", "WORKER", "TIME", "NEEDS", "LAST"}, rows}
}

// span is how long an attempt has taken.
func (p Printer) span(a *teamv1.AttemptStatus) string {
	from := a.GetStartTime()
	if from == nil {
		from = a.GetClaimTime()
	}
	if from == nil {
		return ""
	}
	until := p.Now
	if a.GetState() == "ended" && a.GetEndTime() != nil {
		until = a.GetEndTime().AsTime()
	}
	return Short(max(until.Sub(from.AsTime()), 0).Round(time.Second))
}

// RunHistory writes what became of a run.
func (p Printer) RunHistory(entries []*teamv1.HistoryEntry) {
	p.Line("")
	p.Write(p.RunHistoryTable(entries))
}

// RunHistoryTable is the table of what became of a run.
func (p Printer) RunHistoryTable(entries []*teamv1.HistoryEntry) Table {
	rows := make([][]Cell, 0, len(entries))
	for _, e := range entries {
		what := e.GetWhat()
		if what == "phase" {
			what = e.GetFrom() + " → " + e.GetTo()
		}
		rows = append(rows, []Cell{p.when(e.GetTime()), Text(what), Text(e.GetTaskId()), Text(strings.Join(slices.DeleteFunc([]string{e.GetReason(), e.GetDetail(), e.GetWho()},
			func(s string) bool { return s == "" }), ", "))})
	}
	return Table{"nothing is recorded", []string{"WHEN", "WHAT", "TASK", "DETAIL"}, rows}
}

// RunSummary writes what came of a run that is over.
func (p Printer) RunSummary(whole *teamv1.GetRunResponse) {
	r := whole.GetRun()
	counts := map[string]int{}
	for _, t := range whole.GetTasks() {
		if !strings.HasPrefix(t.GetTaskId(), "@") {
			counts[taskState(t).Text]++
		}
	}
	var words []string
	for _, w := range []string{"completed", "failed", "blocked", "pending"} {
		if counts[w] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[w], w))
		}
	}
	p.Line("")
	p.Line("%s: %s in %s: %s; %s, %d of %d fix loops", Clean(r.GetTeam()), p.Paint(runTone(r), RunState(r)), Short(age(r.GetCreateTime(), r.GetEndTime()).Round(time.Second)),
		strings.Join(words, ", "), Count(len(whole.GetAttempts()), "attempt", "attempts"), r.GetFixLoops(), r.GetMaxFixLoops())
	for _, t := range whole.GetTasks() {
		if t.GetState() == teamv1.TaskState_TASK_STATE_FAILED {
			p.Line("  %s failed: %s", t.GetTaskId(), p.Clip(t.GetWhy(), 200))
		}
	}
	if d := r.GetDetail(); d != "" {
		p.Line("  %s", p.Clip(d, 300))
	}
	p.branches(whole.GetAttempts())
}

// branches writes where the work is, when the run has working trees: nothing of it was merged into anything else.
func (p Printer) branches(attempts []*teamv1.AttemptStatus) {
	told := map[string]bool{}
	for _, a := range slices.Backward(attempts) {
		if b := a.GetBranch(); b != "" && a.GetHead() != "" && !told[b] {
			told[b] = true
			left := ""
			if n := a.GetUncommitted(); n > 0 {
				left = ", " + Count(int(n), "file", "files") + " not committed"
			}
			p.Line("  on %s: branch %s at %s in %s%s", Clean(a.GetHost()), Clean(b), Clip(a.GetHead(), 41), Clean(a.GetDirectory()), left)
		}
	}
}

func age(from, to *timestamppb.Timestamp) time.Duration {
	if from == nil || to == nil {
		return 0
	}
	return max(to.AsTime().Sub(from.AsTime()), 0)
}

// Text writes what a program wrote, line by line, each without what a terminal would act on.
func (p Printer) Text(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		p.Line("%s", Clean(strings.ReplaceAll(line, "\t", "    ")))
	}
}

// Board shows a run as it goes: on a terminal a table in its place, elsewhere a line for each change.
type Board struct {
	Printer
	Terminal bool

	lines int
	told  map[string]string
}

// Show shows a run as it is now.
func (b *Board) Show(step *teamv1.WatchRunResponse) {
	if !b.Terminal {
		b.tell(step)
		return
	}
	var out bytes.Buffer
	p := b.Printer
	p.Out = &out
	p.RunHead(step.GetRun())
	p.Line("")
	p.Write(p.TasksTable(step.GetTasks(), step.GetAttempts()))
	if b.lines > 0 {
		fmt.Fprintf(b.Out, "\x1b[%dA\x1b[J", b.lines) //nolint:errcheck // A terminal that is gone has no reader.
	}
	b.lines = bytes.Count(out.Bytes(), []byte("\n"))
	b.Out.Write(out.Bytes()) //nolint:errcheck // likewise
}

// tell writes a line for what has changed.
func (b *Board) tell(step *teamv1.WatchRunResponse) {
	if b.told == nil {
		b.told = map[string]string{}
	}
	news := func(key, now, format string, args ...any) {
		if b.told[key] != now {
			b.told[key] = now
			b.Line(format, args...)
		}
	}
	r := step.GetRun()
	last := map[string]*teamv1.AttemptStatus{}
	for _, a := range step.GetAttempts() {
		last[a.GetTaskId()] = a
	}
	for _, t := range step.GetTasks() {
		state, a := taskState(t).Text, last[t.GetTaskId()]
		if b.told[t.GetTaskId()] == "" && (state == "pending" || state == "completed" && strings.HasPrefix(t.GetTaskId(), "@")) {
			continue
		}
		words := state
		if a != nil && state == "in progress" {
			words += " on " + Clean(a.GetWorker())
		}
		if t.GetNumber() > 1 {
			words += fmt.Sprintf(", try %d", t.GetNumber())
		}
		if w := t.GetWhy(); w != "" && (state == "failed" || state == "completed") {
			words += ": " + b.Clip(w, 200)
		}
		news(t.GetTaskId(), words, "  %s: %s", t.GetTaskId(), words)
	}
	news("", RunState(r), "%s (%d of %d tasks completed)", RunState(r), r.GetCompleted(), r.GetTasks())
	if w := r.GetWaits(); w != "" {
		news("?", w, "  waits: %s", b.Clip(w, 300))
	}
}
