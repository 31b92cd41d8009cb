package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"sync"
	"time"
)

const (
	// items is how many work items there are, each in a repository of its own, so that both hosts get some.
	items = 8
	// every is the time between two events of an item.
	every = 2 * time.Second
)

func item(i int) string { return fmt.Sprintf("github:octo/widget-%d#7", i) }

// word is what the n-th event of an item says, and nothing else does.
func word(i, n int) string { return fmt.Sprintf("(event %d of %d)", n, i) }

var words = regexp.MustCompile(`\(event (\d+) of (\d+)\)`)

// senders send events, one after the other for each item, whatever happens to the stack.
type senders struct {
	s stack
	// quit ends the sending with the events under way, abandon without them.
	quit, abandon context.CancelFunc
	done          sync.WaitGroup

	mu   sync.Mutex
	sent [items]int
}

func startSenders(ctx context.Context, s stack) *senders {
	ctx, abandon := context.WithCancel(ctx)
	sending, quit := context.WithCancel(ctx)
	out := &senders{s: s, quit: quit, abandon: abandon}
	for i := range items {
		out.done.Go(func() {
			for n := 0; sending.Err() == nil; n++ {
				// One that may or may not have been taken is sent again with its key, until it is known.
				for ctx.Err() == nil {
					if _, err := s.muxpost(ctx, "send", "--key", fmt.Sprintf("key-%d-%d", i, n), item(i), word(i, n)); err == nil {
						break
					}
					_ = pause(ctx, time.Second)
				}
				out.mu.Lock()
				out.sent[i] = n + 1
				out.mu.Unlock()
				_ = pause(sending, every)
			}
		})
	}
	return out
}

// stop ends the sending and returns how many events each item was sent.
func (s *senders) stop() [items]int {
	s.quit()
	s.done.Wait()
	return s.sent
}

// reachEverybody waits until each item on the hosts that which names (nil for all) has got an event that was sent after now.
func (s *senders) reachEverybody(ctx context.Context, which func(host string) bool) error {
	s.mu.Lock()
	want := s.sent
	s.mu.Unlock()
	for began := time.Now(); ; {
		seen, err := read(ctx, s.s)
		missing := 0
		for i := range items {
			arrived := seen.last(i) >= want[i]
			if which != nil {
				host := seen.host(i)
				arrived = arrived || !which(host)
			}
			if !arrived {
				missing++
			}
		}
		switch {
		case err == nil && missing == 0:
			return nil
		case time.Since(began) > patience:
			return errors.Join(err, fmt.Errorf("after %v, %d items have not got what was sent to them", patience, missing))
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// transcripts are what agents were told: how often each event of an item, by host.
type transcripts [items]map[string]map[int]int

// read reads the transcripts of both hosts.
func read(ctx context.Context, s stack) (transcripts, error) {
	var out transcripts
	for i := range out {
		out[i] = map[string]map[int]int{}
	}
	for _, host := range []string{"host-a", "host-b"} {
		text, err := command(ctx, nil, "docker", "exec", s.name(host), "sh", "-c", `mkdir -p `+sessions+` && find `+sessions+` -name '*.jsonl' -exec grep -h '"type":"user"' {} +`)
		if err != nil && text == "" {
			return out, err
		}
		for _, m := range words.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1])
			i, _ := strconv.Atoi(m[2])
			if out[i][host] == nil {
				out[i][host] = map[int]int{}
			}
			out[i][host][n]++
		}
	}
	return out, nil
}

// last is the number of the latest event that an item got, or -1.
func (t transcripts) last(i int) int {
	last := -1
	for _, got := range t[i] {
		for n := range got {
			last = max(last, n)
		}
	}
	return last
}

// host is where an item's agent is; nowhere if it has none.
func (t transcripts) host(i int) string {
	for host := range t[i] {
		return host
	}
	return ""
}

// judge counts what arrived, and says so in the last line.
func judge(ctx context.Context, s stack, sent [items]int) error {
	seen, err := read(ctx, s)
	if err != nil {
		return err
	}
	delivered, lost, doubled := 0, 0, 0
	var wrong []string
	for i := range items {
		if len(seen[i]) != 1 {
			wrong = append(wrong, fmt.Sprintf("%s was at %d hosts", item(i), len(seen[i])))
		}
		total := map[int]int{}
		for _, got := range seen[i] {
			for n, times := range got {
				total[n] += times
			}
		}
		for n := range sent[i] {
			switch times := total[n]; {
			case times == 0:
				lost++
				wrong = append(wrong, word(i, n)+" is lost")
			case times > 1:
				doubled++
				wrong = append(wrong, fmt.Sprintf("%s came %d times", word(i, n), times))
			}
			if total[n] > 0 {
				delivered++
			}
		}
	}
	sort.Strings(wrong)
	for _, w := range wrong {
		fmt.Println("        " + w)
	}
	fmt.Printf("compose-test: delivered=%d lost=%d doubled=%d\n", delivered, lost, doubled)
	if len(wrong) > 0 || delivered == 0 {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}
