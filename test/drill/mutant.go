package drill

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Patch replaces one piece of a source file by another. The piece stands there once, or the patch is out of date.
type Patch struct{ File, Old, New string }

// Mutant is the product with one guard switched off. Nothing of it is in the product's sources: the compiler is told to read other files
// (-overlay), so that there is no switch that somebody could find on.
type Mutant struct {
	// Name is the guard, and What is what it holds off.
	Name, What string
	// Programs are those in which it is switched off.
	Programs []string
	// Slow widens the moment that the guard is about, and does no harm while it is on. Off switches it off.
	Slow, Off []Patch
	// Args make the drill look where it would show; Notice is one of the counts that must then not be zero.
	Args, Notice []string
	// Tests are arguments of go test, for a guard that others stand behind, so that the whole product does no harm without it.
	Tests []string
}

const (
	tmuxd      = "muxpost-tmuxd"
	dispatcher = "muxpost-dispatcher"
	poller     = "muxpost-poller"

	claimFile  = "services/poller/internal/store/claim.go"
	submitFile = "services/poller/internal/poll/submit.go"
	pasteFile  = "services/tmuxd/internal/host/paste.go"
	handFile   = "services/tmuxd/internal/host/delivery.go"
	stateFile  = "services/tmuxd/internal/host/state.go"
	spawnFile  = "services/tmuxd/internal/host/spawn.go"
	actFile    = "services/tmuxd/internal/tmux/act.go"
	guardFile  = "services/tmuxd/internal/tmux/guard.go"
)

// slowSubmit and slowPaste put half a second between the last look and the act.
var (
	slowSubmit = Patch{pasteFile, "failpoint.Hit(\"tmuxd.paste.submitting\")", "time.Sleep(500 * time.Millisecond)\n\tfailpoint.Hit(\"tmuxd.paste.submitting\")"}
	slowPaste  = Patch{pasteFile, "failpoint.Hit(\"tmuxd.paste.intended\")", "time.Sleep(500 * time.Millisecond)\n\tfailpoint.Hit(\"tmuxd.paste.intended\")"}
)

// breakingOnly asks for many faults of some kinds, one at every second step.
func breakingOnly(kinds ...Kind) []string {
	var words []string
	for _, k := range kinds {
		words = append(words, string(k))
	}
	return []string{"-gap", "2", "-kinds", strings.Join(words, ",")}
}

