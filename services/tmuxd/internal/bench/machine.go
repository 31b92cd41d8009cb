package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// usage is the memory of some processes, in bytes.
type usage struct{ rss, pss int64 }

func (u usage) plus(v usage) usage { return usage{u.rss + v.rss, u.pss + v.pss} }

// memory reads the memory of a process; zero for one that is gone.
func memory(pid int) usage {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return usage{}
	}
	var u usage
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "Rss:":
			u.rss = kib << 10
		case "Pss:":
			u.pss = kib << 10
		}
	}
	return u
}

// cpu reads the processor time that a process has used. The kernel says it in ticks of a hundredth of a second.
func cpu(pid int) time.Duration {
	f, err := wrapper.StatFields(pid)
	if err != nil {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
