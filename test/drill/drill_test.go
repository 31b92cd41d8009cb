package drill

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/needs"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	"muxpost.dev/muxpost/test/fakeagent/agenttest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

const (
	// items is how many work items get events, and drillTime for how long things break, unless the environment says otherwise.
	items     = 9
	drillTime = 40 * time.Second
	// settleTime is how long everything may take to arrive once nothing breaks any more.
	settleTime = 5 * time.Minute
)

// sent is an event that was taken, in the order of its item.
type sent struct {
	item, n int
	id      string
}

func itemName(i int) string { return fmt.Sprintf("github:octo/widget#%d", i+1) }

func word(i, n int) string { return fmt.Sprintf("drill-event-%d-%d-end", i, n) }

var words = regexp.MustCompile(`drill-event-(\d+)-(\d+)-end`)

func TestDrill_NothingIsLostOrDoubledWhateverBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute or two")
	}
	seed, during := uint64(rand.Uint32()), drillTime
	if s := os.Getenv("DRILL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("DRILL_TIME"); s != "" {
		var err error
		if during, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d: DRILL_SEED=%d chooses the same faults", seed, seed)
	url := dbtest.NewURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	dir, err := os.MkdirTemp("/tmp", "mux") // a socket's address is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := newFleet(dir, programs(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := newNemesis(f, pool, seed, t.Logf)
	ctx, stop := context.WithTimeout(t.Context(), during)
	defer stop()
	var all []sent
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range items {
		group.Go(func() {
			for _, s := range load(ctx, f, i, rand.New(rand.NewPCG(seed, uint64(i)))) {
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			for _, h := range f.hosts {
				n.living(ctx, h)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	n.run(ctx)
	group.Wait()
	t.Logf("broken: %v", n.faults)
	judge(t, f, n, all, seed)
}

// programs builds what runs.
func programs(t *testing.T) string {
	t.Helper()
	for _, needed := range []string{"tmux", "go"} {
		needs.Program(t, needed)
	}
	dir := t.TempDir()
	for name, pkg := range map[string]string{"muxpost-tmuxd": "services/tmuxd", "muxpost-dispatcher": "services/dispatcher", "muxpost-poller": "services/poller",
		"muxpost-exec": "cmd/muxpost-exec", "fakeagent": "test/fakeagent"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "muxpost.dev/muxpost/"+pkg).CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// load submits events of one item, one after another, until ctx ends, and each until a poller has taken it.
func load(ctx context.Context, f *fleet, item int, r *rand.Rand) (out []sent) {
	for n := 0; ctx.Err() == nil; n++ {
		request := &pollerv1.SubmitRequest{WorkItem: itemName(item), Text: "please look at " + word(item, n), IdempotencyKey: word(item, n)}
		for {
			// It is seen through: an event that was taken counts, whether the answer came or not.
			answer, err := f.submit[r.IntN(len(f.submit))].Submit(context.WithoutCancel(ctx), request)
			if err == nil {
				out = append(out, sent{item, n, answer.GetEntry().GetDeliveryId()})
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(500+r.IntN(1500)) * time.Millisecond):
		}
	}
	return out
}

// judge waits until every event has ended, and counts from what the agents themselves recorded.
func judge(t *testing.T, f *fleet, n *nemesis, all []sent, seed uint64) {
	t.Helper()
	states := settled(t, f, all)
	got, order, crossed, err := transcripts(f)
	if err != nil {
		t.Fatal(err)
	}
	lost, doubled, disordered, unexplained, unconfirmed := 0, 0, 0, 0, 0
	for _, s := range all {
		e := states[s.id]
		switch times := got[word(s.item, s.n)]; {
		case e.GetState() == pollerv1.LedgerState_LEDGER_STATE_DELIVERED && times == 0:
			lost++
			t.Errorf("%s: the ledger says delivered, and no agent has it", word(s.item, s.n))
		case times > 1:
			doubled++
			t.Errorf("%s: %d times", word(s.item, s.n), times)
		case e.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED:
			if e.GetReason() == "unconfirmed" || e.GetState() == pollerv1.LedgerState_LEDGER_STATE_SETTLED {
				unconfirmed++
			} else {
				unexplained++
			}
			t.Errorf("%s ended as %v (%s): %s", word(s.item, s.n), e.GetState(), e.GetReason(), e.GetDetail())
		}
	}
	for item, ns := range order {
		if !slices.IsSorted(ns) {
			disordered++
			t.Errorf("%s got its events in the order %v", itemName(item), ns)
		}
	}
	harmed := n.harmed()
	if crossed > 0 || len(harmed) > 0 {
		t.Errorf("%d in another item's conversation, agents harmed: %v", crossed, harmed)
	}
	fmt.Printf("drill: seed=%d events=%d faults=%d lost=%d doubled=%d crossed=%d disordered=%d harmed=%d unexplained=%d unconfirmed=%d\n", seed, len(all),
		total(n.faults), lost, doubled, crossed, disordered, len(harmed), unexplained, unconfirmed)
}

func total(counts map[string]int) (sum int) {
	for n := range maps.Values(counts) {
		sum += n
	}
	return sum
}

// settled waits until every event has ended, and returns the rows of the ledger.
func settled(t *testing.T, f *fleet, all []sent) map[string]*pollerv1.LedgerEntry {
	t.Helper()
	out := map[string]*pollerv1.LedgerEntry{}
	open, last, began := "", "", time.Now()
	for limit := began.Add(settleTime); time.Now().Before(limit); time.Sleep(300 * time.Millisecond) {
		open = ""
		for i := range items {
			r, err := f.submit[0].ListLedger(t.Context(), &pollerv1.ListLedgerRequest{WorkItem: itemName(i), PageSize: 500})
			if err != nil {
				open = err.Error()
				break
			}
			for _, e := range r.GetEntries() {
				if out[e.GetDeliveryId()] = e; !ended(e.GetState()) {
					open = fmt.Sprintf("%s is %v (%s): %s", e.GetDeliveryId(), e.GetState(), e.GetReason(), e.GetDetail())
				}
			}
		}
		if open == "" {
			t.Logf("everything has ended %v after the last fault was mended; the last to end was %s", time.Since(began).Round(time.Second), last)
			return out
		}
		last = open
	}
	t.Errorf("not everything has ended within %v: %s", settleTime, open)
	return out
}

func ended(s pollerv1.LedgerState) bool {
	switch s {
	case pollerv1.LedgerState_LEDGER_STATE_PENDING, pollerv1.LedgerState_LEDGER_STATE_LEASED, pollerv1.LedgerState_LEDGER_STATE_HELD,
		pollerv1.LedgerState_LEDGER_STATE_UNSPECIFIED:
		return false
	}
	return true
}

// transcripts reads what the agents of all hosts recorded: how often each event is there, the events of each item in the order in which they came,
// and how many are in the conversation of another item.
func transcripts(f *fleet) (got map[string]int, order map[int][]int, crossed int, err error) {
	got, order = map[string]int{}, map[int][]int{}
	type at struct {
		time time.Time
		n    int
	}
	times := map[int][]at{}
	for _, h := range f.hosts {
		home := filepath.Join(h.dir, "tmuxd", "harness", "fakeagent")
		files, err := filepath.Glob(filepath.Join(home, "sessions", "*.jsonl"))
		if err != nil {
			return nil, nil, 0, err
		}
		for _, file := range files {
			lines, err := agenttest.Conversation{Home: home, Session: strings.TrimSuffix(filepath.Base(file), ".jsonl")}.Lines()
			if err != nil {
				return nil, nil, 0, err
			}
			target := ""
			for _, l := range lines {
				if l.CWD != "" {
					target = filepath.Base(l.CWD)
				}
				if l.Type != "user" {
					continue
				}
				for _, m := range words.FindAllStringSubmatch(l.Text, -1) {
					i, _ := strconv.Atoi(m[1])
					n, _ := strconv.Atoi(m[2])
					got[word(i, n)]++
					times[i] = append(times[i], at{l.Time, n})
					if ref, err := workitem.Parse(itemName(i)); err != nil || ref.Target() != target {
						crossed++
					}
				}
			}
		}
	}
	for i, all := range times {
		slices.SortStableFunc(all, func(a, b at) int { return a.time.Compare(b.time) })
		for _, a := range all {
			order[i] = append(order[i], a.n)
		}
	}
	return got, order, crossed, nil
}