// Mutants are all guards that are switched off in turn.
func Mutants() []Mutant {
	return []Mutant{
		{Name: "one id for an event", What: "a webhook and a look that tell the same", Programs: []string{poller},
			Off:  []Patch{{"services/poller/internal/poll/events.go", "ObjectID: objectID, Revision: revision}", "ObjectID: objectID + time.Now().Format(\"-05\"), Revision: revision}"}},
			Args: []string{"-gap", "0"}, Notice: []string{"doubled"}},
		{Name: "idempotency key", What: "a message that is sent again because its answer was lost", Programs: []string{poller},
			Slow: []Patch{{submitFile, "	\"log/slog\"\n", "	\"log/slog\"\n	\"time\"\n"},
				{submitFile, "	return row, existed, err\n", "	time.Sleep(time.Second)\n	return row, existed, err\n"}},
			Off:  []Patch{{submitFile, "if m.IdempotencyKey == \"\" {", "if true {"}},
			Args: breakingOnly(KillPoller), Notice: []string{"doubled"}},
		{Name: "order of a claim", What: "a later event that is due while an earlier one waits", Programs: []string{poller},
			Off: []Patch{
				{claimFile, "        and (w.reason = '', w.upstream_at, w.upstream_order, w.id) < (e.reason", "        and (w.reason = '', w.upstream_at, w.upstream_order, w.id) > (e.reason"},
				{claimFile, "desc, reason = '', upstream_at, upstream_order, id\n)`", "desc, reason = '', upstream_at desc, upstream_order desc, id desc\n)`"},
			},
			Args: breakingOnly(Dialog, Draft, KillAgent, StopServer), Notice: []string{"disordered"}},
		{Name: "silence spends no try", What: "hosts that are away", Programs: []string{poller},
			Off:  []Patch{{"core/ledger/ledger.go", "	case Silent:\n	}", "	case Silent:\n		if p.Tries++; p.Tries >= p.Budget {\n			return p.end(GaveUp, reason)\n		}\n	}"}},
			Args: breakingOnly(CutAll, StopServer, KillDispatcher, Refuse), Notice: []string{"unexplained", "looped"}},
		{Name: "phase of a delivery", What: "a repeat whose first try was typed, and not answered", Programs: []string{tmuxd},
			Off: []Patch{
				{handFile, "	if phase == session.Taken {\n", "	phase = session.None\n	if phase == session.Taken {\n"},
				{handFile, "	d.ring = s.ring()\n", "	d.ring = session.Ring{}\n"},
				{actFile, "	phase := not(hasAny(p.ID))\n	if p.Again", "	phase := \"1\"\n	if p.Again"},
			},
			Args: append(breakingOnly(KillDispatcher, CutAll, KillTmuxd), "-gap", "8", "-settle", "120s"), Notice: []string{"doubled"}},
		{Name: "what may have arrived is no first prompt", What: "an agent that died after it had the event", Programs: []string{tmuxd, dispatcher},
			// The agent's own record stands before the guard: whoever can look it up need not guess.
			Slow: []Patch{{pasteFile, "	failpoint.Hit(\"tmuxd.paste.submitted\")\n", "	failpoint.Hit(\"tmuxd.paste.submitted\")\n	time.Sleep(2 * time.Second)\n"},
				{stateFile, "		p, _ = h.evidence(hn, s.target, e.Directory, e.ID, &search{})\n", "		_ = hn\n"}},
			Off:  []Patch{{"core/session/phase.go", "	return p == Submitted || p == Taken || p == Boot || p == Handing", "	return false"}},
			Args: append(breakingOnly(KillAgent, KillTmuxd), "-gap", "1", "-settle", "90s"), Notice: []string{"doubled"},
			Tests: []string{"./services/tmuxd", "-run", "^TestEvidence_"}},
		{Name: "look at the composer before a draft is typed over", What: "what a person is typing", Programs: []string{tmuxd},
			Off:  []Patch{{pasteFile, "case reading.Text != \"\":", "case false:"}},
			Args: breakingOnly(Draft), Notice: []string{"merged", "lost"}},
		{Name: "text alone in the composer before the CR", What: "what a person types behind it", Programs: []string{tmuxd},
			Slow: []Patch{{pasteFile, "			settled = true\n", "			settled = true\n			time.Sleep(500 * time.Millisecond)\n"}},
			Off:  []Patch{{pasteFile, "case reading.Ready && shows == harness.ShowsText && !p.unread():", "case reading.Ready && shows != harness.ShowsNothing && !p.unread():"}},
			Args: breakingOnly(Draft), Notice: []string{"merged"}},
		{Name: "cursor in the guard of the CR", What: "what a person types between the last look and the CR", Programs: []string{tmuxd},
			Slow: []Patch{slowSubmit},
			Off:  []Patch{{guardFile, "	return append(out, cursorAt(l))", "	return out"}},
			Args: breakingOnly(Draft), Notice: []string{"merged"}},
		{Name: "dialogs in the guard of the CR", What: "a dialog that opens between the last look and the CR", Programs: []string{tmuxd},
			Slow: []Patch{slowSubmit},
			Off:  []Patch{{actFile, "condition(g, append(unanswered(l), hasPhase(id, from))...), look: &l,", "condition(g, hasPhase(id, from)), look: nil,"}},
			Args: breakingOnly(Dialog), Notice: []string{"harmed"}},
		{Name: "dialogs before typing", What: "a dialog that is open", Programs: []string{tmuxd},
			Off: []Patch{
				{pasteFile, "	case reading.Dialog:\n		return hold(HeldDialog, \"a dialog waits for a person\"), true\n", ""},
				{pasteFile, "	case !reading.Ready:\n		return hold(HeldNotReady, \"the composer is not there: the agent is starting, or shows something else\"), true\n", ""},
				{pasteFile, "case reading.Ready && shows == harness.ShowsText && !p.unread():", "case true:"},
				{guardFile, "	var out []string\n	for _, d := range l.Dialogs {", "	return []string{\"1\"}\n	var out []string\n	for _, d := range l.Dialogs {"},
			},
			Args: breakingOnly(Dialog), Notice: []string{"harmed"}},
		{Name: "whose a pane is", What: "a pane of a person's beside the agent's", Programs: []string{tmuxd},
			Off: []Patch{
				{actFile, "\"paste-buffer -p -r -d -b \" + buffer + \" -t \" + word(g)", "\"paste-buffer -p -r -d -b \" + buffer + \" -t '\" + g.Session + \":'\""},
				{actFile, "\"\\r\" ; paste-buffer -r -d -b ` + buffer + \" -t \" + word(g)", "\"\\r\" ; paste-buffer -r -d -b ` + buffer + \" -t '\" + g.Session + \":'\""},
			},
			Args: breakingOnly(Split), Notice: []string{"crossed", "lost", "unexplained"},
			Tests: []string{"./services/tmuxd", "-run", "^(TestPaste_GoesToTheAgentsPaneAlone|TestState_.*)$"}},
		{Name: "unknown is not absent", What: "a tmux server that does not answer", Programs: []string{tmuxd},
			Off: []Patch{
				{stateFile, "	state, flags, why := session.Judge(seen)\n", "	state, flags, why := session.Judge(seen)\n	if state == session.Unknown {\n		state, flags = session.Absent, 0\n	}\n"},
				{spawnFile, "	return failed(\"server_remains\", \"the old tmux server has no session left and does not end\"), false, nil", "	return SpawnResult{}, true, nil"},
			},
			Args: append(breakingOnly(StopServer, LoseSocket), "-items", "2"), Notice: []string{"harmed", "looped", "lost"},
			Tests: []string{"./services/tmuxd", "-run", "^TestState_"}},
		{Name: "fencing token", What: "an act of a dispatcher whose lease is over", Programs: []string{tmuxd},
			Off: []Patch{
				{"services/tmuxd/internal/host/fence.go", "	if token < seen {", "	if false {"},
				{guardFile, "		\"#{e|<=:#{\" + optFence + \"},\" + strconv.FormatInt(g.Token, 10) + \"}\",\n", ""},
			},
			Args: breakingOnly(StopDispatcher, Cut, KillPoller), Notice: []string{"doubled", "disordered"},
			Tests: []string{"./services/tmuxd", "-run", "^TestFence_AnOlderTokenNeverActs$"}},
		{Name: "generation", What: "a command that tmux runs late", Programs: []string{tmuxd},
			Off:  []Patch{{guardFile, "		equal(optGeneration, g.Generation),\n		equal(\"pane_dead\"", "		equal(\"pane_dead\""}},
			Args: breakingOnly(StopServer, KillTmuxd), Notice: []string{"doubled"},
			Tests: []string{"./services/tmuxd/internal/tmux", "-run", "^TestPaste_"}},
		{Name: "lease of an item", What: "two dispatchers at one item", Programs: []string{dispatcher},
			Slow: []Patch{{"core/ledger/ledger.go", "	LeaseTime = 30 * time.Second", "	LeaseTime = time.Second"}},
			Off:  []Patch{{"services/dispatcher/internal/store/store.go", "where l.holder = '' or l.until <= clock_timestamp() or l.holder = excluded.holder\n", ""}},
			Args: breakingOnly(StopServer, Cut, KillPoller, KillAgent), Notice: []string{"doubled", "harmed"},
			Tests: []string{"./services/dispatcher/internal/store", "-run", "^TestTakeLease_"}},
	}
}

