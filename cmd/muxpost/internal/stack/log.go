package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// maxLog is the size beyond which a log is put aside at the next start; keptLogs of those are kept.
	maxLog   = 10 << 20
	keptLogs = 3
	// tailWindow is how much of a log's end is looked at.
	tailWindow = 64 << 10
	// maxLogLine bounds one line that is shown.
	maxLogLine = 400
)

// openLog opens a service's log for appending. One that has grown too large is put aside first.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		for n := keptLogs; n > 0; n-- {
			from := path
			if n > 1 {
				from = fmt.Sprintf("%s.%d", path, n-1)
			}
			if err := os.Rename(from, fmt.Sprintf("%s.%d", path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

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
