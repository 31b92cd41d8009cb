package stack

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// tailWindow is how much of a log's end is looked at.
	tailWindow = 64 << 10
	// maxLogLine bounds one line that is shown.
	maxLogLine = 400
)

// Tail returns the last n lines of a log from an offset on, written for people; none when it cannot be read.
func Tail(path string, from int64, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // It was only read.
	if info, err := file.Stat(); err == nil {
		from = max(from, info.Size()-tailWindow)
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(file, tailWindow))
	if err != nil || len(data) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = readable(line)
	}
	return lines
}

// readable writes a log record as "15:04:05 WARN message key=value"; any other line stays as it is, without control characters.
func readable(line string) string {
	var record map[string]any
	if json.Unmarshal([]byte(line), &record) != nil || record["msg"] == nil {
		return clean(line)
	}
	var b strings.Builder
	if text, ok := record["time"].(string); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			b.WriteString(at.Local().Format("15:04:05 "))
		}
	}
	fmt.Fprintf(&b, "%v %v", record["level"], record["msg"])
	for _, key := range slices.Sorted(maps.Keys(record)) {
		switch key {
		case "time", "level", "msg", "service", "trace_id", "span_id", "stack":
		default:
			fmt.Fprintf(&b, " %s=%v", key, record[key])
		}
	}
	return clean(b.String())
}

func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if runes := []rune(s); len(runes) > maxLogLine {
		return string(runes[:maxLogLine]) + "…"
	}
	return s
}