// Root is the directory of the sources.
func Root() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Root}}", module+"test/drill").Output() //nolint:noctx // a moment
	return strings.TrimSpace(string(out)), err
}

// Overlay writes patched sources into a directory, and returns the flag that has the compiler read them.
func Overlay(dir, root string, patches []Patch) (flag string, err error) {
	replace, texts := map[string]string{}, map[string]string{}
	for _, p := range patches {
		file := p.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(root, file)
		}
		text, known := texts[file]
		if !known {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text = string(data)
		}
		if n := strings.Count(text, p.Old); n != 1 {
			return "", fmt.Errorf("%s has %q at %d places, not one: the patch is out of date", p.File, p.Old, n)
		}
		texts[file] = strings.Replace(text, p.Old, p.New, 1)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for file, text := range texts {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return "-overlay=" + overlay, os.WriteFile(overlay, data, 0o600)
}

// Clock patches the standard library so that the wall clock of our programs can be stepped, as the machine's could be: the file that
// clockVariable names says by how many seconds. What counts time that passes goes on undisturbed, as it does when a clock is set.
func Clock() ([]Patch, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output() //nolint:noctx // a moment
	file := filepath.Join(strings.TrimSpace(string(out)), "src/time/time.go")
	return []Patch{
		{file, "	\"math/bits\"\n", "	\"math/bits\"\n	\"sync/atomic\"\n	\"syscall\"\n"},
		{file, "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {\n		return Time{uint64(nsec), sec + unixToInternal, Local}",
			"	sec, nsec, mono := runtimeNow()\n	sec += stepped.Load()\n	if mono == 0 {\n		return Time{uint64(nsec), sec + unixToInternal, Local}"},
		{file, "func unixTime(sec int64, nsec int32) Time {", clockSource + "func unixTime(sec int64, nsec int32) Time {"},
	}, err
}

// clockSource is added to that file. Now may be called where nothing can be read, so the file is looked at beside it.
const clockSource = `// stepped is by how many seconds the drill has stepped the clock.
var stepped atomic.Int64

func init() {
	if name, ok := syscall.Getenv("` + clockVariable + `"); ok {
		go func() {
			for ; ; Sleep(20 * Millisecond) {
				stepped.Store(readStep(name))
			}
		}()
	}
}

func readStep(name string) (seconds int64) {
	file, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	var text [16]byte
	n, _ := syscall.Read(file, text[:])
	syscall.Close(file)
	sign := int64(1)
	for _, c := range text[:max(n, 0)] {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			seconds = seconds*10 + int64(c-'0')
		}
	}
	return sign * seconds
}

`
