package spanfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"muxpost.dev/muxpost/core/fault"
)

// Sizes that bound what one service keeps, in bytes.
const (
	// DefaultFileBytes is the size at which a file is full.
	DefaultFileBytes = 16 << 20
	// DefaultTotalBytes is the size of all files of a service beyond which the oldest are deleted.
	DefaultTotalBytes = 128 << 20
)

// extension ends the name of every span file.
const extension = ".jsonl"

// WriterOptions change a writer's bounds. The zero value is the usual one.
type WriterOptions struct {
	// FileBytes is the size at which a new file is begun; DefaultFileBytes when 0.
	FileBytes int64
	// TotalBytes bounds the files of this service in the directory, whoever wrote them; DefaultTotalBytes when 0. The file
	// being written to is never deleted.
	TotalBytes int64
	// OnError hears of a span that could not be written: once, until one is written again. May be nil.
	OnError func(error)
	// Now is the clock that names files; time.Now when nil.
	Now func() time.Time
}

// Writer appends spans to the files of one service. It is a span processor: each span is on its way to the disk before
// the code that ended it goes on. Safe for concurrent use.
type Writer struct {
	dir     string
	service string
	options WriterOptions

	mu     sync.Mutex
	file   *os.File // nil before the first span and after Shutdown
	path   string
	size   int64
	torn   bool // the last write was cut short: the next one begins with a newline
	failed bool
	closed bool
}

var _ sdktrace.SpanProcessor = (*Writer)(nil)

// NewWriter returns a writer of files named <service>-<pid>-<start time>.jsonl in dir, which is made with mode 0700 when it
// is missing. A file is begun with the first span, so that a command that traces nothing leaves nothing.
func NewWriter(dir, service string, options WriterOptions) (*Writer, error) {
	if service == "" || strings.ContainsAny(service, `/\`) {
		return nil, fault.Newf(fault.Internal, "", "spanfile: %q cannot name a file", service)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, fault.ReasonStorage, "cannot make the directory for traces", err).
			WithRemedy("check that the data directory is writable for this user")
	}
	options.FileBytes = cmp.Or(options.FileBytes, DefaultFileBytes)
	options.TotalBytes = cmp.Or(options.TotalBytes, DefaultTotalBytes)
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Writer{dir: dir, service: service, options: options}, nil
}

// OnStart does nothing: only finished spans are kept.
func (w *Writer) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd writes the span.
func (w *Writer) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		w.Write(fromSDK(s))
	}
}

// ForceFlush does nothing: there is no buffer.
func (w *Writer) ForceFlush(context.Context) error { return nil }

// Shutdown closes the file. Spans that end later are dropped.
func (w *Writer) Shutdown(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// Write appends one span. A failure goes to OnError.
func (w *Writer) Write(span Span) {
	line, err := span.line()
	w.mu.Lock()
	if err == nil && !w.closed {
		err = w.append(line)
	}
	news := err != nil && !w.failed
	w.failed = err != nil
	w.mu.Unlock()
	if news && w.options.OnError != nil {
		w.options.OnError(err)
	}
}

// append writes a line with one call, so that a reader or another writer never sees it in two pieces.
func (w *Writer) append(line []byte) error {
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	if w.file != nil && w.size+int64(len(line)) > w.options.FileBytes {
		w.file.Close() //nolint:errcheck // Every line in it was written; there is nothing left to lose.
		w.file = nil
	}
	if w.file == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	n, err := w.file.Write(line)
	w.size += int64(n)
	if n > 0 {
		w.torn = err != nil
	}
	return err
}

// begin opens a new file and deletes what is too much.
func (w *Writer) begin() error {
	for at := w.options.Now(); ; at = at.Add(time.Nanosecond) {
		path := filepath.Join(w.dir, fileName(w.service, os.Getpid(), at))
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		w.file, w.path, w.size, w.torn = file, path, 0, false
		return w.prune()
	}
}

// prune deletes the files of this service that were written to longest ago, until the rest and a full new file fit.
func (w *Writer) prune() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	type old struct {
		path string
		size int64
		at   time.Time
	}
	var files []old
	total := w.options.FileBytes
	for _, entry := range entries {
		path := filepath.Join(w.dir, entry.Name())
		if serviceOf(entry.Name()) != w.service || path == w.path {
			continue
		}
		if info, err := entry.Info(); err == nil {
			files = append(files, old{path, info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b old) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path)) })
	for _, file := range files {
		if total <= w.options.TotalBytes {
			break
		}
		if err := os.Remove(file.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= file.size
	}
	return nil
}

func fileName(service string, pid int, at time.Time) string {
	return fmt.Sprintf("%s-%d-%s%s", service, pid, at.UTC().Format("20060102T150405.000000000Z"), extension)
}

// serviceOf returns the service whose file has the name, or "". The service itself may contain dashes.
func serviceOf(name string) string {
	rest, ok := strings.CutSuffix(name, extension)
	for range 2 {
		i := strings.LastIndexByte(rest, '-')
		if i < 0 {
			return ""
		}
		rest = rest[:i]
	}
	if !ok {
		return ""
	}
	return rest
}
