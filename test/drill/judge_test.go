package drill

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/workitem"
)

// The judge is tried on records that show each fault, or it would prove nothing.
func TestTranscripts_ShowWhatWentWrong(t *testing.T) {
	f := &fleet{hosts: []*host{{name: "a", dir: t.TempDir()}, {name: "b", dir: t.TempDir()}}}
	ref, err := workitem.Parse(itemName(0))
	if err != nil {
		t.Fatal(err)
	}
	write := func(h *host, conversation, target string, texts ...string) {
		t.Helper()
		dir := filepath.Join(h.dir, "tmuxd", "harness", "fakeagent", "sessions")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var out []byte
		line := func(fields map[string]any) {
			data, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			out = append(append(out, data...), '\n')
		}
		line(map[string]any{"type": "session_start", "cwd": "/work/" + target, "time": time.Now()})
		for _, text := range texts {
			line(map[string]any{"type": "user", "text": "header\n" + text, "time": time.Now()})
		}
		if err := os.WriteFile(filepath.Join(dir, conversation+".jsonl"), out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(f.hosts[0], "c1", ref.Target(), word(0, 0), word(0, 2), word(0, 1))
	write(f.hosts[1], "c2", ref.Target(), word(0, 2))
	write(f.hosts[1], "c3", "loop-somebody-elses", word(0, 3))
	got, order, crossed, err := transcripts(f)
	if err != nil {
		t.Fatal(err)
	}
	if got[word(0, 0)] != 1 || got[word(0, 2)] != 2 || got[word(0, 4)] != 0 || crossed != 1 {
		t.Errorf("%v, crossed %d", got, crossed)
	}
	if want := []int{0, 2, 1, 2, 3}; !slices.Equal(order[0], want) {
		t.Errorf("the order is %v, want %v", order[0], want)
	}
}

func TestNemesis_TellsWhomItKilledFromWhomSomebodyElseDid(t *testing.T) {
	n := &nemesis{killed: map[int]bool{1 << 30: true}, seen: map[int]bool{1 << 30: true, 1<<30 + 1: true, os.Getpid(): true}}
	if got := fmt.Sprint(n.harmed()); got != fmt.Sprint([]int{1<<30 + 1}) {
		t.Errorf("%s", got)
	}
}
