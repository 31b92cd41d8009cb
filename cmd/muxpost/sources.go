package main

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
)

const (
	// lookSpan is the span of one look at a source.
	lookSpan = "poll.Source"
	// traceWindow is how much of the end of a span file is read for the latest looks, and traceFiles of how many files.
	traceWindow = 4 << 20
	traceFiles  = 4
	// maxSpanLine bounds one line; longer ones hold no look.
	maxSpanLine = 1 << 20
)

// sourceStatus says how the latest looks at the sources went, as far as the ends of the poller's newest span files tell: no
// service can be asked for it.
func sourceStatus(s *services) []sourceReport {
	out := make([]sourceReport, 0, len(s.Poller.Sources))
	latest := map[string]*sourceReport{}
	for _, source := range s.Poller.Sources {
		out = append(out, sourceReport{Name: source.Name, Repositories: source.Repositories})
		latest[source.Name] = &out[len(out)-1]
	}
	if len(out) == 0 {
		return out
	}
	for _, path := range newest(filepath.Join(s.DataDir.Traces(), "poller-*.jsonl"), traceFiles) {
		eachEnd(path, func(line []byte) {
			span, ok := spanfile.ParseLine(line)
			if !ok || span.Name != lookSpan {
				return
			}
			if r := latest[span.Attributes[obs.KeySource]]; r != nil {
				r.add(span)
			}
		})
	}
	return out
}

func (r *sourceReport) add(span spanfile.Span) {
	at := span.End
	if !span.Failed() && (r.LastSuccess == nil || r.LastSuccess.Before(at)) {
		r.LastSuccess = &at
	}
	if r.LastLook == nil || r.LastLook.Before(at) {
		r.LastLook, r.LastError = &at, ""
		if span.Failed() {
			r.LastError = cmp.Or(span.StatusMessage, "it failed")
		}
	}
}

// newest returns the files that were written to last.
func newest(pattern string, most int) []string {
	type file struct {
		path string
		at   int64
	}
	paths, _ := filepath.Glob(pattern)
	var files []file
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			files = append(files, file{path, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(b.at, a.at) })
	var out []string
	for _, f := range files[:min(most, len(files))] {
		out = append(out, f.path)
	}
	return out
}

// eachEnd calls fn with the lines at the end of a file that speak of looks. What cannot be read has none.
func eachEnd(path string, fn func([]byte)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // It was only read.
	if info, err := file.Stat(); err == nil && info.Size() > traceWindow {
		if _, err := file.Seek(-traceWindow, io.SeekEnd); err != nil {
			return
		}
	}
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, maxSpanLine)
	for scan.Scan() {
		if bytes.Contains(scan.Bytes(), []byte(`"`+lookSpan+`"`)) {
			fn(scan.Bytes())
		}
	}
}
