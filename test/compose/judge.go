package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// words finds what word wrote.
var words = regexp.MustCompile(`\(event (\d+) of (\d+)\)`)

// transcripts are what agents were told: how often each event of an item, by host.
type transcripts [items]map[string]map[int]int

// add adds the lines of a host's transcripts that say what its agents were told.
func (t *transcripts) add(host, text string) {
	for _, m := range words.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		i, _ := strconv.Atoi(m[2])
		if t[i] == nil {
			t[i] = map[string]map[int]int{}
		}
		if t[i][host] == nil {
			t[i][host] = map[int]int{}
		}
		t[i][host][n]++
	}
}

// read reads the transcripts of both hosts.
func read(ctx context.Context, s stack) (out transcripts, err error) {
	for _, host := range []string{"host-a", "host-b"} {
		text, err := command(ctx, nil, "docker", "exec", s.name(host), "sh", "-c",
			`mkdir -p `+sessions+`; find `+sessions+` -name '*.jsonl' -exec sed -n '/"type":"user"/p' {} +`)
		if err != nil {
			return out, err
		}
		out.add(host, text)
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

// verdict is what arrived of what was sent.
type verdict struct {
	delivered, lost, doubled int
	// wrong are sentences about what should not be.
	wrong []string
}

// judge compares what was sent to each item with what its agents were told.
func (t transcripts) judge(sent [items]int) (v verdict) {
	for i := range items {
		if sent[i] > 0 && len(t[i]) != 1 {
			v.wrong = append(v.wrong, fmt.Sprintf("%s was at %d hosts", item(i), len(t[i])))
		}
		total := map[int]int{}
		for _, got := range t[i] {
			for n, times := range got {
				total[n] += times
			}
		}
		for n := range total {
			if n >= sent[i] {
				v.wrong = append(v.wrong, word(i, n)+" was never sent")
			}
		}
		for n := range sent[i] {
			switch times := total[n]; {
			case times == 0:
				v.lost++
				v.wrong = append(v.wrong, word(i, n)+" is lost")
			case times > 1:
				v.doubled++
				v.wrong = append(v.wrong, fmt.Sprintf("%s came %d times", word(i, n), times))
			}
			if total[n] > 0 {
				v.delivered++
			}
		}
	}
	slices.Sort(v.wrong)
	return v
}

// judge counts what arrived, and says so in the last line.
func judge(ctx context.Context, s stack, sent [items]int) error {
	seen, err := read(ctx, s)
	if err != nil {
		return err
	}
	v := seen.judge(sent)
	for _, w := range v.wrong {
		fmt.Println("        " + w)
	}
	fmt.Printf("compose-test: delivered=%d lost=%d doubled=%d\n", v.delivered, v.lost, v.doubled)
	if len(v.wrong) > 0 || v.delivered == 0 {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}
