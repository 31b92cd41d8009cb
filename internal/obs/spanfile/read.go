package spanfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muxpost.dev/muxpost/core/fault"
)

// maxLine is the longest line that is read, in bytes; a longer one is no span of ours and is skipped.
const maxLine = 4 << 20

// Read returns the spans in dir for which match answers true, by start time. Lines that are no spans, such as the torn last
// line of a killed process, are skipped. A directory that does not exist holds no spans; one that cannot be read is an error.
func Read(dir string, match func(Span) bool) ([]Span, error) {
	return scan(dir, nil, match)
}

// ReadTraces returns all spans of the traces, by start time.
func ReadTraces(dir string, ids ...TraceID) ([]Span, error) {
	needles := make([]string, len(ids))
	for i, id := range ids {
		needles[i] = string(id)
	}
	return scan(dir, needles, func(s Span) bool { return slices.Contains(ids, s.TraceID) })
}

// FindTraces returns the ids of the traces in which a span or one of its events has the attribute, the oldest trace first.
func FindTraces(dir, key, value string) ([]TraceID, error) {
	quoted, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	spans, err := scan(dir, []string{string(quoted)}, func(s Span) bool { return s.has(key, value) })
	var ids []TraceID
	for _, s := range spans {
		if !slices.Contains(ids, s.TraceID) {
			ids = append(ids, s.TraceID)
		}
	}
	return ids, err
}

func (s *Span) has(key, value string) bool {
	if v, ok := s.Attributes[key]; ok && v == value {
		return true
	}
	return slices.ContainsFunc(s.Events, func(e Event) bool { v, ok := e.Attributes[key]; return ok && v == value })
}

// scan reads every file. A line that contains none of the needles is not parsed; without needles all are.
func scan(dir string, needles []string, match func(Span) bool) ([]Span, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(err)
	}
	var spans []Span
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasSuffix(entry.Name(), extension) {
			continue
		}
		err := eachLine(filepath.Join(dir, entry.Name()), func(line []byte) {
			if !containsAny(line, needles) {
				return
			}
			if s, ok := ParseLine(line); ok && match(s) {
				spans = append(spans, s)
			}
		})
		// A file that vanished was deleted to make room: what it held is gone for everyone.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unreadable(err)
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return spans, nil
}

func unreadable(err error) error {
	return fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot read the span files", err).
		WithRemedy("run this as the user of the service whose traces they are")
}

func containsAny(line []byte, needles []string) bool {
	return len(needles) == 0 || slices.ContainsFunc(needles, func(n string) bool { return bytes.Contains(line, []byte(n)) })
}

// eachLine calls fn with every line of at most maxLine bytes; the line is only valid during the call.
func eachLine(path string, fn func(line []byte)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // It was only read.
	return lines(file, fn)
}

func lines(r io.Reader, fn func(line []byte)) error {
	reader := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	long := false
	for {
		part, err := reader.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !long && len(line) > 0 {
			fn(line)
		}
		line, long = line[:0], false
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
