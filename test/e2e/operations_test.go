package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"muxpost.dev/muxpost/internal/needs"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakegithub"
	"muxpost.dev/muxpost/test/stack"
)

// recipe is one fenced block of a document.
type recipe struct {
	line int
	// with are the words behind "sh": "curl" or "grpcurl" when it is for one of them alone, "stream" when it goes on until interrupted, "yours" when
	// it stands for what a reader has; in docs/backup.md when it is for.
	with, text string
}

func (r recipe) has(word string) bool { return strings.Contains(" "+r.with+" ", " "+word+" ") }

// recipes are the blocks of a document, of which it has so many at least.
func recipes(t *testing.T, name string, least int) (all []recipe) {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for _, m := range regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$").FindAllStringSubmatchIndex(doc, -1) {
		lang, with, _ := strings.Cut(doc[m[2]:m[3]], " ")
		if lang != "sh" {
			t.Errorf("docs/%s:%d: a block that is not run", name, strings.Count(doc[:m[0]], "\n")+1)
		}
		all = append(all, recipe{strings.Count(doc[:m[0]], "\n") + 1, with, doc[m[4]:m[5]]})
	}
	if len(all) < least {
		t.Fatalf("only %d blocks were found", len(all))
	}
	return all
}

func TestOperations_EveryMethodHasARecipe(t *testing.T) {
	var text string
	for _, r := range recipes(t, "operations.md", 20) {
		text += r.text
	}
	for name, service := range map[string]protoreflect.ServiceDescriptor{
		"dispatcher": dispatcherv1.File_muxpost_dispatcher_v1_dispatcher_proto.Services().ByName("DispatcherService"),
		"poller":     pollerv1.File_muxpost_poller_v1_poller_proto.Services().ByName("PollerService"),
	} {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i).Name()
			// What the poller and hosts say to the dispatcher; what a person sends goes through the ledger.
			others := method == "Deliver" || method == "Enroll" || method == "Renew"
			if call := fmt.Sprintf("%s %s '", name, method); !others && !strings.Contains(text, call) {
				t.Errorf("docs/operations.md has no %s…", call)
			}
		}
	}
}

func TestOperations_TheRecipesWork(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "grpcurl"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			needs.Program(t, "curl")
			path := os.Getenv("PATH")
			if tool == "grpcurl" {
				path = filepath.Dir(needs.Tool(t, "grpcurl")) + ":" + path
			}
			seed := issue()
			seed.Repos[0].Issues = append(seed.Repos[0].Issues, fakegithub.Issue{Number: number + 1, Title: "A pull request", Author: stack.Author, PullRequest: true})
			w := start(t, seed, nil)
			row, _ := w.delivered(0)
			// From now on nobody else gets an agent, so that what comes for others is dropped.
			w.configure("harness: fakeagent", "harness: fakeagent\n  first_spawn: never")
			w.dispatcherDies()
			k := &kitchen{world: w, delivered: row.GetDeliveryId(), environ: append(os.Environ(), "PATH="+path, "run="+w.Dir, "item="+item,
				"pull="+stack.Item(number+1))}
			for _, r := range recipes(t, "operations.md", 20) {
				switch other := map[string]string{"curl": "grpcurl", "grpcurl": "curl"}[tool]; {
				case r.has("yours") || r.has(other):
				case strings.Contains(r.text, "call() {"):
					k.functions = r.text
				default:
					k.cook(r)
				}
			}
		})
	}
}

// kitchen tries recipes on a stack.
type kitchen struct {
	*world
	environ   []string
	functions string
	// delivered is a delivery that is in its conversation.
	delivered string
}

// dropped makes a delivery that was dropped: the opening of another item.
func (k *kitchen) dropped() string {
	k.t.Helper()
	number, err := k.Open(k.ctx, stack.Author, "another")
	if err != nil {
		k.t.Fatal(err)
	}
	row, err := k.WaitEvent(k.ctx, stack.Item(number), 0)
	if err != nil || row.GetState() != pollerv1.LedgerState_LEDGER_STATE_DROPPED {
		k.t.Fatalf("%v, %v", row, err)
	}
	return row.GetDeliveryId()
}

// waiting makes a delivery that waits for the end of a pause of all.
func (k *kitchen) waiting() string {
	k.t.Helper()
	k.says("", "pause", "--all")
	other := stack.Item(99)
	k.says("", "send", other, "not that soon")
	var id string
	k.until("an event waits for the end of the pause", func() bool {
		rows, err := k.Events(k.ctx, other)
		if err != nil || len(rows) == 0 || rows[0].GetReason() != "paused" {
			return false
		}
		id = rows[0].GetDeliveryId()
		return true
	})
	return id
}

// cook runs one recipe.
func (k *kitchen) cook(r recipe) {
	k.t.Helper()
	delivery := k.delivered
	if regexp.MustCompile(`Retry|Reopen|Settle`).MatchString(r.text) {
		delivery = k.dropped()
	}
	if strings.Contains(r.text, "Cancel '") {
		delivery = k.waiting()
		defer k.says("", "unpause", "--all")
	}
	if strings.Contains(r.text, "InviteHost") {
		k.says("", "ca", "init")
	}
	if strings.Contains(r.text, "StopSession") {
		if _, err := k.WaitEvent(k.ctx, item, 1); err != nil { // what was sent by hand is under way, and is not stopped in the middle
			k.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", k.functions+r.text)
	cmd.Env = append(k.environ, "delivery="+delivery)
	cmd.Dir = k.Dir
	if r.has("stream") {
		k.begins(cmd, r)
		return
	}
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) == 0 {
		k.t.Errorf("docs/operations.md:%d: %v\n%s%s", r.line, err, r.text, out)
	}
}

// begins runs a recipe that goes on, until it has said something.
func (k *kitchen) begins(cmd *exec.Cmd, r recipe) {
	k.t.Helper()
	cmd.Args[3] = strings.Replace(cmd.Args[3], "call() { grpcurl", "call() { exec grpcurl", 1) // to end it with the shell
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	said := make([]byte, 200)
	n, err := out.Read(said)
	_ = cmd.Process.Kill() // it may have ended by itself, which what it said shows
	_ = cmd.Wait()
	if text := string(said[:n]); err != nil || !strings.HasPrefix(text, "{") {
		k.t.Errorf("docs/operations.md:%d: %v\n%s%s", r.line, err, r.text, text)
	}
}
